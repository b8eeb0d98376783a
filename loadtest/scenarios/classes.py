"""Scenarios of two classes inside one tenant."""

from __future__ import annotations

from loadtest.scenarios.overload import large, small
from loadtest.sim.model import Arrivals, Check, Loop, Mode, Rate, Scenario, TenantLoad, hammer
from policies.request import Class

__all__ = ["SCENARIOS"]

BATCH = Class.BATCH


def _key(name: str, about: str, callers: tuple[Loop, ...], checks: tuple[Check, ...]) -> Scenario:
    return Scenario(
        name=name,
        about=about,
        backstop=Rate(2_000),
        tenants=(*small(20), TenantLoad("mixed", callers, quota=Rate(100))),
        seconds=40.0,
        measure_from=10.0,
        checks=checks,
    )


def _of(cls: Class, callers: int = 20) -> Loop:
    return Loop(callers, hammer(0.02), cls=cls)


SCENARIOS = (
    _key(
        "batch-alone",
        "batch calls alone on a key of 100/s, with capacity to spare",
        (_of(BATCH),),
        (Check("batch uses its key's quota", lambda f: f.rate("mixed"), 99.0, 104.0, unit="/s"),),
    ),
    _key(
        "batch-floor",
        "batch calls beside interactive ones that would use the whole key",
        (_of(BATCH), _of(Class.INTERACTIVE)),
        (
            Check("both together use the quota", lambda f: f.rate("mixed"), 99.0, 104.0, unit="/s"),
            Check("batch keeps its floor of 5 %", lambda f: f.rate("mixed", BATCH), 4.9, 8.0, unit="/s"),
        ),
    ),
    Scenario(
        name="batch-floor-share",
        about="batch beside saturating interactive inside a fair share: no own limit, nineteen others as busy",
        backstop=Rate(2_000),
        tenants=(*small(92), TenantLoad("mixed", (_of(BATCH), _of(Class.INTERACTIVE))), *large(19)),
        seconds=40.0,
        measure_from=10.0,
        checks=(
            Check("the tenant gets one share", lambda f: f.group("mixed")[0].against_fair, 0.95, 1.05),
            Check("batch keeps 5 % of it, at least", lambda f: f.rate("mixed", BATCH) / f.rate("mixed"), 0.049, 0.1),
            Check("worst small tenant per call", lambda f: f.lowest_call_success("small"), least=1.0),
        ),
    ),
    Scenario(
        name="priority-alone",
        about="keys alone at their full 10/s: all batch, all interactive, half and half; then the service at 60 %",
        backstop=Rate(100),
        tenants=(
            TenantLoad("batch", (Arrivals(10, even=True, cls=BATCH),), quota=Rate(10, burst=20)),
            TenantLoad("interactive", (Arrivals(10, even=True),), quota=Rate(10, burst=20)),
            TenantLoad("half", (Arrivals(5, even=True, cls=BATCH), Arrivals(5, even=True)), quota=Rate(10, burst=20)),
            TenantLoad("rest", (Arrivals(30, even=True, start=20.0),), quota=Rate(40)),
        ),
        seconds=40.0,
        measure_from=0.0,
        checks=(Check("calls served, all tenants", lambda f: f.per_call, least=1.0),),
        modes=(Mode.EVENHAND,),
    ),
)
