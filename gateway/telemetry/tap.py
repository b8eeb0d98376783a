"""What a process has counted since the last look, so that another can count it as its own.

Rules
1. Every count is in exactly one delta: a slot is compared with what was taken of it before, and let go of when it is
   closed and taken for the last time.
2. A delta names tally, class and limit, not codes: each process hands out its own.
3. Poured out, a delta counts in the slot that is current where it arrives. Windows are thereby exact in sum, shifted by
   no more than what was under way, and no two clocks need to agree.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping, Sequence

from gateway.telemetry.breath import breathing
from gateway.telemetry.codebook import Codebook, Tally
from gateway.telemetry.slots import Cells, Ledger, Slot
from gateway.telemetry.tenants import Tenants
from policies.request import Class
from policies.units import Micros

__all__ = ["Delta", "Row", "Tap", "fold", "pour"]

#: Slots: two hours of a reader that never comes.
_MAX_WAITING = 720

#: Tally, class, limit, how often.
Row = tuple[int, int, str, int]
#: By tenant.
Delta = dict[str, list[Row]]


class Tap:
    """Takes the counts of one ledger. One reader at a time, on any thread but the one that counts."""

    def __init__(self, tenants: Tenants) -> None:
        self._tenants = tenants
        self._ledger = tenants.ledger
        self._closed: deque[Slot] = deque(maxlen=_MAX_WAITING)
        #: By number of the slot: what was taken of it.
        self._seen: dict[int, dict[str, Cells]] = {}
        tenants.followers.append(self._closed.append)

    def take(self, now: Micros) -> Delta:
        """Return what was counted since the last time."""
        # Before the current slot is read: one that closes in between is in `_closed` at the next look.
        self._tenants.advance(now)
        book, delta = self._ledger.codebook, Delta()
        while self._closed:
            slot = self._closed.popleft()
            _since(slot, self._seen.pop(slot.number, {}), book, delta)
        current = self._ledger.slot
        if current.tenants:
            _since(current, self._seen.setdefault(current.number, {}), book, delta)
        return delta


def _since(slot: Slot, seen: dict[str, Cells], book: Codebook, delta: Delta) -> None:
    """Add to `delta` what `slot` holds beyond `seen`, and bring that up to date."""
    for tenant, cells in breathing(iter(slot.tenants.copy().items())):
        before = seen.get(tenant)
        now = cells.copy()
        if before == now:
            continue
        seen[tenant] = now
        rows = delta.setdefault(tenant, [])
        for code, count in now.items():
            more = count if before is None else count - before.get(code, 0)
            if more:
                entry = book.entries[code]
                rows.append((int(entry.tally), int(entry.cls), entry.limit, more))


def pour(delta: Mapping[str, Iterable[Sequence[int | str]]], ledger: Ledger, now: Micros) -> None:
    """Count a delta in `ledger`, on the thread that counts there. Raises ValueError for what is none."""
    book = ledger.codebook
    for tenant, rows in delta.items():
        tab = ledger.tab(tenant, now)
        for tally, cls, limit, count in rows:
            tab.add(book.code(Tally(int(tally)), Class(int(cls)), str(limit)), int(count))


def fold(waiting: dict[str, dict[tuple[int, int, str], int]], delta: Delta) -> None:
    """Add a delta to those that wait for one who takes them."""
    for tenant, rows in delta.items():
        sums = waiting.setdefault(tenant, {})
        for tally, cls, limit, count in rows:
            what = (tally, cls, limit)
            sums[what] = sums.get(what, 0) + count
