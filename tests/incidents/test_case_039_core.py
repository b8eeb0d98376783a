"""Case 39, the decision: no limit, however small or however divided, is a permanent refusal."""

from __future__ import annotations

from fractions import Fraction

import pytest

from policies.policy import Characteristic, Exemption, Match, Policy
from policies.units import SECOND
from tests.clock import EPOCH
from tests.incidents.simulated import Simulated
from tests.policies.documents import acme, credential, policy_set, quota, tenants, user

__all__: list[str] = []


@pytest.mark.parametrize("rate", [Fraction(1, 86_400), Fraction(1, 3600), Fraction(1, 10), Fraction(3, 5)])
def test_smallest_bucket_admits_once_per_its_time(rate: Fraction) -> None:
    """A quota below one a second admits one each 1 / rate, in either class, a cost of 5 included."""
    name = Policy("narrow", Match(), (Characteristic.TENANT,), quota(rate, 1))
    for allowed in (quota(rate, 1), quota(100, 100)):
        gateway = Simulated(policy_set(tenants=tenants(acme(credential("ci", allowed))), policies=(name,)))
        now = 0
        for asked in (None, "batch", None, "batch"):
            verdict = gateway.ask(user(), now, asked)
            while not verdict.admitted:
                assert verdict.refusal is not None
                assert 0 < verdict.refusal.wait_us <= SECOND / rate + 1
                now += verdict.refusal.wait_us
                verdict = gateway.ask(user(), now, asked)
        assert now <= 3 * (SECOND / rate + 1)


def test_multiplier_keeps_a_token() -> None:
    """A multiplier scales rate and burst, and cannot make them less than they were."""
    lower = Exemption("lower", Match(tenant="acme"), "a mistake", "sre", EPOCH + SECOND, multiplier=0.1)
    gateway = Simulated(policy_set(tenants=tenants(acme(credential("ci", quota(1, 1)))), exemptions=(lower,)))
    assert gateway.plan(user()).own[0].burst == 1.0
    assert gateway.ask(user(), 0).admitted
