"""Several histories on one real store, and the time they share."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gateway.config.sections import StoreSection
from gateway.history.keeper import TenantSlot
from gateway.history.shared.keeper import SharedHistory
from gateway.stores.calls import Calls
from policies.policy import PolicySet, Sized
from policies.request import Kind, Principal
from policies.units import SECOND
from tests.clock import StandingClock
from tests.gateway.history.kept import BEGIN, DAY, POLICIES
from tests.wire.redis import RedisCluster, RedisServer

__all__ = ["KEY", "LEASE_MS", "TENANT", "WHO", "Process", "Together", "leader", "rates"]

KEY, TENANT = "tenant=acme,credential=ci", "tenant=acme"
WHO = Principal(Kind.USER, "acme", "ci")
#: Longer than a busy machine keeps a test waiting.
LEASE_MS = 60_000


class Process:
    """One process's history, as far as a test looks at it."""

    def __init__(self, calls: Calls, clock: StandingClock, policies: PolicySet, lease_ms: int) -> None:
        self.applied: list[Mapping[str, Sized]] = []
        self.tenants: dict[tuple[int, str], int] = {}
        self.history = SharedHistory(calls, 1000, clock, lambda: policies, self.applied.append, lease_ms)
        self.history.tenants_now = lambda: (
            (clock.at // SECOND // 10, [("acme", self.tenants)]) if self.tenants else None
        )
        self.opened = self.history.open()
        self._clock = clock

    def _tenants_now(self) -> TenantSlot | None:
        return (self._clock.at // SECOND // 10, [("acme", self.tenants)]) if self.tenants else None


class Together:
    """Some processes on one store, and the time they share."""

    def __init__(
        self,
        server: RedisServer | RedisCluster,
        count: int = 2,
        policies: PolicySet = POLICIES,
        lease_ms: int = LEASE_MS,
    ) -> None:
        self.calls = Calls(StoreSection(url=server.url))
        self.clock = StandingClock(BEGIN * SECOND)
        self.policies = policies
        self.lease_ms = lease_ms
        #: Whether nobody keeps the lead from one turn to the next.
        self.restless = False
        self.processes: list[Process] = []
        for _ in range(count):
            self.join()
        self.to(BEGIN)

    @property
    def at(self) -> int:
        """The time in seconds."""
        return self.clock.at // SECOND

    def join(self) -> Process:
        """Start one more."""
        self.processes.append(Process(self.calls, self.clock, self.policies, self.lease_ms))
        return self.processes[-1]

    def to(self, at: int) -> None:
        """Let time pass, every data plane ticking and every writer taking turns until all is added up."""
        self.clock.at = at * SECOND
        for one in self.processes:
            one.history.meter.turn(at * SECOND)
        for _ in range(15):
            for one in self.processes:
                one.history._flushed = 0
                one.history._polled = 0
                one.history.turn(at)
                if self.restless:
                    self.calls.ask("DEL", one.history._records.lease)
            books = next((one.history._books for one in self.processes if one.history._books), None)
            if books is None or books.meta("folded") >= (at - 4) // 10 - 1:
                break

    def use(self, units: int, *, limit: str = "", who: Principal = WHO) -> None:
        """Note so many decisions, spread over the slot's seconds and over the processes, and let the slot end."""
        for number in range(units):
            one = self.processes[number % len(self.processes)]
            one.history.meter.note(who, 1.0, limit, (self.at + number * 10 // units) * SECOND)
        self.to(self.at + 10)

    def days(self, number: int, units: int) -> None:
        """Live through days as `Kept.days` does."""
        for _ in range(number):
            midnight = self.at // DAY * DAY
            self.to(midnight + 10 * 3600)
            for _ in range(7):
                self.use(units)
            for after in range(10 * 3600 + 600, 11 * 3600 + 2100, 1200):
                self.to(midnight + after)
            for after in (DAY + 1805, DAY + 1815):
                self.to(midnight + after)


def leader(all_of: Together) -> Process:
    """Return the one that leads."""
    (found,) = [one for one in all_of.processes if one.history.leads]
    return found


def rates(numbers: Mapping[str, Sized]) -> dict[str, Any]:
    """Return what matters of numbers."""
    return {name: (one.next_quota, one.quota, one.mode, one.terms, one.peak) for name, one in numbers.items()}
