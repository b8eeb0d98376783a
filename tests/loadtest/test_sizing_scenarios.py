"""Lives of a key in simulated time, each with what must come of it."""

from __future__ import annotations

import math

import pytest

from gateway.history.peaks import KeyPeaks
from loadtest.sizing.scenarios import SCENARIOS, organic_growth, saturating

__all__: list[str] = []

pytestmark = pytest.mark.untraced

_SMALL = {"organic-growth": lambda: organic_growth(8), "saturating, across an hour": lambda: saturating(2, 2700)}


@pytest.mark.parametrize("name", SCENARIOS)
def test_scenario(name: str, request: pytest.FixtureRequest) -> None:
    """It holds; the long ones are shortened here (`python -m loadtest.sizing` runs them whole)."""
    outcome = _SMALL.get(name, SCENARIOS[name])()
    assert outcome.ok, outcome.figures


def test_without_the_rule_of_the_hour_a_limit_ratchets(monkeypatch: pytest.MonkeyPatch) -> None:
    """The negative control: were nothing censored, whoever takes all it has would get more every day."""
    measured = KeyPeaks.add

    def blind(
        self: KeyPeaks, at: int, units: float, second: float, offered: float, *, refused: bool, own: bool, quota: float
    ) -> None:
        measured(self, at, units, second, offered, refused=False, own=False, quota=math.inf)

    monkeypatch.setattr(KeyPeaks, "add", blind)
    assert saturating(1).figures["drift"] > 2.5
