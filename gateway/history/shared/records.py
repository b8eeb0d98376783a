"""Which records a shared history has, and how long each is kept: the one place that names them.

    lease token fence meta meaning processes        of all, beside each other
    counts:SLOT                                     what each process counted, not added up yet
    keys steps latest                               of a hundred keys: who they are, their numbers, the latest's text
    slot:N peak:N five:N total:DAY hours:DAY day:DAY sized:DAY      the same hundred, by time

Rules
1. Tenants have even numbers and keys odd ones; a hundred of either are a *chunk*: their records share a tag, and are
   small enough for the store to pack. So nothing of a tenant's own making names a record, and a cluster spreads them.
2. What none of us wrote holds nothing (`packing.readable`), and is replaced by what is written next.
3. Every record has an end; what is kept as long as a key is known is given a new one every day.
"""

from __future__ import annotations

from collections.abc import Iterable

from gateway.history.identity import TENANT, Identity
from gateway.stores.names import Names

__all__ = ["CHUNK", "FENCE_SECONDS", "KEPT", "Records", "chunk_of", "meaning", "parity"]

CHUNK = 100
_DAY = 86_400
#: Longer than anything that a fence is beside, so that none is forgotten first.
FENCE_SECONDS = 800 * _DAY

#: Seconds that a record is kept; `day` longer where more days count.
KEPT = {
    "counts": 3600,
    "slot": _DAY + 3600,
    "peak": 6 * 3600,
    "five": 91 * _DAY,
    "total": 92 * _DAY,
    "hours": 31 * _DAY,
    "day": 65 * _DAY,
    "sized": 401 * _DAY,
    "steps": 401 * _DAY,
    "latest": 401 * _DAY,
    "keys": 401 * _DAY,
    "meta": 401 * _DAY,
    "meaning": 401 * _DAY,
    "processes": _DAY,
}

#: Slots are spread over so many tags: every process writes them every few seconds.
_SPREAD = 16


def meaning(pair: tuple[bytes, bytes]) -> tuple[tuple[int, str], int]:
    """Return what is counted, (tally, limit), and the number that stands for it."""
    tally, _, limit = pair[0].decode().partition(":")
    return (int(tally), limit), int(pair[1])


def parity(identity: Identity) -> int:
    """Return 0 for a tenant as a whole, 1 for a key."""
    return int(identity.kind != TENANT)


def chunk_of(number: int) -> str:
    """Return the chunk that a number lies in."""
    return f"{'tk'[number & 1]}{number // 2 // CHUNK}"


class Records:
    """The names in one namespace."""

    def __init__(self, names: Names) -> None:
        self._names = names
        self.lease, self.token, self.fence, self.meta, self.meaning, self.processes = (
            names.key("history", kind) for kind in ("lease", "token", "fence", "meta", "meaning", "processes")
        )

    def counts(self, slot: int) -> bytes:
        """Return the record of what every process counted in a slot."""
        return self._names.key(f"history.{slot % _SPREAD}", "counts", str(slot))

    def of(self, chunk: str, kind: str, *at: int) -> bytes:
        """Return a record of a chunk, of a moment if it is one of many."""
        return self._names.key(f"history.{chunk}", kind, *map(str, at))

    @staticmethod
    def chunks(numbers: Iterable[int]) -> list[str]:
        """Return the chunks of some numbers, tenants' first, each once and in order."""
        return [f"{'tk'[odd]}{chunk}" for odd, chunk in sorted({(one & 1, one // 2 // CHUNK) for one in numbers})]
