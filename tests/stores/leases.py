"""Leases without a store or a loop: turns that are made by hand, and a ledger that is the kernels themselves.

So the clock stands until a test moves it, and what the store would say is what the kernel says (that the scripts say
the same is another test's).
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Callable, Sequence
from itertools import count

from gateway.stores.leased.ledger import Asked, Claim
from gateway.stores.leased.places import SEATS_FOR
from gateway.stores.leased.store import LeasedStore
from gateway.stores.leased.waiting import Turns
from gateway.stores.link import StoreFault
from gateway.stores.memory import Backstop
from gateway.stores.names import Names
from policies.charge import Plan, Reading
from policies.kernels import lease as kernel
from policies.kernels import seats
from policies.kernels.fairshare import Shares
from policies.kernels.lease import Grant
from policies.kernels.seats import Room
from policies.policy import PolicySet
from policies.units import SECOND, Micros, RequestUnits
from tests.clock import StandingClock

__all__ = ["HandTurns", "KernelLedger", "Patient", "opened"]


class _Later:
    def __init__(self, callback: Callable[[], object]) -> None:
        self.callback: Callable[[], object] | None = callback

    def cancel(self) -> None:
        self.callback = None


class HandTurns:
    """A loop that a test turns. Whoever is to be called later is called when `clock` says so."""

    def __init__(self, clock: StandingClock) -> None:
        self.clock = clock
        self.soon: deque[Callable[[], object]] = deque()
        self._later: list[tuple[Micros, int, _Later]] = []
        self._numbers = count()

    def call_soon(self, callback: Callable[[], object], /) -> object:
        """Call in the next turn."""
        self.soon.append(callback)
        return None

    def call_later(self, delay: float, callback: Callable[[], object], /) -> _Later:
        """Call when that time has passed."""
        timer = _Later(callback)
        heapq.heappush(self._later, (self.clock.at + int(delay * SECOND), next(self._numbers), timer))
        return timer

    def turn(self) -> bool:
        """Make one turn; return whether there was anything to do."""
        due = [self.soon.popleft() for _ in range(len(self.soon))]
        while self._later and self._later[0][0] <= self.clock.at:
            timer = heapq.heappop(self._later)[2]
            if timer.callback is not None:
                due.append(timer.callback)
        for callback in due:
            callback()
        return bool(due)

    def settle(self) -> None:
        """Turn until nothing is left to do now."""
        while self.turn():
            pass


class KernelLedger:
    """Buckets and seats of record, by the kernels, for one of several processes that share `records`."""

    def __init__(self, turns: Turns, clock: StandingClock, records: dict[bytes, object] | None = None) -> None:
        self._turns = turns
        self._clock = clock
        self.records = {} if records is None else records
        self.process = 1
        self.up = True
        #: Calls made; what is answered instead; whether what was charged is told too late, or nothing at all happens.
        self.calls = 0
        self.overdues = 0
        self.fault: StoreFault | None = None
        self.silent = False
        self.swallows = False
        #: How far the store's clock is ahead of ours.
        self.ahead: Micros = 0
        self.asked: list[Asked] = []
        self.claims: list[Claim] = []
        #: What was charged and could not be told in time.
        self.late: list[Callable[[], None]] = []

    def group(self, key: bytes) -> int:
        """Let everything be asked for together."""
        return 0

    def lease(
        self,
        asked: Sequence[Asked],
        dearest: RequestUnits,
        answer: Callable[[list[Grant] | StoreFault], None],
        late: Callable[[list[Grant]], None],
    ) -> None:
        """Lease, and answer in the next turn."""
        self.calls += 1
        self.asked += asked
        if self.swallows:
            return
        fault = self.fault
        if fault is not None:
            self._turns.call_soon(lambda: answer(fault))
            return
        grants = [self._step(one, dearest) for one in asked]
        if self.silent:
            self.late.append(lambda: late(grants))
            self._turns.call_soon(lambda: answer(StoreFault("timeout", "")))
        else:
            self._turns.call_soon(lambda: answer(grants))

    def _step(self, one: Asked, dearest: RequestUnits) -> Grant:
        now = self._clock.now() + self.ahead
        record = self.records.get(one.key)
        assert record is None or isinstance(record, kernel.Record)
        found = kernel.prepare(record, one.rate_us, one.burst, one.want, dearest, now)
        self.records[one.key] = found
        return kernel.lease(found, self.process, one.want, now)

    def overdue(self) -> None:
        """Count it."""
        self.overdues += 1

    def seat(
        self,
        claims: Sequence[Claim],
        answer: Callable[[list[Room] | StoreFault], None],
        late: Callable[[list[Room]], None],
    ) -> None:
        """Seat, and answer in the next turn."""
        self.calls += 1
        self.claims += claims
        fault = self.fault
        if fault is not None:
            self._turns.call_soon(lambda: answer(fault))
            return
        rooms = []
        for claim in claims:
            table = self.records.setdefault(claim.key, [])
            assert isinstance(table, list)
            rooms.append(
                seats.allowance(table, self.process, claim.held, claim.want, claim.limit, SEATS_FOR, self._clock.now())
            )
        if self.silent:
            self.late.append(lambda: late(rooms))
            self._turns.call_soon(lambda: answer(StoreFault("timeout", "")))
        else:
            self._turns.call_soon(lambda: answer(rooms))


class Patient:
    """A leased store as whoever waits for it sees it: `take` asks first, and turns until it is answered."""

    def __init__(self, store: LeasedStore, turns: HandTurns) -> None:
        self.store = store
        self._turns = turns
        self._clock = turns.clock

    def take(self, plan: Plan, now: Micros) -> Reading:
        """Ask, wait, take."""
        self._clock.at = now
        self._turns.settle()
        told = [0]

        def resume() -> None:
            told[0] += 1

        if self.store.ask(plan, now, resume) is not None:
            while not told[0]:
                assert self._turns.turn(), "nobody resumes whoever waits"
            self._turns.settle()
            assert told == [1]
            assert self.store.knows(plan, now)
        return self.store.take(plan, now)

    def give_back(self, plan: Plan, now: Micros, reading: Reading | None = None) -> None:
        """As the store."""
        self.store.give_back(plan, now, reading)

    def release(self, plan: Plan) -> None:
        """As the store."""
        self.store.release(plan)

    def rebuild(self, policies: PolicySet, now: Micros) -> None:
        """As the store."""
        self.store.rebuild(policies, now)


def opened(
    policies: PolicySet,
    clock: StandingClock,
    *,
    max_keys: int = 1000,
    turns: HandTurns | None = None,
    ledger: KernelLedger | None = None,
    backstop: Backstop | None = None,
) -> tuple[LeasedStore, HandTurns, KernelLedger]:
    """Return a leased store on kernels, with what turns it."""
    turns = turns or HandTurns(clock)
    ledger = ledger or KernelLedger(turns, clock)
    allowed = policies.backstop
    shares = backstop or Shares(
        allowed.rate.per_us, allowed.burst, policies.classes, policies.unlisted_weight, clock.now(),
        policies.max_unlisted_tenants,
    )  # fmt: skip
    store = LeasedStore(
        policies, ledger, Names("test"), shares, turns, clock.now, max_keys=max_keys, deadline=SECOND // 50
    )
    return store, turns, ledger
