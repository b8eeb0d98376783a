"""Lives of a key in simulated time, each with what must come of it."""

from __future__ import annotations

import pytest

from loadtest.sizing.scenarios import SCENARIOS, organic_growth, saturating

__all__: list[str] = []

_SMALL = {"organic-growth": lambda: organic_growth(8), "saturating, across an hour": lambda: saturating(2, 2700)}


@pytest.mark.parametrize("name", SCENARIOS)
def test_scenario(name: str, request: pytest.FixtureRequest) -> None:
    """It holds; the long ones are shortened here (`python -m loadtest.sizing` runs them whole)."""
    outcome = _SMALL.get(name, SCENARIOS[name])()
    assert outcome.ok, outcome.figures
