"""Case 25, the decision: a refusal costs nothing; steady over-rate converges to the configured rate."""

from __future__ import annotations

from collections import Counter

import pytest

from policies.units import SECOND
from tests.incidents.simulated import Simulated, jittered
from tests.policies.documents import acme, credential, policy_set, quota, tenants, user

__all__: list[str] = []


@pytest.mark.parametrize(("rate", "seconds", "expected"), [(10, 30, 155), (1000, 10, 55)])
def test_steady_over_rate_gets_the_rate(rate: int, seconds: int, expected: int) -> None:
    """5/s burst 5 offered twice and 200 times its rate: burst + rate x time, and each second its share."""
    gateway = Simulated(policy_set(tenants=tenants(acme(credential("ci", quota(5, 5))))))
    admitted = [now for now in jittered(rate, seconds) if gateway.ask(user(), now).admitted]
    assert len(admitted) == pytest.approx(expected, abs=5)
    per_second = Counter(now // SECOND for now in admitted)
    assert all(4 <= per_second[second] <= 6 for second in range(1, seconds))
