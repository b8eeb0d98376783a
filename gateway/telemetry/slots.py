"""Counting: one dict per tenant and slot of ten seconds, written by one thread.

Rules
1. One thread writes: the data plane's. Any other may read `slot` and take what is `closed`, without a lock: a slot is
   put into `closed` before the next one becomes current, and is never written again.
2. The tenants told apart are bounded: listed ones always, unlisted ones up to a number, all further ones together as
   `other`. An unlisted tenant makes room once no window can show it any more.
3. Nothing here depends on the number of requests, only on the number of tenants seen in a slot.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field

from gateway.telemetry.codebook import Codebook, Tally
from policies.request import ANONYMOUS, REJECTED, Class
from policies.units import SECOND, Micros

__all__ = ["DAY_SLOTS", "MAX_TENANTS", "OTHER", "SLOT", "Cells", "Ledger", "Slot"]

SLOT: Micros = 10 * SECOND
DAY_SLOTS = 24 * 360
#: All tenants that were not told apart, in every figure and label.
OTHER = "other"
#: Above this the packed slots of `windows.py` would need wider numbers.
MAX_TENANTS = 1 << 19
#: Two hours of slots that nobody took. Only a dead reader lets it come so far; then the oldest go.
_MAX_WAITING = 720

#: How often each code came, of one tenant.
Cells = dict[int, int]


@dataclass(slots=True)
class Slot:
    """All counts of the ten seconds that begin at `number * SLOT`."""

    number: int
    tenants: dict[str, Cells] = field(default_factory=dict)


class Ledger:
    """The slot being written, and those closed since they were last taken."""

    __slots__ = ("_closed", "_listed", "_max_unlisted", "_reserved", "_unlisted", "codebook", "ends", "slot")

    def __init__(self, listed: Collection[str], max_unlisted: int) -> None:
        self.codebook = Codebook()
        self.slot = Slot(0)
        #: When the current slot ends; 0 until the first count.
        self.ends: Micros = 0
        self._closed: deque[Slot] = deque(maxlen=_MAX_WAITING)
        self._unlisted: OrderedDict[str, int] = OrderedDict()
        self._reserved = (ANONYMOUS, REJECTED, OTHER)
        self.relist(listed, max_unlisted)

    def relist(self, listed: Collection[str], max_unlisted: int) -> None:
        """Take over a reloaded configuration's tenants; what was counted stays."""
        self._listed = frozenset(listed).union(self._reserved)
        self._max_unlisted = min(max_unlisted, MAX_TENANTS - len(self._listed))

    def cells(self, tenant: str, now: Micros) -> Cells:
        """Return the counts of `tenant` at `now`, to be added to at once. An instant before the slot counts in it."""
        if now >= self.ends:
            self._turn(now)
        found = self.slot.tenants.get(tenant)
        return self._enter(tenant) if found is None else found

    def add(self, tally: Tally, cls: Class, limit: str, tenant: str, now: Micros) -> None:
        """Count one; the roomy form of what `recorder.py` does by hand."""
        cells = self.cells(tenant, now)
        code = self.codebook.code(tally, cls, limit)
        cells[code] = cells.get(code, 0) + 1

    def take_closed(self, before: int) -> Iterator[Slot]:
        """Take the closed slots older than number `before`, oldest first. One reader at a time."""
        while self._closed and self._closed[0].number < before:
            yield self._closed.popleft()

    def turn(self, now: Micros) -> None:
        """Close the current slot if its time is over, though nobody counts in the next."""
        if now >= self.ends and self.slot.tenants:
            self._turn(now)

    def _turn(self, now: Micros) -> None:
        number = now // SLOT
        self.ends = (number + 1) * SLOT
        if self.slot.tenants:
            self._closed.append(self.slot)
        self.slot = Slot(number)

    def _enter(self, tenant: str) -> Cells:
        """Begin the counts of a tenant not yet seen in this slot: once per tenant and slot."""
        if tenant not in self._listed and not self._admit(tenant):
            tenant = OTHER
        return self.slot.tenants.setdefault(tenant, {})

    def _admit(self, tenant: str) -> bool:
        """Return whether an unlisted tenant is told apart; the one unseen for longest goes when no window shows it."""
        known = self._unlisted
        if tenant not in known and len(known) >= self._max_unlisted:
            oldest = next(iter(known), None)
            if oldest is None or known[oldest] > self.slot.number - DAY_SLOTS:
                return False
            del known[oldest]
        known[tenant] = self.slot.number
        known.move_to_end(tenant)
        return True
