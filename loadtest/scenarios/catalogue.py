"""All scenarios, by name."""

from __future__ import annotations

from loadtest.scenarios import backfill, classes, overload, returns, waits
from loadtest.sim.model import Scenario

__all__ = ["CATALOGUE"]

CATALOGUE: dict[str, Scenario] = {
    scenario.name: scenario for module in (backfill, overload, returns, waits, classes) for scenario in module.SCENARIOS
}
