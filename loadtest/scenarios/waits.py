"""Scenarios of what is told to whom: a book of waits beside callers that do not keep their places in it."""

from __future__ import annotations

from loadtest.sim.figures import Figures
from loadtest.sim.model import OBEY, Arrivals, Check, Herd, Loop, Rate, Scenario, TenantLoad, hammer

__all__ = ["SCENARIOS"]

SERVICE = Rate(100)


def _first_return(figures: Figures) -> float:
    """Return which part of the calls that were refused at first got in when they first came back."""
    row = figures.rows[0]
    return row.first_return / (row.calls - row.served_at_once)


#: Five thousand attempts of one caller: each that is refused is booked as if it waited.
AFTER = Scenario(
    name="after-hammering",
    about="one caller asks every 1 ms for 5 s, all are silent for 10 s, then 200 obedient calls of its tenant at once",
    backstop=SERVICE,
    tenants=(TenantLoad("t0", (Arrivals(1_000, even=True, stop=5.0), Herd(200, OBEY, start=15.0))),),
    seconds=25.0,
    measure_from=14.9,
    checks=(
        Check("longest wait told", lambda f: f.rows[0].told, most=3.0, unit=" s"),
        Check("all served within", lambda f: f.rows[0].longest, most=3.0, unit=" s"),
        Check("calls served", lambda f: f.rows[0].served, least=200),
    ),
)

BESIDE = Scenario(
    name="obedient-beside-hammering",
    about="in one tenant, twenty callers obey and five ask every 2 ms; another tenant wants its share, too",
    backstop=SERVICE,
    tenants=(
        TenantLoad("mixed", (Loop(20, OBEY), Loop(5, hammer(0.002)))),
        TenantLoad("other", (Loop(50, OBEY),)),
    ),
    seconds=60.0,
    measure_from=10.0,
    checks=(
        Check("longest wait told in the mixed tenant", lambda f: f.rows[0].told, most=8.0, unit=" s"),
        Check("the other tenant, of exact share", lambda f: f.rows[1].against_fair, least=0.92),
        Check("utilisation", lambda f: f.utilisation, least=0.98),
    ),
)

SPREAD = Scenario(
    name="retry-herd-spread",
    about="1,500 obedient callers of one tenant within 5 s over 100/s",
    backstop=SERVICE,
    tenants=(TenantLoad("herd", (Arrivals(300, OBEY, stop=5.0),)),),
    seconds=40.0,
    measure_from=0.0,
    checks=(
        Check(
            "all served within, of the ideal", lambda f: f.rows[0].longest / ((f.rows[0].calls - 100) / 100), most=1.4
        ),
        Check("refusals of one call", lambda f: f.rows[0].most_refused, most=3),
        Check("in at their first return", _first_return, least=0.7),
    ),
)

CROWD = Scenario(
    name="obedient-crowd",
    about="twice the capacity arrives for two minutes, and all obey: within one minute that is found out",
    backstop=SERVICE,
    tenants=(TenantLoad("crowd", (Arrivals(200, OBEY),)),),
    seconds=110.0,
    measure_from=60.0,
    checks=(
        Check("longest wait told", lambda f: f.rows[0].told, least=50.0, most=60.0, unit=" s"),
        Check("attempts over calls", lambda f: f.rows[0].attempts / f.rows[0].calls, most=2.0),
        Check("utilisation", lambda f: f.rows[0].admitted / (100 * f.seconds), least=0.98),
    ),
)

SCENARIOS = (AFTER, BESIDE, SPREAD, CROWD)
