"""Simulated time: events in order, the gate they meet, and the books of every tenant.

Rules
1. One random generator, seeded; the same scenario, mode and seed give the same books.
2. Nothing here decides: an attempt is one take of the real store.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from heapq import heappop, heappush
from random import Random
from typing import TYPE_CHECKING, TypeAlias

from policies.charge import Plan, Reading
from policies.units import SECOND, Micros

if TYPE_CHECKING:
    from loadtest.sim.gate import Gate

__all__ = ["SLOT_US", "Account", "Step", "World"]

#: Admissions are kept in slots this long.
SLOT_US: Micros = SECOND // 10

Step: TypeAlias = Callable[[Micros], None]


class Account:
    """What one tenant asked for and got, from `since` on. Calls are the caller's view, attempts the gateway's."""

    __slots__ = (
        "admitted", "admitted_slots", "at_once", "attempts", "beyond", "by_class", "calls", "failed", "first_return",
        "longest_told_us", "longest_us", "most_refused", "offered", "offered_slots", "refused", "served", "tenant",
        "within",
    )  # fmt: skip

    def __init__(self, tenant: str, slots: int) -> None:
        self.tenant = tenant
        self.calls = 0
        self.served = 0
        self.failed = 0
        self.attempts = 0
        self.admitted = 0.0
        #: Units of calls begun (an attempt that comes back is the same call).
        self.offered = 0.0
        self.refused: Counter[str] = Counter()
        self.beyond = 0
        #: Refusals by the backstop of what fitted the share.
        self.within = 0
        #: Units admitted of each class.
        self.by_class = [0.0, 0.0]
        #: Calls admitted at the first and at the second attempt, and the most refusals of one call.
        self.at_once = 0
        self.first_return = 0
        self.most_refused = 0
        self.longest_us: Micros = 0
        #: The longest Retry-After of a caller that obeys.
        self.longest_told_us: Micros = 0
        self.admitted_slots = [0.0] * slots
        self.offered_slots = [0.0] * slots


class World:
    """A clock, a heap of what happens next, and everybody's account."""

    def __init__(self, gate: Gate, seed: int, seconds: float, measure_from: float) -> None:
        self.gate = gate
        self.random = Random(seed)
        self.accounts: dict[str, Account] = {}
        self.end_us: Micros = int(seconds * SECOND)
        self.since_us: Micros = int(measure_from * SECOND)
        self.deepest_debt = 0.0
        #: Attempts of everybody, in slots.
        self.attempts = [0] * (self.end_us // SLOT_US + 1)
        self._heap: list[tuple[Micros, float, int, Step]] = []
        self._order = 0

    def account(self, tenant: str) -> Account:
        """Return the account of `tenant`, opening it."""
        account = self.accounts.get(tenant)
        if account is None:
            account = self.accounts[tenant] = Account(tenant, self.end_us // SLOT_US + 1)
        return account

    def at(self, when: Micros, step: Step) -> None:
        """Let `step` happen at `when`; what happens in one instant does so in random order.

        Attempts can be nearer than a microsecond to each other: an order of asking would favour some of them.
        """
        self._order += 1
        heappush(self._heap, (when, self.random.random(), self._order, step))

    def run(self) -> None:
        """Let everything happen up to the end."""
        heap, end = self._heap, self.end_us
        self.gate.begin(self)
        while heap:
            when, _, _, step = heappop(heap)
            if when >= end:
                break
            step(when)

    def attempt(self, account: Account, plan: Plan, now: Micros) -> Reading:
        """Ask the gate once and keep the books."""
        reading = self.gate.take(plan, now)
        self.attempts[now // SLOT_US] += 1
        if not reading.refused:
            account.admitted_slots[now // SLOT_US] += plan.cost
        if now >= self.since_us:
            account.attempts += 1
            if reading.refused:
                account.refused[reading.refused[0].limit] += 1
                account.beyond += reading.beyond_own
                account.within += _within(reading)
            else:
                account.admitted += plan.cost
                account.by_class[plan.cls] += plan.cost
        return reading


def _within(reading: Reading) -> bool:
    """Return whether telemetry counts a refusal as one within the share."""
    return reading.refused[0].limit == "backstop" and not (reading.beyond_own or reading.share_over)
