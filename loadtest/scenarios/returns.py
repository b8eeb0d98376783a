"""Scenarios of an instant: somebody starts, somebody comes back, everybody comes at once."""

from __future__ import annotations

from loadtest.scenarios.overload import large, small
from loadtest.sim.figures import Figures
from loadtest.sim.model import OBEY, Arrivals, Check, Herd, Loop, Rate, Scenario, TenantLoad, hammer

__all__ = ["SCENARIOS"]

HERD = 1_000
HERD_RATE = 100.0
#: What is not served from the stored burst takes this long at least.
HERD_IDEAL = (HERD - HERD_RATE) / HERD_RATE


def _returned_first(figures: Figures) -> float:
    """Return which part of the calls that were refused at first got in when they first came back."""
    calls = sum(row.calls for row in figures.rows)
    at_once = sum(row.served_at_once for row in figures.rows)
    return sum(row.first_return for row in figures.rows) / (calls - at_once)


def _busiest(figures: Figures) -> float:
    """Return the most attempts of one second after the first, over what a second can serve."""
    return max(sum(figures.attempts[first : first + 10]) for first in range(5, len(figures.attempts) - 10)) / HERD_RATE


def _herd(tenants: int) -> Scenario:
    loads = (TenantLoad(f"herd-{index:04}", (Herd(HERD // tenants, OBEY),), group="herd") for index in range(tenants))
    return Scenario(
        name=f"retry-herd-{tenants}",
        about=f"1,000 callers of {tenants} tenant(s) at once over 100/s, all doing as they are told",
        backstop=Rate(HERD_RATE),
        tenants=tuple(loads),
        seconds=30.0,
        measure_from=0.0,
        checks=(
            Check("calls served", lambda f: f.call_success("herd"), least=1.0),
            Check("drained in, of the ideal", lambda f: max(r.longest for r in f.rows) / HERD_IDEAL, most=1.4),
            Check("in at their first return", _returned_first, least=0.95),
            Check("refusals of one call", lambda f: max(row.most_refused for row in f.rows), most=3),
            Check("busiest second of returns, of capacity", _busiest, most=1.3),
        ),
    )


def _flash(name: str, about: str, newcomers: int) -> Scenario:
    return Scenario(
        name=name,
        about=about,
        backstop=Rate(2_000),
        tenants=(
            *(
                TenantLoad(f"back-{index:03}", (Herd(1, start=15.0),), group="back", quota=Rate(20, burst=20))
                for index in range(92)
            ),
            *large(20),
            *(
                TenantLoad(f"new-{index:03}", (Arrivals(400, start=15.0),), group="new", quota=Rate(500))
                for index in range(newcomers)
            ),
        ),
        seconds=20.0,
        measure_from=14.9,
        changes=(15.0,),
        checks=(
            Check("of the returning calls, served", lambda f: f.call_success("back"), least=1.0),
            Check("of them refused within the share", lambda f: f.within("back"), most=0),
            Check("of them refused at all", lambda f: sum(sum(r.refused.values()) for r in f.group("back")), most=0),
            Check("large ones counted as refused within their share", lambda f: f.within("large"), most=0),
            Check(
                "newcomers counted so, of each: less than a burst",
                lambda f: max((row.within for row in f.group("new")), default=0),
                most=20,
            ),
        ),
    )


LIGHT = tuple(
    TenantLoad(f"light-{index:03}", (Arrivals(15.0),), group="light", quota=Rate(60, burst=60)) for index in range(112)
)

ONSET = Scenario(
    name="onset",
    about="a tenant with a quota of 3,000/s starts beside 1,680/s of light traffic: the first half second",
    backstop=Rate(2_000),
    tenants=(*LIGHT, TenantLoad("heavy", (Loop(1_900, hammer(0.05), start=10.0),), quota=Rate(3_000))),
    seconds=10.5,
    measure_from=10.0,
    checks=(Check("worst light tenant per call", lambda f: f.lowest_call_success("light"), least=1.0),),
)

ONSET_LATER = Scenario(
    name="onset-later",
    about="a tenant with a quota of 3,000/s starts beside 1,680/s of light traffic: the ten seconds after",
    backstop=Rate(2_000),
    tenants=ONSET.tenants,
    seconds=20.0,
    measure_from=10.0,
    changes=(10.0,),
    checks=(
        Check("light tenants per call", lambda f: f.call_success("light"), least=0.999),
        Check("utilisation", lambda f: f.utilisation, least=0.98),
    ),
)

BUSY_RETURN = Scenario(
    name="flash-return-busy",
    about="92 tenants that were idle ask for 5/s each from one instant on, while 20 large ones are busy",
    backstop=Rate(2_000),
    tenants=(*small(92, start=15.0), *large(20)),
    seconds=25.0,
    measure_from=15.0,
    changes=(15.0,),
    checks=(Check("worst small tenant per call", lambda f: f.lowest_call_success("small"), least=1.0),),
)

SCENARIOS = (
    *(_herd(tenants) for tenants in (1, 10, 100, 1_000)),
    _flash("flash-return", "92 tenants return with one call each in one instant, while 20 are busy", 0),
    _flash(
        "flash-return-100",
        "92 tenants return with one call each while 20 are busy, and 100 heavy ones start in that instant",
        100,
    ),
    BUSY_RETURN,
    ONSET,
    ONSET_LATER,
)
