"""Case 43, the decision: with nobody competing, no class and no reserve refuses anything inside the key's bucket."""

from __future__ import annotations

import pytest

from policies.policy import TenantRules
from tests.incidents.simulated import Simulated, jittered
from tests.policies.documents import credential, policy_set, quota, tenants, user

__all__: list[str] = []


@pytest.mark.parametrize("asked", ["batch", "interactive", None])
@pytest.mark.parametrize("others", [0, 60])
def test_lone_key_uses_all_of_its_quota(asked: str | None, others: int) -> None:
    """A at its full 10/s is admitted without exception, all batch, all interactive, no class; others at 60 % too."""
    entries = [TenantRules(name, credentials={"ci": credential("ci", quota(10, 20))}) for name in ("a", "o")]
    entries[1] = TenantRules("o", credentials={"ci": credential("ci", quota(100, 100))})
    gateway = Simulated(policy_set(tenants=tenants(*entries), backstop=quota(100, 100)))
    calls = [(now, "a") for now in jittered(10, 30)]
    if others:
        calls += [(now, "o") for now in jittered(others, 30)]
    for now, name in sorted(calls):
        assert gateway.ask(user(tenant=name), now, asked if name == "a" else None).admitted


@pytest.mark.parametrize("asked", ["batch", "interactive", None])
def test_lone_key_uses_all_of_its_burst(asked: str | None) -> None:
    """No part of the bucket is kept from a class while no other asks."""
    gateway = Simulated(
        policy_set(tenants=tenants(TenantRules("a", credentials={"ci": credential("ci", quota(1, 20))})))
    )
    assert [gateway.ask(user(tenant="a"), 0, asked).admitted for _ in range(21)] == [True] * 20 + [False]
