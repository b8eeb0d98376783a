"""Counting: one tab per tenant and slot of ten seconds, written by one thread.

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
from typing import Protocol, cast

from gateway.telemetry.codebook import Codebook, Tally
from policies.charge import Plan
from policies.native import mypyc_attr
from policies.request import ANONYMOUS, REJECTED, Class
from policies.units import SECOND, Micros

__all__ = ["DAY_SLOTS", "MAX_TENANTS", "OTHER", "SLOT", "Cells", "Counts", "Ledger", "Slot", "Tab"]

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


class Counts(Protocol):
    """The same, perhaps being written: a `Tab`, or a dict."""

    def copy(self) -> Cells:
        """Return it as it is now."""
        ...


@mypyc_attr(acyclic=True)
class Tab:
    """How often each code came, of one tenant in the slot `number`.

    The code that came first is counted by itself: most tenants have no other in ten seconds, and two numbers in here
    are one line of the processor's cache where a dict is four.
    """

    __slots__ = ("_code", "_count", "_others", "number", "tenant")

    def __init__(self, tenant: str, number: int) -> None:
        self.number = number
        self._code = -1
        self._count = 0
        self._others: Cells | None = None
        self.tenant = tenant

    def add(self, code: int, count: int = 1) -> None:
        """Count one, or as many."""
        if code == self._code:
            self._count += count
        elif not self._count:
            # In this order: who copies meanwhile has nothing yet.
            self._code = code
            self._count = count
        else:
            others = self._others
            if others is None:
                others = self._others = {}
            others[code] = others.get(code, 0) + count

    def copy(self) -> Cells:
        """Return it as it is now; from any thread."""
        count, others = self._count, self._others
        if not count:
            return {}
        cells = {self._code: count}
        if others is not None:
            cells.update(others)
        return cells


@dataclass(slots=True)
class Slot:
    """All counts of the ten seconds that begin at `number * SLOT`."""

    number: int
    tenants: dict[str, Counts] = field(default_factory=dict)


class Ledger:
    """The slot being written, and those closed since they were last taken."""

    __slots__ = (
        "_closed", "_ends", "_listed", "_max_unlisted", "_number", "_reserved", "_tabs", "_unlisted", "codebook",
        "slot",
    )  # fmt: skip

    def __init__(self, listed: Collection[str], max_unlisted: int) -> None:
        self.codebook = Codebook()
        self._begin(0)
        #: When the current slot ends; 0 until the first count.
        self._ends: Micros = 0
        self._closed: deque[Slot] = deque(maxlen=_MAX_WAITING)
        self._unlisted: OrderedDict[str, int] = OrderedDict()
        self._reserved = (ANONYMOUS, REJECTED, OTHER)
        self.relist(listed, max_unlisted)

    def relist(self, listed: Collection[str], max_unlisted: int) -> None:
        """Take over a reloaded configuration's tenants; what was counted stays."""
        self._listed = frozenset(listed).union(self._reserved)
        self._max_unlisted = min(max_unlisted, MAX_TENANTS - len(self._listed))

    def count(self, code: int, plan: Plan, now: Micros) -> None:
        """Count one of the tenant of `plan`, whose tab the plan remembers: it is found without a look at any name."""
        memo = plan.memo
        kept = memo.counted
        if isinstance(kept, Tab) and kept.number == self._number and now < self._ends:
            kept.add(code)
            return
        tenant = plan.tenant
        tab = self.tab(tenant, now)
        tab.add(code)
        # Whoever is counted as `other` may be told apart any moment.
        if tab.tenant == tenant:
            memo.counted = tab

    def tab(self, tenant: str, now: Micros) -> Tab:
        """Return the counts of `tenant` at `now`, to be added to at once. An instant before the slot counts in it."""
        if now >= self._ends:
            self._turn(now)
        found = self._tabs.get(tenant)
        return self._enter(tenant) if found is None else found

    def add(self, tally: Tally, cls: Class, limit: str, tenant: str, now: Micros) -> None:
        """Count one by what it means."""
        self.tab(tenant, now).add(self.codebook.code(tally, cls, limit))

    def take_closed(self, before: int) -> Iterator[Slot]:
        """Take the closed slots older than number `before`, oldest first. One reader at a time."""
        while self._closed and self._closed[0].number < before:
            yield self._closed.popleft()

    def turn(self, now: Micros) -> None:
        """Close the current slot if its time is over, though nobody counts in the next."""
        if now >= self._ends and self._tabs:
            self._turn(now)

    def _turn(self, now: Micros) -> None:
        number = now // SLOT
        self._ends = (number + 1) * SLOT
        if self._tabs:
            self._closed.append(self.slot)
        self._begin(number)

    def _begin(self, number: int) -> None:
        self._number = number
        self._tabs: dict[str, Tab] = {}
        # The same dict: what can be read there is what is written here.
        self.slot = Slot(number, cast("dict[str, Counts]", self._tabs))

    def _enter(self, tenant: str) -> Tab:
        """Begin the counts of a tenant not yet seen in this slot: once per tenant and slot."""
        if tenant not in self._listed and not self._admit(tenant):
            tenant = OTHER
        tab = self._tabs.get(tenant)
        if tab is None:
            tab = self._tabs[tenant] = Tab(tenant, self._number)
        return tab

    def _admit(self, tenant: str) -> bool:
        """Return whether an unlisted tenant is told apart; the one unseen for longest goes when no window shows it."""
        known = self._unlisted
        if tenant not in known and len(known) >= self._max_unlisted:
            oldest = next(iter(known), None)
            if oldest is None or known[oldest] > self._number - DAY_SLOTS:
                return False
            del known[oldest]
        known[tenant] = self._number
        known.move_to_end(tenant)
        return True
