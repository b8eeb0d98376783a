"""What `/api/limits` lists: every limit that exists, the quota that holds, and where it comes from.

Rules
1. Quotas come from `policies.sizing`, which is what the planner asks; nothing is worked out a second time here.
2. Keys are those of configured credentials, and the projects and credentials of tokens that history knows. What else
   callers bring into being is listed once per kind, with the quota that each of them has.
3. A quota is the effective one: where an exemption raises it, `provenance` names that, and `ordinary` is the quota
   without. Exemptions of only some requests of a bucket have one of their own; they stand in `exempted_in_part`.
4. A sized quota comes with where it is from: the same words and arithmetic as `evenhand explain`.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from urllib.parse import unquote

from gateway.history.provenance import members
from gateway.telemetry.gauges import KeyQuota
from policies.exempt import standing
from policies.policy import CredentialRules, Exemption, PolicySet, Quota, TenantRules
from policies.request import ANONYMOUS, REJECTED, Kind, Principal
from policies.sizing import Effective, credential_rules, effective_key, effective_tenant
from policies.units import Micros

__all__ = ["Row", "credential_rows", "key_quotas", "key_rows", "policy_rows", "quota_members", "tenant_row"]

Row = dict[str, object]

#: Stands for any value in rows of keys that callers bring into being.
_EACH = "*"


def quota_members(quota: Quota | None) -> Row | None:
    """Return a quota as it is shown: `rate` in words, the same per second, and its burst."""
    if quota is None:
        return None
    return {"rate": str(quota.rate), "per_second": float(quota.rate.per_second), "burst": quota.burst}


def key_rows(policies: PolicySet, now: Micros) -> Iterator[Row]:
    """Yield a row per key: configured ones, those that history knows, each kind that callers bring into being."""
    for tenant in policies.tenants.values():
        yield from credential_rows(policies, tenant, now)
    for principal in _known(policies):
        yield _key_row(policies, principal, now)
    for kind, owner in _BROUGHT.items():
        yield _key_row(policies, Principal(kind, owner, _EACH), now)


def credential_rows(policies: PolicySet, tenant: TenantRules, now: Micros) -> Iterator[Row]:
    """Yield a row per configured credential of one tenant."""
    for rules in tenant.credentials.values():
        yield _key_row(policies, Principal(Kind.USER, tenant.id, rules.id), now, rules)


def tenant_row(policies: PolicySet, tenant: TenantRules, now: Micros) -> Row:
    """Return the row of what all credentials of a tenant may spend together."""
    row: Row = {"tenant": tenant.id, "weight": tenant.weight, "concurrency": tenant.concurrency}
    principal = Principal(Kind.USER, tenant.id, _EACH)
    return row | _effective(policies, "tenant", effective_tenant(policies, principal), principal, now)


def policy_rows(policies: PolicySet, now: Micros) -> Iterator[Row]:
    """Yield a row per named policy; an exemption of it is always one of some requests."""
    live = [exemption for exemption in policies.exemptions if now < exemption.expires_us]
    for policy in policies.policies:
        match = policy.match
        yield {
            "policy": policy.name,
            "key": [part.value for part in policy.key],
            "mode": policy.mode.value,
            "percent": policy.percent,
            "quota": quota_members(policy.quota),
            **_in_part([one for one in live if policy.name in one.policies and one.multiplier is not None]),
            "match": {
                "identity": "any" if match.identity is None else match.identity.value,
                "tenant": match.tenant,
                "credential": match.credential,
                "route": match.route,
                "class": None if match.cls is None else match.cls.label,
                "method": match.method,
            },
        }


def key_quotas(policies: PolicySet, now: Micros, shown: Collection[str] | None = None) -> Iterable[KeyQuota]:
    """Yield what `evenhand_key_quota` shows of the tenants `shown`, or of all; exemptions of a whole key included."""
    for tenant in policies.tenants.values() if shown is None else _listed(policies, shown):
        for credential in tenant.credentials:
            principal = Principal(Kind.USER, tenant.id, credential)
            ordinary = effective_key(policies, principal).quota
            quota = standing(policies, "key", ordinary, principal, now).quota
            yield tenant.id, credential, float(quota.rate.per_second)


def _listed(policies: PolicySet, shown: Collection[str]) -> Iterator[TenantRules]:
    """Return the listed ones among a few tenants, in an order that stays."""
    return (policies.tenants[tenant] for tenant in sorted(shown) if tenant in policies.tenants)


_BROUGHT = {
    Kind.USER: _EACH,
    Kind.JOB: _EACH,
    Kind.ANONYMOUS: ANONYMOUS,
    Kind.PREFLIGHT: ANONYMOUS,
    Kind.REJECTED: REJECTED,
}


def _key_row(policies: PolicySet, principal: Principal, now: Micros, rules: CredentialRules | None = None) -> Row:
    row: Row = {
        "tenant": principal.tenant,
        "credential": principal.credential,
        "identity": principal.kind.value,
        "concurrency": None if rules is None else rules.concurrency,
    }
    return row | _effective(policies, "key", effective_key(policies, principal), principal, now)


def _in_part(exemptions: Sequence[Exemption]) -> Row:
    return {"exempted_in_part": [one.name for one in exemptions]} if exemptions else {}


def _known(policies: PolicySet) -> Iterator[Principal]:
    """Yield the keys that only history knows of: projects, and credentials that a token vouches for."""
    for name in policies.sized:
        parts = dict(part.partition("=")[::2] for part in name.split(","))
        kind = Kind.JOB if "project" in parts else Kind.USER
        credential = unquote(parts.get("project", parts.get("credential", "")))
        principal = Principal(kind, unquote(parts["tenant"]), credential)
        if credential and credential_rules(policies, principal) is None:
            yield principal


def _effective(policies: PolicySet, limit: str, effective: Effective | None, principal: Principal, now: Micros) -> Row:
    if effective is None:
        return {"quota": None, "mode": None, "provenance": None}
    stands = standing(policies, limit, effective.quota, principal, now)
    raised = stands.exemption
    return {
        "quota": quota_members(stands.quota),
        "mode": effective.mode.value,
        "provenance": effective.provenance if raised is None else f"exemption {raised.name}",
        **({} if raised is None else {"ordinary": quota_members(effective.quota)}),
        **_in_part(stands.in_part),
        **({} if effective.sized is None else {"sizing": members(effective.sized)}),
    }
