"""The recorded night: one customer's backfill keeps 1,900 calls in flight beside 112 others.

The service does 2,000/s. The light tenants ask for 280/s together and wait 0.36 s for an answer; the backfill is
patient, and whoever is refused comes back every 5 ms or so. One bucket for all is drained by whoever asks most often,
so the light ones' part is that of their callers: three in ten calls, while nine in ten of all calls succeed.

`backfill` is the night with the backfill's own quota in force (its key allows 80/s). `backfill-wide` is the night in
which that quota, 3,000/s, is above what the service can do, so that no key bucket helps.
"""

from __future__ import annotations

from loadtest.sim.model import Arrivals, Check, Loop, Mode, Rate, Scenario, TenantLoad, hammer

__all__ = ["SCENARIOS"]

COMES_BACK = hammer(0.005)


def _light(index: int) -> TenantLoad:
    return TenantLoad(
        f"light-{index:03}",
        (Arrivals(280 / 112, retry=COMES_BACK, deadline=0.36),),
        group="light",
        quota=Rate(20, burst=20),
    )


def _night(name: str, about: str, heavy: Rate, checks: tuple[Check, ...], modes: tuple[Mode, ...]) -> Scenario:
    backfill = TenantLoad("backfill", (Loop(1_900, COMES_BACK, service=0.02),), quota=heavy)
    return Scenario(
        name=name,
        about=about,
        backstop=Rate(2_000),
        tenants=(*(_light(index) for index in range(112)), backfill),
        seconds=25.0,
        measure_from=5.0,
        checks=checks,
        modes=modes,
    )


SCENARIOS = (
    _night(
        "backfill",
        "one tenant with 1,900 calls in flight beside 112 light ones; its own quota is 80/s",
        Rate(80, burst=80),
        (
            Check("aggregate per call", lambda f: f.per_call, 0.88, 0.94, Mode.SHARED_BUCKET),
            Check("light tenants per call", lambda f: f.call_success("light"), 0.26, 0.34, Mode.SHARED_BUCKET),
            Check("worst light tenant per call", lambda f: f.lowest_call_success("light"), 0.999),
            Check("backfill, held to its quota", lambda f: f.rate("backfill"), 79.0, 84.1, unit="/s"),
        ),
        (Mode.SHARED_BUCKET, Mode.EVENHAND),
    ),
    _night(
        "backfill-wide",
        "the night of the backfill, its quota 3,000/s: above the backstop, so key buckets alone fail",
        Rate(3_000, burst=3_000),
        (
            Check("light tenants per call", lambda f: f.call_success("light"), most=0.5, mode=Mode.KEYS_ONLY),
            Check("worst light tenant per call", lambda f: f.lowest_call_success("light"), 0.999),
            Check("utilisation", lambda f: f.utilisation, 0.98),
        ),
        (Mode.KEYS_ONLY, Mode.EVENHAND),
    ),
)
