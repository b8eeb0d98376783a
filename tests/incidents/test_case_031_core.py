"""Case 31, the decision: time never flows backwards inside the limiter; a step costs nobody tokens and mints none."""

from __future__ import annotations

import time

import pytest

from gateway.clock import Clock
from policies.units import SECOND
from tests.incidents.simulated import Simulated
from tests.policies.documents import acme, credential, policy_set, quota, tenants, user

__all__: list[str] = []

STEPS = [-11 * SECOND, -3600 * SECOND, -2 * 86_400 * SECOND]


def _gateway() -> Simulated:
    return Simulated(policy_set(tenants=tenants(acme(credential("ci", quota(10, 20))))))


@pytest.mark.interpreted
@pytest.mark.parametrize("step", STEPS)
def test_step_of_the_wall_clock_is_not_seen(step: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """The gateway's clock runs on while the wall clock steps, so 8/s on a 10/s bucket is never refused."""
    clock = Clock()
    before, wall = clock.now(), time.time_ns()
    monkeypatch.setattr("gateway.clock._TIME_NS", lambda: wall + step * 1000)
    assert 0 <= clock.now() - before < 60 * SECOND
    assert clock.wall() == (wall + step * 1000) // 1000
    gateway = _gateway()
    assert all(gateway.ask(user(), clock.now() - before + number * SECOND // 8).admitted for number in range(80))


@pytest.mark.parametrize("step", STEPS)
def test_core_survives_a_clock_that_steps(step: int) -> None:
    """Even if instants step back: nothing is minted, no wait exceeds debt / rate, and it is as before afterwards."""
    gateway = _gateway()
    assert sum(gateway.ask(user(), 0).admitted for _ in range(30)) == 20
    for _ in range(10):
        verdict = gateway.ask(user(), step)
        assert not verdict.admitted
    assert sum(gateway.ask(user(), SECOND).admitted for _ in range(30)) == 10
    verdict = gateway.ask(user(), SECOND)
    assert verdict.refusal is not None
    assert 0 < verdict.refusal.wait_us <= 2 * SECOND
