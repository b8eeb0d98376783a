"""Effective quotas: what a key or tenant may spend, whether it is enforced yet, and where that came from.

Rules
1. A configured quota is the quota. A key without one is sized from its own past (`sizing_past.py`), which history works
   out once a day and puts into `PolicySet.sized`.
2. A sized quota is shadow until it has been learnt; so a first deployment refuses no authenticated caller by it.
3. A key without a past has its tenant's, enforced if that is: minting keys buys nothing.
4. Anonymous, failed and preflight callers are their address, with the quota configured for their kind; never sized.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from policies.policy import CredentialRules, Mode, PolicySet, Quota, Sized
from policies.request import Kind, Principal, key_name
from policies.units import RequestUnits

__all__ = ["Effective", "credential_rules", "effective_key", "effective_tenant", "inherited", "own_cap"]


@dataclass(frozen=True, slots=True)
class Effective:
    """A quota in force, its mode, and its provenance.

    That is `configured`, `sized`, `inherited`, `initial`, or the kind of caller it is for; `sized` says more of it.
    """

    quota: Quota
    mode: Mode
    provenance: str
    pinned: bool = False
    sized: Sized | None = None


def credential_rules(policies: PolicySet, principal: Principal) -> CredentialRules | None:
    """Return the entry of the credential that `principal` proved, if it has one. A job's project is no credential."""
    if principal.kind is not Kind.USER:
        return None
    tenant = policies.tenants.get(principal.tenant)
    return tenant.credentials.get(principal.credential) if tenant else None


def effective_key(policies: PolicySet, principal: Principal) -> Effective:
    """Return the quota of the key that `principal` is charged to."""
    match principal.kind:
        case Kind.ANONYMOUS:
            return Effective(policies.anonymous, Mode.ENFORCE, "anonymous")
        case Kind.PREFLIGHT:
            return Effective(policies.preflight, Mode.ENFORCE, "preflight")
        case Kind.REJECTED:
            return Effective(policies.rejected, Mode.ENFORCE, "rejected")
        case _:
            rules = credential_rules(policies, principal)
            if rules is not None and rules.quota is not None:
                return Effective(rules.quota, Mode.ENFORCE, "configured", pinned=True)
            return _sized(policies, principal.name, principal.tenant, pinned=rules is not None)


def effective_tenant(policies: PolicySet, principal: Principal) -> Effective | None:
    """Return the quota of all credentials of the principal's tenant together; None if it has no bucket."""
    rules = policies.tenants.get(principal.tenant)
    if rules is None or principal.kind not in (Kind.USER, Kind.JOB):
        return None
    if rules.quota is not None:
        return Effective(rules.quota, Mode.ENFORCE, "configured", pinned=True)
    name = key_name(tenant=principal.tenant)
    return _sized(policies, name, principal.tenant, pinned=True) if rules.sized else None


def _sized(policies: PolicySet, name: str, tenant: str, *, pinned: bool) -> Effective:
    known = policies.sized.get(name)
    if known is not None:
        return Effective(known.quota, known.mode, known.provenance, pinned, known)
    quota, enforced = inherited(policies, tenant)
    if quota is not None:
        return Effective(quota, Mode.ENFORCE if enforced else Mode.SHADOW, "inherited", pinned)
    return Effective(policies.sizing.initial, Mode.SHADOW, "initial", pinned)


def inherited(policies: PolicySet, tenant: str) -> tuple[Quota | None, bool]:
    """Return what a new key of `tenant` starts with, None for `[sizing] initial`; and whether that is enforced.

    It is the tenant's number once the tenant is known, where that is the higher one.
    """
    known = policies.sized.get(key_name(tenant=tenant))
    if known is None or known.mode is not Mode.ENFORCE:
        return None, False
    return max(known.quota, policies.sizing.initial, key=lambda quota: quota.rate.per_second), True


def own_cap(
    policies: PolicySet, principal: Principal, key: Effective, tenant: Effective | None
) -> tuple[float, RequestUnits]:
    """Return the rate (units per microsecond) and burst that the tenant's own limits let through, all keys together.

    `key` and `tenant` are what is in force for this principal. It caps the demand that a tenant is credited with when
    the backstop is shared out: the tenant's quota or the sum of its keys' quotas, whichever has the lower rate. A key
    that is not enforced bounds nothing, so with one of those only the tenant's quota does.
    """
    caps = [(math.inf, math.inf)]
    if tenant is not None and tenant.mode is Mode.ENFORCE:
        caps.append((tenant.quota.rate.per_us, tenant.quota.burst))
    rules = policies.tenants.get(principal.tenant)
    if rules is not None and credential_rules(policies, principal) is not None:
        quotas = [
            (key.quota if key.mode is Mode.ENFORCE else None)
            if credential.id == principal.credential
            else _enforced(policies, rules.id, credential)
            for credential in rules.credentials.values()
        ]
        known = [quota for quota in quotas if quota is not None]
        if len(known) == len(quotas):
            caps.append((sum(quota.rate.per_us for quota in known), sum(quota.burst for quota in known)))
    return min(caps)


def _enforced(policies: PolicySet, tenant: str, credential: CredentialRules) -> Quota | None:
    """Return the quota that holds a configured credential, None if nothing does yet."""
    if credential.quota is not None:
        return credential.quota
    known = policies.sized.get(key_name(tenant=tenant, credential=credential.id))
    return known.quota if known is not None and known.mode is Mode.ENFORCE else None
