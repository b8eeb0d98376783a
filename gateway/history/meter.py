"""What each key used, second by second: the one part of history that runs on the data plane.

Rules
1. One thread writes: the data plane's. Others take what is `closed`, or look at copies (`Cell.units`); a slot that is
   closed is never written again.
2. Usage is counted when it is admitted, not when it is answered: an upstream that stalls and lets everything go at once
   would otherwise look like a peak. What never reached the upstream is taken out again.
3. Only users and projects are counted, never addresses; at most `max_keys` of them in a slot, configured ones always.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from typing import Final

from policies.charge import Memo
from policies.native import mypyc_attr
from policies.request import Kind, Principal
from policies.units import SECOND, Micros, RequestUnits

__all__ = ["SLOT", "SLOT_SECONDS", "Cell", "Meter", "Slot"]

SLOT_SECONDS = 10
SLOT: Micros = SLOT_SECONDS * SECOND
#: An hour of slots that nobody took; then the oldest go.
_MAX_WAITING = 360

#: No second.
_NONE: Final = -(1 << 20)  # no second, whatever an instant before the slot comes to

_USER, _JOB = Kind.USER, Kind.JOB


@mypyc_attr(acyclic=True)
class Cell:
    """One key in one slot: units admitted in each second, requests admitted, what was refused by which limit.

    The second under way is a number in here, and goes to the table of all when another begins: a number in a list is
    three lines of the processor's cache. A reader on another thread may come between any two steps of the writer, so
    each step leaves what can be read: the table has every second but the one that `_second` names, and what it has of
    that one does not count. While it names none, the table has them all.
    """

    __slots__ = ("_second", "_table", "_units", "admitted", "begins", "principal", "refused", "refused_units")

    def __init__(self, principal: Principal, begins: Micros = 0) -> None:
        self.begins = begins
        self._second = _NONE
        self._units: RequestUnits = 0.0
        self.admitted = 0
        self._table: list[float] | None = None
        self.principal = principal
        self.refused_units: RequestUnits = 0.0
        self.refused: dict[str, int] | None = None

    def add(self, second: int, units: RequestUnits) -> None:
        """Count units of a second; only the writer."""
        if second != self._second:
            self._turn(second)
        self._units += units

    def _turn(self, second: int) -> None:
        table = self._table
        if self._second != _NONE:
            if table is None:
                table = [0.0] * SLOT_SECONDS
            table[self._second] = self._units
            self._table = table
        self._second = _NONE
        self._units = 0.0 if table is None else table[second]
        self._second = second

    def units(self) -> list[RequestUnits]:
        """Return what was admitted in each second; from any thread."""
        while True:
            second, units, table = self._second, self._units, self._table
            seconds = [0.0] * SLOT_SECONDS if table is None else table.copy()
            if second == self._second:
                break
        if second != _NONE:
            seconds[second] = units
        return seconds

    def fold(self, units: Sequence[RequestUnits]) -> None:
        """Add what was admitted in each second elsewhere; only the writer. ValueError for other than ten seconds."""
        if len(units) != SLOT_SECONDS:
            raise ValueError(f"{len(units)} seconds")
        for second in range(SLOT_SECONDS):
            self.add(second, units[second])


class Slot:
    """All keys of the ten seconds that begin at `number * SLOT`."""

    __slots__ = ("cells", "number")

    def __init__(self, number: int) -> None:
        self.number = number
        self.cells: dict[str, Cell] = {}


class Meter:
    """Counts decisions by key; the one that `gateway.pipeline` tells."""

    __slots__ = ("_begins", "_cells", "_closed", "_ends", "_max_keys", "overflowed", "slot")

    def __init__(self, max_keys: int) -> None:
        self._max_keys = max_keys
        self._closed: deque[Slot] = deque(maxlen=_MAX_WAITING)
        self._begins: Micros = 0
        self._ends: Micros = 0
        self.slot = Slot(0)
        self._cells = self.slot.cells
        #: Requests of keys that found no room.
        self.overflowed = 0

    def note(
        self, principal: Principal, cost: RequestUnits, limit: str, now: Micros, memo: Memo | None = None
    ) -> None:  # fmt: skip
        """Count one decision: admitted if `limit` is empty, else refused by it. `memo` is that of the key's plan."""
        if now >= self._ends:
            self.turn(now)
        begins = self._begins
        kept = None if memo is None else memo.metered
        if isinstance(kept, Cell) and kept.begins == begins:
            cell = kept
        else:
            found = self._cells.get(principal.name) or self._enter(principal)
            if found is None:
                return
            cell = found
            if memo is not None:
                memo.metered = cell
        if not limit:
            cell.add((now - begins) // SECOND, cost)
            cell.admitted += 1
            return
        cell.refused_units += cost
        if cell.refused is None:
            cell.refused = {}
        cell.refused[limit] = cell.refused.get(limit, 0) + 1

    def take_back(self, principal: Principal, cost: RequestUnits, admitted_at: Micros) -> None:
        """Uncount one that was admitted and never sent, if its slot is still open."""
        cell = self._cells.get(principal.name)
        if cell is not None and self._begins <= admitted_at < self._ends:
            cell.add((admitted_at - self._begins) // SECOND, -cost)
            cell.admitted -= 1

    def turn(self, now: Micros) -> None:
        """Close the slot if its time is over."""
        if now < self._ends:
            return
        number = now // SLOT
        if self._cells:
            self._closed.append(self.slot)
        self.slot = Slot(number)
        self._cells = self.slot.cells
        self._begins = number * SLOT
        self._ends = self._begins + SLOT

    def take_closed(self) -> Iterator[Slot]:
        """Take the closed slots, oldest first. One reader at a time, from any thread."""
        while self._closed:
            yield self._closed.popleft()

    def _enter(self, principal: Principal) -> Cell | None:
        if principal.kind is not _USER and principal.kind is not _JOB:
            return None
        if len(self._cells) >= self._max_keys and not principal.listed:
            self.overflowed += 1
            return None
        cell = self._cells[principal.name] = Cell(principal, self._begins)
        return cell
