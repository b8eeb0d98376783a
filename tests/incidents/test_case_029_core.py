"""Case 29, the decision: the long-run admitted rate is the configured rate, whatever the jitter of the loop."""

from __future__ import annotations

import pytest

from tests.incidents.simulated import Simulated, jittered
from tests.policies.documents import acme, credential, policy_set, quota, tenants, user

__all__: list[str] = []


@pytest.mark.parametrize("rate", [0.5, 3, 7, 10, 333, 1000])
def test_long_run_rate_is_within_one_percent(rate: float) -> None:
    """1.5 times the rate for 300 s, each arrival up to 50 ms late: within 1 % of rate x time + burst."""
    allowed = quota(rate, max(rate, 10.0))
    gateway = Simulated(policy_set(tenants=tenants(acme(credential("ci", allowed))), backstop=quota(10**5, 10**5)))
    # The two fast ones are not offered longer than it takes to see 1 %.
    seconds = 300 if rate < 100 else 60
    offered = jittered(rate * 1.5, seconds, jitter=50_000)
    admitted = sum(gateway.ask(user(), now).admitted for now in offered)
    assert admitted == pytest.approx(min(len(offered), rate * seconds + allowed.burst), rel=0.01, abs=1)
