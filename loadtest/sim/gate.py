"""The gate of the simulated service: the code that serves, driven by an argument instead of a clock.

Plans come from `policies.admit.Planner`, takes go to `gateway.stores.memory.MemoryStore`, waits are worded as the
gateway words them. Only the backstop differs by mode.
"""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from functools import partial

from gateway.stores.memory import MemoryStore
from loadtest.sim.model import Mode, Rate, Scenario, TenantLoad
from loadtest.sim.world import World
from policies.admit import Planner, judge
from policies.charge import Plan, Reading
from policies.kernels.fairshare import Shares
from policies.kernels.plain import PlainBackstop
from policies.policy import CredentialRules, PolicySet, Quota, Route, Sizing, TenantRules
from policies.problem import pushback
from policies.request import Class, Kind, Principal
from policies.units import SECOND, Micros
from policies.units import Rate as UnitRate

__all__ = ["TICK_US", "Gate"]

DAY: Micros = 86_400 * SECOND
#: The gateway's timer.
TICK_US: Micros = SECOND // 50


class Gate:
    """Own limits and a backstop, as `mode` has them."""

    def __init__(self, scenario: Scenario, mode: Mode) -> None:
        self.policies = _policies(scenario)
        self.mode = mode
        self._planner = Planner(self.policies)
        backstop = self.policies.backstop
        made = Shares if mode is Mode.EVENHAND else PlainBackstop
        self.backstop = made(
            backstop.rate.per_us, backstop.burst, self.policies.classes, self.policies.unlisted_weight, 0,
            self.policies.max_unlisted_tenants,
        )  # fmt: skip
        self.store = MemoryStore(self.policies, 1_000_000, 0, self.backstop)
        self.take = self.store.take
        self._routes = {route.cost: index for index, route in enumerate(self.policies.routes)}

    def begin(self, world: World) -> None:
        """Do from now on what the gateway's timer does, and look at the debt."""
        if self.shares is not None:
            world.at(0, partial(self._tick, world))

    def debt(self, now: Micros) -> float:
        """Return what the backstop owes."""
        return self.shares.view(now).debt if self.shares is not None else 0.0

    def _tick(self, world: World, now: Micros) -> None:
        self.store.tick(now)
        world.deepest_debt = max(world.deepest_debt, self.debt(now))
        world.at(now + TICK_US, partial(self._tick, world))

    @property
    def shares(self) -> Shares | None:
        """The fair backstop; None in the other modes."""
        return self.backstop if isinstance(self.backstop, Shares) else None

    def plan(self, tenant: str, key: int, cls: Class, cost: float, *, listed: bool) -> Plan:
        """Return what a call asks of the store."""
        principal = Principal(Kind.USER, tenant, f"key-{key}", highest=Class.INTERACTIVE, listed=listed)
        plan = self._planner.plan(principal, cls, self._routes[cost], "sim")
        return replace(plan, own=()) if self.mode is Mode.SHARED_BUCKET else plan

    def told(self, plan: Plan, reading: Reading, now: Micros, jitter: float) -> Micros | None:
        """Return how long a refused caller is told to stay away: Retry-After, in whole seconds."""
        verdict = judge(plan, reading, now, jitter)
        after = pushback(verdict.refusal, verdict.retry_us) if verdict.refusal is not None else 0
        return None if after is None else after * SECOND


def _quota(rate: Rate) -> Quota:
    burst = rate.burst or max(rate.per_second, min(10.0, rate.per_second), 1.0)
    return Quota(UnitRate(Fraction(rate.per_second).limit_denominator(1_000_000)), burst)


def _tenant(load: TenantLoad) -> TenantRules:
    quota = _quota(load.quota) if load.quota else None
    return TenantRules(
        load.id,
        weight=load.weight,
        quota=_quota(load.tenant_quota) if load.tenant_quota else None,
        credentials={f"key-{key}": CredentialRules(f"key-{key}", quota) for key in range(load.keys)},
    )


def _policies(scenario: Scenario) -> PolicySet:
    """Return the documents that an operator would have written for this service."""
    some = _quota(Rate(20.0))
    costs = sorted({getattr(callers, "cost", 1.0) for load in scenario.tenants for callers in load.callers})
    listed = [load for load in scenario.tenants if load.listed]
    weight = scenario.unlisted_weight
    return PolicySet(
        classes=scenario.classes,
        default_class=Class.INTERACTIVE,
        backstop=_quota(scenario.backstop),
        anonymous=some,
        anonymous_weight=1.0,
        rejected=some,
        preflight=some,
        sizing=Sizing(some, some, 30 * DAY, 10 * SECOND, 2.0, 7 * DAY, 0.5, 1.25, 3.0, 0.9),
        unlisted_weight=max(1.0, sum(load.weight for load in listed)) if weight is None else weight,
        max_unlisted_tenants=scenario.max_unlisted,
        tenants={load.id: _tenant(load) for load in listed},
        routes=tuple(Route(f"cost-{cost:g}", f"/cost/{cost:g}", cost=cost) for cost in costs),
    )
