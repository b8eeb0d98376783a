"""Case 55: everyone told the same instant. In simulated time, by the header that callers get."""

from __future__ import annotations

import pytest

from loadtest.scenarios.catalogue import CATALOGUE
from loadtest.sim.run import simulate

__all__: list[str] = []

CALLERS, RATE, BURST = 1_000, 100.0, 100.0


@pytest.mark.parametrize("tenants", [1, 10, 100, 1_000])
@pytest.mark.parametrize("seed", [1, 2, 3])
def test_told_waits_spread_a_herd(tenants: int, seed: int) -> None:
    """A thousand obedient callers: no wave above 1.3 x capacity, drained in 1.4 x ideal, nobody refused four times."""
    figures = simulate(CATALOGUE[f"retry-herd-{tenants}"], seed=seed)
    seconds = [sum(figures.attempts[first : first + 10]) for first in range(5, len(figures.attempts) - 10)]
    assert sum(row.served for row in figures.rows) == CALLERS
    assert max(seconds) <= 1.3 * RATE
    assert max(row.longest for row in figures.rows) <= 1.4 * (CALLERS - BURST) / RATE
    assert max(row.most_refused for row in figures.rows) <= 3
