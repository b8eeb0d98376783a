"""The water level: the kernel's cells against exact water-filling."""

from __future__ import annotations

from random import Random

import pytest

from policies.kernels.waterfill import LIFE_US, SLICE, Ratio, Waterline
from policies.units import SECOND
from tests.clock import EPOCH
from tests.oracle import exact_maxmin

__all__: list[str] = []

TICK = SECOND // 10


def fed(line: Waterline, demands: list[tuple[Ratio, float]], ticks: int = 30) -> int:
    """Let each ratio want its units a second for so many ticks; return the instant after."""
    now = EPOCH
    for tick in range(ticks):
        now = EPOCH + (tick + 1) * TICK
        for ratio, demand in demands:
            line.want(ratio, demand / 10, now - TICK // 2)
        line.solve(1.0, now)
    return now


@pytest.mark.parametrize("tenants", [1, 2, 10, SLICE - 1])
@pytest.mark.parametrize("scarcity", [0.1, 0.5, 0.99])
def test_level_is_that_of_exact_water_filling(tenants: int, scarcity: float) -> None:
    """Whatever the weights and demands, the level is within 1 % of the exact one."""
    random = Random(tenants)
    line = Waterline(1.0, EPOCH)
    demands = [(Ratio(random.choice((0.5, 1.0, 3.0))), random.lognormvariate(3.0, 1.5)) for _ in range(tenants)]
    line.weight = sum(ratio.weight for ratio, _ in demands)
    now = fed(line, demands)
    supply = scarcity * sum(demand for _, demand in demands)
    line.solve(supply / SECOND, now)
    weights = [ratio.weight for ratio, _ in demands]
    parts = exact_maxmin([demand for _, demand in demands], weights, supply)
    level = max(float(part) / weight for part, weight in zip(parts, weights, strict=True))
    assert line.contended
    assert line.level * SECOND == pytest.approx(level, rel=0.01)
    assert line.deep == pytest.approx(line.level * SECOND / 4)


def test_more_tenants_than_one_slice_are_folded_in_all_the_same() -> None:
    """With three slices of tenants that ask at random moments, the level is near the exact one."""
    random = Random(5)
    line = Waterline(1.0, EPOCH)
    ratios = [Ratio(1.0) for _ in range(3 * SLICE)]
    line.weight = float(len(ratios))
    for tick in range(40):
        for place, ratio in enumerate(random.sample(ratios, len(ratios))):
            line.want(ratio, 1.0, EPOCH + tick * TICK + place * TICK // len(ratios))
        line.solve(1.0, EPOCH + (tick + 1) * TICK)
    line.solve(5 * len(ratios) / SECOND, EPOCH + 40 * TICK)
    assert line.demand * SECOND == pytest.approx(10 * len(ratios), rel=0.05)
    assert line.level * SECOND == pytest.approx(5, rel=0.05)


def test_below_capacity_the_level_is_the_highest_and_a_part_of_what_is_free() -> None:
    """Ten want 10/s each of 200/s: the level is 10 and a tenth of the rest, and a share bucket stays small."""
    line = Waterline(1.0, EPOCH)
    demands = [(Ratio(1.0), 10.0) for _ in range(10)]
    line.weight = 10.0
    now = fed(line, demands)
    line.solve(200 / SECOND, now)
    assert not line.contended
    assert line.level * SECOND == pytest.approx(20, rel=0.03)
    assert line.deep == 0.0


def test_light_demand_counts_in_full() -> None:
    """Demand that is not followed one by one leaves that much less to the others."""
    line = Waterline(1.0, EPOCH)
    heavy = [(Ratio(1.0), 100.0) for _ in range(2)]
    line.weight = 2.0
    now = EPOCH
    for tick in range(30):
        now = EPOCH + (tick + 1) * TICK
        for ratio, demand in heavy:
            line.want(ratio, demand / 10, now)
        line.light += 6.0
        line.solve(100 / SECOND, now)
    assert line.demand * SECOND == pytest.approx(260, rel=0.01)
    assert line.level * SECOND == pytest.approx(50, rel=0.01), "never less than an even part for everybody"
    line.solve(160 / SECOND, now)
    assert line.level * SECOND == pytest.approx(80, rel=0.01)
    line.solve(120 / SECOND, now)
    assert line.level * SECOND == pytest.approx(60, rel=0.01)


def test_demand_is_forgotten() -> None:
    """Of demand that ended, 0.7 is left after 100 ms, and the cell of a tenant ends with it."""
    line = Waterline(1.0, EPOCH)
    ratio = Ratio(1.0)
    line.weight = 1.0
    now = fed(line, [(ratio, 100.0)])
    line.solve(1.0, now + TICK)
    assert line.demand * SECOND == pytest.approx(70, rel=0.01)
    line.solve(1.0, now + LIFE_US)
    assert line.demand == 0.0
    ratio.leave()
    ratio.leave()
    line.want(ratio, 1.0, now + LIFE_US)
    line.solve(1.0, now + LIFE_US)
    assert line.demand > 0.0


def test_instant_that_steps_back_changes_nothing() -> None:
    """Solved for an older instant, virtual time stands."""
    line = Waterline(1.0, EPOCH)
    line.weight = 1.0
    now = fed(line, [(Ratio(1.0), 10.0)])
    virtual = line.virtual(now)
    line.solve(1.0, now - SECOND)
    assert line.virtual(now) == virtual
