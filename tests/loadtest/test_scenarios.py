"""The scenarios of the fair backstop hold what they say; and without it, or without any limits, they do not."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import pytest

from loadtest.report import holds
from loadtest.scenarios.catalogue import CATALOGUE
from loadtest.sim.figures import Figures
from loadtest.sim.model import Loop, Mode, Scenario, TenantLoad, hammer
from loadtest.sim.run import simulate
from loadtest.sim.soak import soak_mixes

__all__: list[str] = []

pytestmark = pytest.mark.untraced

#: In the suite the patient crowd of the wide night comes back every 50 ms: each attempt beyond the quota of 3,000/s is
#: refused and changes nothing, so more of them only take longer. `--soak` has the 5 ms of the scenario.
SUITE = hammer(0.05)
#: Scenarios in which one bucket for all must fail what the fair backstop holds.
CONTROLS = [name for name, scenario in CATALOGUE.items() if Mode.KEYS_ONLY in scenario.modes]


def patient(load: TenantLoad) -> TenantLoad:
    """Return `load` with its crowds coming back more seldom."""
    callers = (
        replace(some, retry=SUITE) if isinstance(some, Loop) and some.callers > 1_000 else some for some in load.callers
    )
    return replace(load, callers=tuple(callers))


def scenario_of(name: str, mode: Mode, *, soak: bool) -> Scenario:
    """Return a scenario as the suite runs it."""
    scenario = CATALOGUE[name]
    if soak or name != "backfill-wide" or mode is not Mode.EVENHAND:
        return scenario
    return replace(scenario, tenants=tuple(map(patient, scenario.tenants)))


@cache
def figures_of(name: str, mode: Mode, *, soak: bool) -> Figures:
    """Return the figures of a run, which several tests look at."""
    return simulate(scenario_of(name, mode, soak=soak), mode)


def runs() -> list[object]:
    """Return every scenario in each of its modes; the one that the suite makes smaller is in the soak, too."""
    return [
        pytest.param(name, mode, marks=[pytest.mark.soak] if name == "backfill-wide" else [])
        for name, scenario in CATALOGUE.items()
        for mode in scenario.modes
    ]


@pytest.mark.parametrize(("name", "mode"), runs())
def test_scenario_holds_what_it_says(name: str, mode: Mode, soak: bool) -> None:
    """Every line that a mode must hold, holds."""
    figures = figures_of(name, mode, soak=soak)
    assert [f"{check.says}: {value}" for check, value, held in holds(figures) if not held] == []
    if mode is Mode.EVENHAND:
        assert figures.debt <= figures.debt_bound + 5.0
        assert figures.over_admission <= figures.debt_bound


@pytest.mark.parametrize("name", CONTROLS)
def test_one_bucket_fails_what_the_fair_backstop_holds(name: str, soak: bool) -> None:
    """The control: with the sharing off, the same scenario fails at least one of the same lines."""
    unshared = figures_of(name, Mode.KEYS_ONLY, soak=soak)
    scenario = unshared.scenario
    same = replace(
        scenario,
        checks=tuple(replace(check, mode=Mode.KEYS_ONLY) for check in scenario.checks if check.mode is Mode.EVENHAND),
    )
    assert not all(held for _, _, held in holds(replace(unshared, scenario=same)))


@pytest.mark.soak
def test_no_refusal_by_share_in_random_mixes(soak: bool) -> None:
    """Arrivals that fit their share are never refused by it; by the backstop only with the debt at its bound.

    In mixes of up to C/80 tenants not even so; over all mixes of up to C/20, fewer than one in a thousand.
    """
    sums = soak_mixes(10_000_000 if soak else 200_000)
    assert sums.by_share == 0
    assert sums.sparse_backstop == 0
    assert sums.too_early == 0
    assert sums.by_backstop <= 0.001 * sums.fitting
    assert sums.fitting >= 0.1 * sums.asked
