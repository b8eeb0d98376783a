"""Sums of slots over sliding windows, kept up to date slot by slot.

Rules
1. A window is the current slot and the whole slots before it that fit: 1m, 5m, 15m and 1h are counted in slots of ten
   seconds, 24h in slots of five minutes. It therefore never looks further back than its name says, and at most one of
   its slots less.
2. A closed slot is added to every window once and subtracted once, so reading a window costs one look per tenant,
   however long it is.
3. A closed slot is kept as packed integers of eight bytes, one per tenant and code: 360 of ten seconds and 288 of five
   minutes. Tenants are numbered; a number is free again once the longest window has forgotten its tenant.
4. One thread at a time (`tenants.py` holds the lock). Loops over all tenants breathe (`breath.py`).
"""

from __future__ import annotations

from array import array
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from itertools import islice
from typing import Final

from gateway.telemetry.breath import AT_ONCE, breathe, breathing
from gateway.telemetry.codebook import CODE_BITS, Codebook
from gateway.telemetry.columns import Columns, Counted, Ranked, Table
from gateway.telemetry.slots import SLOT, Cells, Slot
from policies.native import mypyc_attr
from policies.request import REJECTED
from policies.units import Micros

__all__ = ["WINDOWS", "Windows"]

#: Slots of ten seconds in each window.
WINDOWS: Mapping[str, int] = {"1m": 6, "5m": 30, "15m": 90, "1h": 360, "24h": 8640}

_COARSE: Final = 30
_COUNT_BITS: Final = 64 - 20 - CODE_BITS
_COUNT_MASK: Final = (1 << _COUNT_BITS) - 1
_CODE_MASK: Final = (1 << CODE_BITS) - 1


@mypyc_attr(acyclic=True)
class _Sum:
    """The counts of one tenant in one window, by code; as `slots.Tab`, most have one, which is no dict's worth.

    While there are any, one of them is `code`.
    """

    __slots__ = ("code", "count", "others")

    def __init__(self, code: int, count: int) -> None:
        self.code = code
        self.count = count
        self.others: Cells | None = None

    def add(self, code: int, count: int) -> None:
        """Count so many."""
        if code == self.code:
            self.count += count
            return
        others = self.others
        if others is None:
            others = self.others = {}
        others[code] = others.get(code, 0) + count

    def subtract(self, code: int, count: int) -> bool:
        """Take as many out that were counted; True if nothing is left."""
        others = self.others
        if code != self.code:
            if others is not None:
                left = others[code] - count
                if left:
                    others[code] = left
                else:
                    del others[code]
            return False
        self.count -= count
        if self.count:
            return False
        if not others:
            return True
        self.code, self.count = others.popitem()
        return False

    def cells(self) -> Cells:
        """Return them."""
        cells = {self.code: self.count}
        if self.others is not None:
            cells.update(self.others)
        return cells


class _Window:
    """The sum of one window, in slots of `grain` times ten seconds, and the packed slots to subtract later."""

    __slots__ = ("columns", "grain", "slots", "span", "sums", "tallies")

    def __init__(self, slots: int, grain: int, tallies: list[int]) -> None:
        self.columns = Columns()
        self.tallies = tallies
        self.span = slots // grain
        self.grain = grain
        self.slots: deque[tuple[int, array[int]]] = deque()
        #: By number of the tenant.
        self.sums: list[_Sum | None] = []

    def oldest(self, now: Micros) -> int:
        """Return the number, in its own grain, of the first slot that the window still covers at `now`."""
        return now // (SLOT * self.grain) - self.span + 1

    def grow(self) -> None:
        """Make room for one more tenant."""
        self.columns.grow()
        self.sums.append(None)

    def add(self, rows: list[tuple[int, Cells]], counted: list[Counted]) -> None:
        """Add the counts of some tenants, which are told twice: by code, and for the columns."""
        self.columns.count(counted)
        known = self.sums
        for tenant, cells in rows:
            sums = known[tenant]
            for code, count in cells.items():
                if sums is None:
                    sums = known[tenant] = _Sum(code, count)
                else:
                    sums.add(code, count)

    def cells(self, tenant: int) -> Cells:
        """Return the counts of one tenant."""
        sums = self.sums[tenant]
        return {} if sums is None else sums.cells()

    def _subtract(self, packed: Iterable[int]) -> list[int]:
        """Take packed counts out; returns the tenants of whom nothing is left."""
        tallies, known = self.tallies, self.sums
        counted: list[Counted] = []
        gone: list[int] = []
        for one in packed:
            key, count = one >> _COUNT_BITS, one & _COUNT_MASK
            tenant, code = key >> CODE_BITS, key & _CODE_MASK
            counted.append((tenant, tallies[code], -count))
            sums = known[tenant]
            if sums is not None and sums.subtract(code, count):
                known[tenant] = None
                gone.append(tenant)
        self.columns.count(counted)
        return gone

    def expire(self, now: Micros) -> list[int]:
        """Subtract the slots that `now` has left behind; returns the tenants of whom nothing is left."""
        oldest = self.oldest(now)
        gone: list[int] = []
        while self.slots and self.slots[0][0] < oldest:
            packed = self.slots.popleft()[1]
            for start in range(0, len(packed), AT_ONCE):
                gone += self._subtract(packed[start : start + AT_ONCE])
                breathe()
        return gone


