"""A leased store that knows what it is told to know, and a state that a test sets."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from gateway.stores.memory import MemoryStore
from policies.charge import Charge, Plan
from policies.policy import PolicySet
from policies.units import SECOND, Micros

__all__ = ["FakeLeased", "FakeState"]


@dataclass
class FakeState:
    """Whether the store answers."""

    up: bool = True
    cause: str = ""
    errors: dict[str, int] = field(default_factory=dict)

    def lose(self, cause: str = "timeout") -> None:
        self.up, self.cause = False, cause


class FakeLeased(MemoryStore):
    """Decides in memory while the state is up. What it knew at 0 is of buckets that take a second to fill."""

    def __init__(self, policies: PolicySet, state: FakeState, now: Micros = 0) -> None:
        super().__init__(policies, 1000, now)
        self.state = state
        self.parts: dict[str, float] = {}
        self.owes: dict[str, float] = {}
        self.whole = 1.0
        #: Whether it holds leases of everything.
        self.holds = False
        #: Whether it knows nothing although the store is up.
        self.deaf = False
        self.count = 1
        self.told: list[tuple[str, float]] = []
        #: Buckets charged at once; holders with a seat that is certainly free.
        self.owing: list[str] = []
        self.free: set[str] = set()

    def knows(self, plan: Plan, now: Micros) -> bool:
        return (self.state.up or self.holds) and not self.deaf

    def ask(self, plan: Plan, now: Micros, resume: Callable[[], None]) -> Callable[[], None] | None:
        return None

    def part(self, bucket: str) -> float:
        return self.parts.get(bucket, 0.0)

    def backstop_part(self) -> float:
        return self.whole

    def processes(self) -> int:
        return self.count

    def owed(self, bucket: str, now: Micros) -> float:
        return max(0.0, self.owes.get(bucket, 0.0) - now / SECOND)

    def in_use(self, holder: str) -> int:
        cell = self._seats._by_holder.get(holder)
        return cell.held if cell is not None else 0

    def occupy(self, plan: Plan, now: Micros) -> None:
        for seat in plan.seats:
            self._seats.find(seat.holder, seat.seats, 0).held += 1

    def seat_free(self, holder: str, now: Micros) -> bool:
        return holder in self.free

    def owe(self, plan: Plan, now: Micros) -> None:
        self.owing += [charge.bucket for charge in plan.own]

    def forgive(self, charge: Charge) -> None:
        if charge.bucket in self.owing:
            self.owing.remove(charge.bucket)

    def spent(self, charge: Charge, units: float, now: Micros) -> None:
        self.told.append((charge.bucket, units))
