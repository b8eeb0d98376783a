"""Effective quotas, and what a tenant's own limits let through together."""

from __future__ import annotations

import math

import pytest

from policies.policy import Mode, PolicySet, Sized, TenantRules
from policies.request import Kind, Principal
from policies.sizing import credential_rules, effective_key, effective_tenant, own_cap
from policies.units import SECOND
from tests.policies.documents import acme, anonymous, credential, job, policy_set, quota, rejected, tenants, user

__all__: list[str] = []

PREFLIGHT = Principal(Kind.PREFLIGHT, "anonymous", "192.0.2.1")


@pytest.mark.parametrize(
    ("principal", "rate", "mode", "provenance", "pinned"),
    [
        (user(), 10, Mode.ENFORCE, "configured", True),
        (user(name="sized"), 20, Mode.SHADOW, "initial", True),
        (user(name="minted"), 20, Mode.SHADOW, "initial", False),
        (user(tenant="minted"), 20, Mode.SHADOW, "initial", False),
        (job(project="ci"), 20, Mode.SHADOW, "initial", False),
        (anonymous(), 5, Mode.ENFORCE, "anonymous", False),
        (PREFLIGHT, 10, Mode.ENFORCE, "preflight", False),
        (rejected(), 1, Mode.ENFORCE, "rejected", False),
    ],
)
def test_key_quota(principal: Principal, rate: int, mode: Mode, provenance: str, pinned: bool) -> None:
    """A configured quota is enforced; what would be sized is in shadow; others have the quota of their kind."""
    policies = policy_set(tenants=tenants(acme(credential("ci", quota(10, 20)), credential("sized"))))
    found = effective_key(policies, principal)
    assert int(found.quota.rate.per_second) == rate
    assert (found.mode, found.provenance, found.pinned) == (mode, provenance, pinned)


def test_job_is_never_a_credential() -> None:
    """A project that is called like a credential does not get its entry."""
    assert credential_rules(policy_set(), user()) is not None
    assert credential_rules(policy_set(), job(project="ci")) is None


@pytest.mark.parametrize(
    ("entry", "principal", "expected"),
    [
        (acme(), user(), None),
        (acme(quota=quota(7)), user(), (7, Mode.ENFORCE)),
        (acme(quota=quota(7)), job(), (7, Mode.ENFORCE)),
        (acme(sized=True), user(), (20, Mode.SHADOW)),
        (acme(quota=quota(7)), user(tenant="other"), None),
        (TenantRules("anonymous", quota=quota(7)), anonymous(), None),
    ],
)
def test_tenant_quota(entry: TenantRules, principal: Principal, expected: tuple[int, Mode] | None) -> None:
    """A tenant has a bucket if its entry has a quota; the reserved tenants never do."""
    found = effective_tenant(policy_set(tenants=tenants(entry)), principal)
    assert (None if found is None else (int(found.quota.rate.per_second), found.mode)) == expected


KNOWN = {
    "tenant=acme,credential=sized": Sized(quota(44), Mode.ENFORCE, "sized", 1, quota(44)),
    "tenant=acme,credential=young": Sized(quota(21), Mode.SHADOW, "initial", 1, quota(44)),
    "tenant=acme": Sized(quota(70), Mode.ENFORCE, "sized", 1, quota(70)),
    "tenant=small": Sized(quota(7), Mode.ENFORCE, "sized", 1, quota(7)),
    "tenant=fresh": Sized(quota(70), Mode.SHADOW, "initial", 1, quota(70)),
}


@pytest.mark.parametrize(
    ("principal", "rate", "mode", "provenance"),
    [
        (user(name="sized"), 44, Mode.ENFORCE, "sized"),
        (user(name="young"), 21, Mode.SHADOW, "initial"),
        (user(), 10, Mode.ENFORCE, "configured"),
        (user(name="minted"), 70, Mode.ENFORCE, "inherited"),
        (user(tenant="small"), 20, Mode.ENFORCE, "inherited"),
        (user(tenant="fresh"), 20, Mode.SHADOW, "initial"),
        (user(tenant="unknown"), 20, Mode.SHADOW, "initial"),
    ],
)
def test_a_quota_from_the_past(principal: Principal, rate: int, mode: Mode, provenance: str) -> None:
    """What history knows holds; a new key has its tenant's where that is known; else everybody's start, in shadow."""
    policies = policy_set(tenants=tenants(acme(credential("ci", quota(10, 20)), credential("sized"))), sized=KNOWN)
    found = effective_key(policies, principal)
    assert (int(found.quota.rate.per_second), found.mode, found.provenance) == (rate, mode, provenance)


def test_a_sized_tenant() -> None:
    """A tenant bucket that is sized holds what history knows of the tenant."""
    found = effective_tenant(policy_set(tenants=tenants(acme(sized=True)), sized=KNOWN), user())
    assert found is not None
    assert (int(found.quota.rate.per_second), found.mode, found.sized) == (70, Mode.ENFORCE, KNOWN["tenant=acme"])


FIXED = acme(credential("ci", quota(10, 20)), credential("web", quota(30, 40)))
MIXED = acme(credential("ci", quota(10, 20)), credential("sized"))


@pytest.mark.parametrize(
    ("policies", "principal", "rate", "burst"),
    [
        (policy_set(tenants=tenants(FIXED)), user(), 40, 60),
        (policy_set(tenants=tenants(FIXED)), user(name="minted"), math.inf, math.inf),
        (policy_set(tenants=tenants(FIXED)), job(), math.inf, math.inf),
        (policy_set(tenants=tenants(MIXED)), user(), math.inf, math.inf),
        (policy_set(tenants=tenants(acme(*FIXED.credentials.values(), quota=quota(25, 5)))), user(), 25, 5),
        (policy_set(tenants=tenants(acme(*FIXED.credentials.values(), quota=quota(90, 5)))), user(), 40, 60),
        (policy_set(tenants=tenants(acme(*MIXED.credentials.values(), quota=quota(90, 5)))), user(), 90, 5),
        (policy_set(tenants=tenants(acme(*MIXED.credentials.values(), sized=True))), user(), math.inf, math.inf),
        (policy_set(), anonymous(), math.inf, math.inf),
        (policy_set(tenants=tenants(MIXED), sized=KNOWN), user(), 54, 21),
        (policy_set(tenants=tenants(MIXED), sized=KNOWN), user(name="sized"), 54, 21),
        (
            policy_set(tenants=tenants(acme(*FIXED.credentials.values(), credential("young"))), sized=KNOWN),
            user(),
            math.inf,
            math.inf,
        ),
        (policy_set(tenants=tenants(MIXED)), user(name="sized"), math.inf, math.inf),
    ],
)
def test_own_cap(policies: PolicySet, principal: Principal, rate: float, burst: float) -> None:
    """A tenant's demand is capped by its quota or its keys' sum; a key that is not enforced bounds nothing."""
    key, tenant = effective_key(policies, principal), effective_tenant(policies, principal)
    rate_us, together = own_cap(policies, principal, key, tenant)
    assert rate_us == pytest.approx(rate / SECOND)
    assert together == burst