class Windows:
    """All windows over all tenants."""

    def __init__(self, codebook: Codebook) -> None:
        self._tallies = codebook.tallies
        *fine, longest = (
            _Window(slots, _COARSE if slots > WINDOWS["1h"] else 1, codebook.tallies) for slots in WINDOWS.values()
        )
        self._fine = fine
        self._longest = longest
        self._by_name = dict(zip(WINDOWS, (*fine, longest), strict=True))
        self._names: list[str] = []
        self._numbers: dict[str, int] = {}
        self._free: list[int] = []
        self._fresh: tuple[Micros, list[Counted]] = (-1, [])
        #: What was counted in the slot of five minutes that is still open, by packed tenant and code.
        self._gathered: dict[int, int] = {}
        self._gathering = 0

    def close(self, slot: Slot) -> None:
        """Add a closed slot; they come in order."""
        self._gather(slot.number // _COARSE)
        packed: array[int] = array("Q")
        gathered, tallies = self._gathered, self._tallies
        tenants = iter(slot.tenants.items())
        while some := [(self._number(name), counts.copy()) for name, counts in islice(tenants, AT_ONCE)]:
            counted: list[Counted] = []
            for tenant, cells in some:
                for code, count in cells.items():
                    counted.append((tenant, tallies[code], count))
                    key = (tenant << CODE_BITS) | code
                    packed.append((key << _COUNT_BITS) | count)
                    gathered[key] = gathered.get(key, 0) + count
            for window in self._by_name.values():
                window.add(some, counted)
            breathe()
        for window in self._fine:
            window.slots.append((slot.number, packed))

    def expire(self, now: Micros) -> None:
        """Forget what no window covers at `now`."""
        self._gather(now // SLOT // _COARSE)
        for window in self._fine:
            window.expire(now)
        for tenant in self._longest.expire(now):
            del self._numbers[self._names[tenant]]
            self._free.append(tenant)

    def read(self, window: str, now: Micros, current: Slot) -> Iterator[tuple[str, Cells]]:
        """Yield every tenant with its counts in `window` at `now`, those of the slot being written included."""
        chosen = self._by_name[window]
        fresh = _copy(current) if current.number // chosen.grain >= chosen.oldest(now) else {}
        for tenant, sums in breathing(enumerate(chosen.sums)):
            if sums is not None:
                name = self._names[tenant]
                cells = fresh.pop(name, None)
                yield name, sums.cells() if cells is None else _sum(sums.cells(), cells)
        yield from breathing(iter(fresh.items()))

    def ranks(self, window: str) -> Iterator[Ranked]:
        """Yield every tenant that was seen in `window`, as `labels.py` ranks it, without the slot being written."""
        columns = self._by_name[window].columns
        for name, number in breathing(iter(self._numbers.items())):
            volume = columns.offered[number] + columns.rejected[number]
            if volume:
                yield name, columns.offered[number] - columns.excused[number] - columns.served[number], volume

    def table(self, window: str, now: Micros, current: Slot) -> Table:
        """Return every tenant's sums in `window` at `now` by column, those of the slot being written included."""
        chosen = self._by_name[window]
        fresh = current.number // chosen.grain >= chosen.oldest(now)
        added = self._fresh_counts(now, current) if fresh else []
        columns = chosen.columns.copy()
        columns.count(added)
        rejected = self._numbers.get(REJECTED)
        left_out: list[Counted] = []
        if rejected is not None:
            cells = chosen.cells(rejected).items()
            left_out = [(rejected, self._tallies[code], count) for code, count in cells]
            left_out += [counted for counted in added if counted[0] == rejected]
        return Table(self._names.copy(), columns, left_out)

    def _fresh_counts(self, now: Micros, current: Slot) -> list[Counted]:
        """Return the counts of a slot that another thread may be writing; the same for all questions of one instant."""
        if self._fresh[0] != now:
            tallies = self._tallies
            counts: list[Counted] = []
            for name, cells in breathing(iter(current.tenants.copy().items())):
                number = self._number(name)
                for code, count in cells.copy().items():
                    counts.append((number, tallies[code], count))
            self._fresh = (now, counts)
        return self._fresh[1]

    def of(self, tenant: str, window: str, now: Micros, current: Slot) -> Cells:
        """Return the counts of one tenant in `window` at `now`."""
        chosen = self._by_name[window]
        number = self._numbers.get(tenant)
        sums = {} if number is None else chosen.cells(number)
        fresh = current.number // chosen.grain >= chosen.oldest(now)
        counts = current.tenants.get(tenant) if fresh else None
        return sums if counts is None else _sum(sums, counts.copy())

    def _number(self, name: str) -> int:
        number = self._numbers.get(name)
        if number is None:
            if self._free:
                number = self._free.pop()
                self._names[number] = name
            else:
                number = len(self._names)
                self._names.append(name)
                for window in self._by_name.values():
                    window.grow()
            self._numbers[name] = number
        return number

    def _gather(self, period: int) -> None:
        """Close the slot of five minutes when another one begins."""
        if period != self._gathering and self._gathered:
            packed: array[int] = array("Q")
            for key, count in breathing(iter(self._gathered.items())):
                packed.append((key << _COUNT_BITS) | count)
            self._longest.slots.append((self._gathering, packed))
            self._gathered = {}
        self._gathering = period


def _sum(total: Cells, more: Cells) -> Cells:
    """Add `more` to `total`, and return that."""
    for code, count in more.items():
        total[code] = total.get(code, 0) + count
    return total


def _copy(slot: Slot) -> dict[str, Cells]:
    """Copy a slot that another thread may be writing.

    Copying a dict from which nothing was ever deleted is one step of the interpreter: nobody writes in between.
    """
    return {name: cells.copy() for name, cells in breathing(iter(slot.tenants.copy().items()))}
