"""Capacity leased to several processes, and what they tell each other: the record that all of them share.

A process says, of each pool (the backstop, and each ceiling of a class), what it holds, what it wants and what there
is, and leaves a report for the others. Its entry lives for a lease time only, so what a dead process held comes free by
itself. `gateway/stores/lua/shares.lua` is the twin of this.

Rules
1. All living holds together never exceed the capacity, unless that was lowered: then nobody is given more until enough
   has been returned.
2. A process first lowers what it uses, then says so: `held` is the most that it will use until it hears the answer. The
   answer may be lower; what was held stays counted until the process says less.
3. When more is wanted than there is, each gets the same part of what it wants.
4. An entry never lives longer than a lease from now, whatever the clock did.
5. Nothing is kept for so long that a bucket would be full: whoever begins a record begins with full ones.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from policies.units import Micros

__all__ = ["Claim", "Entry", "Renewal", "Table", "renew"]


class Claim(NamedTuple):
    """What a process says of one pool, all in one unit: parts of the whole, since processes may disagree about that."""

    pool: int
    capacity: float
    held: float
    want: float


class Entry:
    """What one process holds and wants of each pool, and its report, until its lease ends."""

    __slots__ = ("held", "report", "until", "want")

    def __init__(self) -> None:
        self.held: dict[int, float] = {}
        self.want: dict[int, float] = {}
        self.report = b""
        self.until: Micros = 0


Table = dict[int, Entry]


class Renewal(NamedTuple):
    """The answer: whether the record was begun, how many processes there are, what each pool gives, others' reports."""

    fresh: bool
    processes: int
    granted: list[float]
    reports: list[bytes]


def renew(
    table: Table, process: int, ttl_us: Micros, claims: Sequence[Claim], report: bytes, now: Micros
) -> Renewal:  # fmt: skip
    """Renew the entry of `process` for `ttl_us` (0: it leaves). An empty report leaves the last one."""
    fresh = not table
    for other, entry in list(table.items()):
        if entry.until <= now:
            del table[other]
        elif ttl_us > 0:
            entry.until = min(entry.until, now + ttl_us)
    mine = table.setdefault(process, Entry())
    mine.until = now + ttl_us
    if ttl_us <= 0:
        # It stays until the next call, so that whoever comes then does not begin the record.
        mine.held, mine.want, mine.report = {}, {}, b""
        return Renewal(fresh, len(table) - 1, [], [])
    mine.report = report or mine.report
    mine.want = {claim.pool: claim.want for claim in claims}
    others = [table[other] for other in sorted(table) if other != process]
    granted = [_grant(claim, others) for claim in claims]
    mine.held = {claim.pool: max(claim.held, grant) for claim, grant in zip(claims, granted, strict=True)}
    return Renewal(fresh, len(table), granted, [other.report for other in others])


def _grant(claim: Claim, others: Sequence[Entry]) -> float:
    taken, wanted = 0.0, claim.want
    for other in others:
        taken += other.held.get(claim.pool, 0.0)
        wanted += other.want.get(claim.pool, 0.0)
    part = claim.want if wanted <= claim.capacity else claim.want * claim.capacity / wanted
    return max(0.0, min(part, claim.capacity - taken))
