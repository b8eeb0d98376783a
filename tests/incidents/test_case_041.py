"""Case 41: one backfill refuses everybody. In simulated time, through the planner and the store that serve."""

from __future__ import annotations

import pytest

from loadtest.sim.model import Arrivals, Loop, Mode, Rate, Scenario, TenantLoad, hammer
from loadtest.sim.run import simulate

__all__: list[str] = []

CALLERS = 1_900


def night(seconds: float) -> Scenario:
    """Return 112 tenants at 10/s on buckets of 20/s, and one of 80/s with 1,900 callers that retry at once."""
    light = (TenantLoad(f"t{index}", (Arrivals(10),), group="light", quota=Rate(20)) for index in range(112))
    heavy = TenantLoad("x", (Loop(CALLERS, hammer(0.001), service=0.02),), quota=Rate(80))
    return Scenario("case-41", "one backfill", Rate(2_000), (*light, heavy), seconds=seconds, measure_from=0.0)


@pytest.mark.soak
def test_tenants_inside_their_buckets_are_unharmed(soak: bool) -> None:
    """Each of 112 keeps 99.9 %; the one is held to its bucket; raw success names it, in-profile success nobody."""
    seconds = 600.0 if soak else 60.0
    figures = simulate(night(seconds), Mode.EVENHAND)
    assert figures.lowest_call_success("light") >= 0.999
    heavy = figures.group("x")[0]
    assert heavy.admitted <= 80 + 80 * seconds + 1
    assert heavy.admitted >= 0.99 * 80 * seconds
    assert min(figures.rows, key=lambda row: row.served / row.attempts).tenant == "x"
    assert figures.worst is not None
    assert figures.worst.in_profile is not None
    assert figures.worst.in_profile >= 0.999
