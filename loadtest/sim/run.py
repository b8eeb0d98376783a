"""Run a scenario in simulated time."""

from __future__ import annotations

from loadtest.sim.callers import people
from loadtest.sim.figures import Figures, figures
from loadtest.sim.gate import Gate
from loadtest.sim.model import Mode, Scenario
from loadtest.sim.world import World

__all__ = ["simulate"]


def simulate(scenario: Scenario, mode: Mode = Mode.EVENHAND, seed: int = 1) -> Figures:
    """Return the figures of one run; the same arguments give the same figures."""
    world = World(Gate(scenario, mode), seed, scenario.seconds, scenario.measure_from)
    for load in scenario.tenants:
        people(world, load)
    world.run()
    return figures(world, scenario, mode, seed)
