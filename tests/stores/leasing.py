"""One process, or one of several, as far as its leases go: on the kernels, with a clock that a test moves."""

from __future__ import annotations

from collections.abc import Callable

from gateway.stores.leased.pockets import ROUND
from gateway.stores.leased.store import LeasedStore
from policies.charge import Plan
from policies.kernels import gcra
from policies.kernels import lease as kernel
from policies.units import Micros
from tests.clock import StandingClock
from tests.policies.documents import policy_set
from tests.stores.contract import charge, plan
from tests.stores.leases import HandTurns, KernelLedger, opened

__all__ = ["House", "key", "level"]


class House:
    """One process, or one of several on the same `records`; it asks, is resumed and takes as the pipeline does."""

    def __init__(self, clock: StandingClock, beside: House | None = None, max_keys: int = 1000) -> None:
        self.clock = clock
        self.turns: HandTurns = beside.turns if beside else HandTurns(clock)
        self.ledger: KernelLedger = KernelLedger(self.turns, clock, beside.ledger.records if beside else None)
        self.ledger.process = beside.ledger.process + 1 if beside else 1
        self.store: LeasedStore
        self.store, _, _ = opened(policy_set(), clock, turns=self.turns, ledger=self.ledger, max_keys=max_keys)
        self.waits: list[Micros] = []
        self.store.noted = self.waits.append
        self.admitted = self.refused = self.unknown = 0
        #: The waits of those refused.
        self.told: list[Micros] = []

    def send(self, asked: Plan) -> Callable[[], None] | None:
        """Let a request come; return what takes it back if it waits."""
        now = self.clock.now()
        pending = self.store.ask(asked, now, lambda: self.again(asked))
        if pending is None:
            self.decide(asked)
        return pending

    def again(self, asked: Plan) -> None:
        """Go on with a request that waited."""
        self.send(asked)

    def decide(self, asked: Plan) -> None:
        """Take, or note that nobody knows."""
        now = self.clock.now()
        if not self.store.knows(asked, now):
            self.unknown += 1
        elif refused := self.store.take(asked, now).refused:
            self.refused += 1
            self.told.append(refused[0].wait_us)
        else:
            self.admitted += 1

    def many(self, count: int, asked: Plan) -> None:
        """Let requests come at once, and all be answered."""
        for _ in range(count):
            self.send(asked)
        self.turns.settle()

    def rest(self, duration: Micros, *others: House) -> None:
        """Let time pass, with rounds every 20 ms."""
        end = self.clock.at + duration
        while self.clock.at < end:
            self.clock.at += ROUND // 5
            for house in (self, *others):
                house.store.tick(self.clock.at)
            self.turns.settle()


def key(rate: float = 10.0, burst: float = 20.0, cost: float = 1.0) -> Plan:
    """Return a plan of one key."""
    return plan(charge("key", rate, burst, cost), backstop=False)


def level(house: House) -> float:
    """Return what the only bucket of record owes now."""
    (record,) = house.ledger.records.values()
    assert isinstance(record, kernel.Record)
    return gcra.level_at(record.bucket, house.clock.at)
