"""Case 37, the decision: 0 refuses everything and says so; absent is the documented default, never unlimited."""

from __future__ import annotations

import pytest

from policies.charge import NEVER
from policies.policy import Mode
from policies.sizing import effective_key
from policies.units import SECOND
from tests.incidents.simulated import Simulated
from tests.policies.documents import acme, credential, policy_set, quota, tenants, user

__all__: list[str] = []


@pytest.mark.parametrize("day", [0, 1, 400])
def test_zero_refuses_all(day: int) -> None:
    """`0/s` refuses, for ever, with no time to come back at; another key of the tenant is not touched."""
    gateway = Simulated(policy_set(tenants=tenants(acme(credential("ci", quota(0, 1)), credential("b", quota(1, 1))))))
    verdict = gateway.ask(user(), day * 86_400 * SECOND)
    assert verdict.refusal is not None
    assert (verdict.refusal.limit, verdict.refusal.wait_us, verdict.retry_us) == ("key", NEVER, 0)
    assert gateway.ask(user(name="b"), 0).admitted


def test_absent_is_sized_and_counted() -> None:
    """A credential without a quota has `[sizing] initial`, in shadow until learnt; it is counted, not unlimited."""
    policies = policy_set(tenants=tenants(acme(credential("ci"))), sizing=policy_set().sizing)
    assert effective_key(policies, user()).mode is Mode.SHADOW
    gateway = Simulated(policies)
    shadow = [len(gateway.ask(user(), 0).reading.shadow_refused) for _ in range(30)]
    assert shadow == [0] * 20 + [1] * 10


def test_backstop_of_zero_refuses_all() -> None:
    """A service that can serve nothing admits nothing."""
    gateway = Simulated(policy_set(backstop=quota(0, 1)))
    refused = [gateway.ask(user(), second * SECOND).refusal for second in range(10)]
    assert all(refusal is not None and refusal.limit in {"share", "backstop"} for refusal in refused)
