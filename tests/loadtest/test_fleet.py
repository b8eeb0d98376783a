"""One backstop over four processes, in simulated time: tenants get what they would get from one."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import pytest

from loadtest.scenarios.catalogue import CATALOGUE
from loadtest.sim.figures import Figures
from loadtest.sim.fleet import Fleet, FleetGate, simulate_fleet
from loadtest.sim.model import Arrivals, Rate, Scenario, TenantLoad
from policies.units import SECOND

__all__: list[str] = []

pytestmark = pytest.mark.untraced

SKEWED = (0.9, 0.0334, 0.0333, 0.0333)
FIRST, SECOND_ONLY, LAST_TWO = (1.0, 0.0, 0.0, 0.0), (0.0, 1.0, 0.0, 0.0), (0.0, 0.0, 0.5, 0.5)

#: A fifth of the busy hour, so that it takes a fifth of the time: 18 at 5/s beside 4 at 400/s, of 400/s.
BUSY = Scenario(
    name="busy-fifth",
    about="a fifth of the busy hour",
    backstop=Rate(400),
    tenants=(
        *(TenantLoad(f"small-{at}", (Arrivals(5.0),), group="small") for at in range(18)),
        *(TenantLoad(f"large-{at}", (Arrivals(400.0),), group="large") for at in range(4)),
    ),
    seconds=14.0,
    measure_from=4.0,
)


@cache
def ran(name: str, fleet_name: str) -> tuple[Figures, FleetGate]:
    """Return the figures of a run, which several tests look at."""
    scenario = BUSY if name == "busy" else CATALOGUE[name]
    return simulate_fleet(scenario, FLEETS[fleet_name])


FLEETS = {
    "even": Fleet(),
    "skewed": Fleet(spread={"small": SKEWED, "large": SKEWED}),
    "large skewed": Fleet(spread={"large": SKEWED}),
    "large on one": Fleet(spread={"large": FIRST}),
    "each on one": Fleet(spread={"large": FIRST, "small": SECOND_ONLY}),
    "slow store": Fleet(spread={"large": SKEWED}, round_trip=0.02),
    "one dies": Fleet(dies={2: 7.0}),
    "one joins": Fleet(joins={3: 7.0}),
    "backfill on one": Fleet(spread={"backfill": FIRST}),
    "weights apart": Fleet(spread={"weight 1": FIRST, "weight 2": LAST_TWO, "weight 5": SKEWED}),
    "fixed": Fleet(spread={"small": SKEWED, "large": SECOND_ONLY}, fixed=True),
}
BUSY_FLEETS = ("even", "skewed", "large skewed", "large on one", "each on one", "slow store", "one dies", "one joins")


@pytest.mark.parametrize("fleet", BUSY_FLEETS)
def test_busy_hour_is_as_fair_as_in_one_process(fleet: str) -> None:
    """Small tenants lose nothing, large ones are within 5 % of exact max-min of the whole, and all of it is used."""
    figures, gate = ran("busy", fleet)
    assert figures.lowest_call_success("small") >= 0.98
    assert figures.call_success("small") >= 0.999
    assert figures.off_fair("large") <= 0.05
    assert figures.utilisation >= (0.94 if fleet == "one dies" else 0.97)
    assert figures.over_admission == 0.0
    assert figures.debt <= figures.debt_bound + 5.0 * 4
    assert gate.leased <= 1.0 + 1e-9
    assert gate.server.commands / BUSY.seconds / 4 <= 20.0


@pytest.mark.parametrize("fleet", ["even", "backfill on one"])
def test_backfill_hurts_nobody(fleet: str) -> None:
    """The recorded night over four processes: light tenants at 99.5 % and above."""
    figures, _ = ran("backfill", fleet)
    assert figures.lowest_call_success("light") >= 0.995


def test_weights_hold_wherever_callers_are() -> None:
    """Tenants of weight 1, 2 and 5 in different processes get 1, 2 and 5 parts of the whole."""
    figures, _ = ran("weights", "weights apart")
    assert max(figures.off_fair(f"weight {weight}") for weight in (1, 2, 5)) <= 0.05


def test_level_is_agreed_within_two_ticks() -> None:
    """When 92 tenants return at once, processes are within a fifth of each other 300 ms later; nobody is refused."""
    fleet = Fleet(spread={"large": SKEWED})
    scenario = CATALOGUE["flash-return"]
    figures, gate = simulate_fleet(replace(scenario, seconds=scenario.changes[0] + 3.0), fleet)
    changed = int(scenario.changes[0] * SECOND)
    assert figures.lowest_call_success("back") == 1.0
    spread = [max(levels) / min(levels) for at, levels in gate.levels if changed + 300_000 <= at < changed + 2 * SECOND]
    # Every level, of processes with a few requests a second as well; on the whole they are closer.
    assert sorted(spread)[len(spread) // 2] <= 1.2
    assert max(spread) <= 1.5


def test_onset_of_a_heavy_tenant_in_one_process_refuses_nobody_else() -> None:
    """A tenant that begins at 3,000/s in one process takes from no light one, in the first half second either."""
    figures, _ = simulate_fleet(CATALOGUE["onset"], Fleet(spread={"heavy": FIRST}))
    assert figures.lowest_call_success("light") == 1.0


def test_fixed_parts_are_not_fair() -> None:
    """The control: with a quarter of the backstop for each process, what is wanted elsewhere is wasted."""
    figures, _ = ran("busy", "fixed")
    assert figures.utilisation < 0.75


def test_unlisted_tenants_share_across_processes() -> None:
    """With nobody listed and large tenants spread unevenly, small ones keep what is theirs.

    Each comes to each process with an empty bucket once, so its first request there may be refused.
    """
    scenario = replace(BUSY, tenants=tuple(replace(load, listed=False) for load in BUSY.tenants), unlisted_weight=22.0)
    figures, _ = simulate_fleet(scenario, FLEETS["large skewed"])
    assert figures.call_success("small") >= 0.994
    assert figures.utilisation >= 0.96
