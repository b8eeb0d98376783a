"""A window's sums by column: one list per figure, indexed by the number of the tenant.

Rules
1. What is asked of ten thousand tenants every second is read off lists, not off ten thousand dicts: the whole, the
   worst and an order take milliseconds. The dicts of `windows.py` stand for what is asked of a few.
2. A column holds what `figures.py` says that it holds; a test compares the two.
3. `totals` are by tally, `rejected` included; whoever reads leaves it out.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from operator import sub
from typing import Final

from gateway.telemetry.breath import AT_ONCE, breathe
from gateway.telemetry.codebook import Tally
from gateway.telemetry.figures import FLOOR, Aggregate, aggregate
from policies.request import REJECTED

__all__ = ["Columns", "Counted", "Ranked", "Table"]

#: (number of a tenant, tally, how often)
Counted = tuple[int, int, int]
#: A tenant, how many of its requests its own limits let through and were not served, and how many there were at all.
Ranked = tuple[str, int, int]

_TALLIES = len(Tally)
#: Tenants whose share is worked out at once.
_SHARES: Final = 8 * AT_ONCE
_SERVED, _ABORTED_EARLY, _OWN = int(Tally.SERVED), int(Tally.ABORTED_EARLY), int(Tally.OWN)
_OVER, _REJECTED = int(Tally.OVER), int(Tally.REJECTED)


class Columns:
    """Sums by tenant of what is offered; `count` adds, or takes away what is negative."""

    __slots__ = ("excused", "offered", "refused", "rejected", "served", "totals")

    def __init__(self) -> None:
        self.served: list[int] = []
        self.offered: list[int] = []
        self.excused: list[int] = []
        self.refused: list[int] = []
        self.rejected: list[int] = []
        self.totals = [0] * _TALLIES

    def grow(self) -> None:
        """Make room for one more tenant."""
        for column in (self.served, self.offered, self.excused, self.refused, self.rejected):
            column.append(0)

    def copy(self) -> Columns:
        """Return a copy to be added to."""
        made = Columns()
        made.served, made.offered = self.served.copy(), self.offered.copy()
        made.excused, made.refused = self.excused.copy(), self.refused.copy()
        made.rejected = self.rejected.copy()
        made.totals = self.totals.copy()
        return made

    def count(self, counted: Iterable[Counted]) -> None:
        """Add counts."""
        served, offered, excused, refused, totals = self.served, self.offered, self.excused, self.refused, self.totals
        # Compiled, a name of the module is looked up each time.
        as_served, early, own, over, as_rejected = _SERVED, _ABORTED_EARLY, _OWN, _OVER, _REJECTED
        for tenant, tally, count in counted:
            if tally >= as_rejected:
                if tally == as_rejected:
                    self.rejected[tenant] += count
                continue
            offered[tenant] += count
            totals[tally] += count
            if tally == as_served:
                served[tenant] += count
            elif tally >= early:
                if tally < over:
                    excused[tenant] += count
                if tally >= own:
                    refused[tenant] += count


class Table:
    """One window at one instant, `rejected` left out; nobody writes to it any more."""

    __slots__ = ("_columns", "names", "whole")

    def __init__(self, names: Sequence[str], columns: Columns, rejected: Sequence[Counted]) -> None:
        self.names = names
        self._columns = columns
        columns.count((tenant, tally, -count) for tenant, tally, count in rejected)
        #: The denominators of in-profile success.
        self.whole = list(map(sub, columns.offered, columns.excused))

    @property
    def served(self) -> list[int]:
        """By number."""
        return self._columns.served

    @property
    def offered(self) -> list[int]:
        """By number."""
        return self._columns.offered

    @property
    def refused(self) -> list[int]:
        """By number."""
        return self._columns.refused

    def aggregate(self) -> Aggregate:
        """Return the whole."""
        shares, busy = 0.0, 0
        for number, (served, offered) in enumerate(zip(self.served, self.offered, strict=True)):
            if offered:
                shares += served / offered
                busy += 1
            if number % _SHARES == _SHARES - 1:
                breathe()
        return aggregate(self._columns.totals, shares / busy if busy else None)

    def worst(self) -> str | None:
        """Return who has the lowest in-profile success, None without anybody worth ranking."""
        return self._lowest(self.whole)

    def lowest(self) -> str | None:
        """Return who has the lowest raw success."""
        return self._lowest(self.offered)

    def _lowest(self, whole: list[int]) -> str | None:
        """Return the tenant; of equal ones that with more requests behind it, then by name."""
        best, most, lowest = 2.0, 0, ""
        for number, (served, of) in enumerate(zip(self.served, whole, strict=True)):
            if of >= FLOOR:
                share = served / of
                if share <= best:
                    name = self.names[number]
                    if (share, -of, name) < (best, -most, lowest) and name != REJECTED:
                        best, most, lowest = share, of, name
            if number % _SHARES == _SHARES - 1:
                breathe()
        return lowest if most else None
