"""Effective quotas: what a key or tenant may spend, whether it is enforced yet, and where that came from.

Rules
1. A configured quota is the quota. A key without one is sized from its own past.
2. A sized quota is shadow until it has been learnt; so a first deployment refuses no authenticated caller by it.
3. Anonymous, failed and preflight callers are their address, with the quota configured for their kind; never sized.

This is the seam of sizing: today every sized quota is `[sizing] initial`, in shadow. Once there is history,
`_sized` is where it is read.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from policies.policy import CredentialRules, Mode, PolicySet, Quota
from policies.request import Kind, Principal
from policies.units import RequestUnits

__all__ = ["Effective", "credential_rules", "effective_key", "effective_tenant", "own_cap"]


@dataclass(frozen=True, slots=True)
class Effective:
    """A quota in force, its mode, and its provenance: `configured`, `initial`, or the kind of caller it is for."""

    quota: Quota
    mode: Mode
    provenance: str
    pinned: bool = False


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
            return _sized(policies, pinned=rules is not None)


def effective_tenant(policies: PolicySet, principal: Principal) -> Effective | None:
    """Return the quota of all credentials of the principal's tenant together; None if it has no bucket."""
    rules = policies.tenants.get(principal.tenant)
    if rules is None or principal.kind not in (Kind.USER, Kind.JOB):
        return None
    if rules.quota is not None:
        return Effective(rules.quota, Mode.ENFORCE, "configured", pinned=True)
    return _sized(policies, pinned=True) if rules.sized else None


def _sized(policies: PolicySet, *, pinned: bool) -> Effective:
    return Effective(policies.sizing.initial, Mode.SHADOW, "initial", pinned=pinned)


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
            key.quota if credential.id == principal.credential else credential.quota
            for credential in rules.credentials.values()
            if credential.quota is not None
        ]
        if len(quotas) == len(rules.credentials):
            caps.append((sum(quota.rate.per_us for quota in quotas), sum(quota.burst for quota in quotas)))
    return min(caps)
