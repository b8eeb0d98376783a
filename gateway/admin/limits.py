"""What `/api/limits` lists: every limit that exists, the quota that holds, and where it comes from.

Rules
1. Quotas come from `policies.sizing`, which is what the planner asks; nothing is worked out a second time here.
2. Keys are those of configured credentials, and the projects and credentials of tokens that history knows. What else
   callers bring into being is listed once per kind, with the quota that each of them has.
3. A sized quota comes with where it is from: the same words and arithmetic as `evenhand explain`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from urllib.parse import unquote

from gateway.history.provenance import members
from gateway.telemetry.gauges import KeyQuota
from policies.policy import CredentialRules, PolicySet, Quota, TenantRules
from policies.request import ANONYMOUS, REJECTED, Kind, Principal
from policies.sizing import Effective, credential_rules, effective_key, effective_tenant

__all__ = ["Row", "credential_rows", "key_quotas", "key_rows", "policy_rows", "quota_members", "tenant_row"]

Row = dict[str, object]

#: Stands for any value in rows of keys that callers bring into being.
_EACH = "*"


def quota_members(quota: Quota | None) -> Row | None:
    """Return a quota as it is shown: `rate` in words, the same per second, and its burst."""
    if quota is None:
        return None
    return {"rate": str(quota.rate), "per_second": float(quota.rate.per_second), "burst": quota.burst}


def key_rows(policies: PolicySet) -> Iterator[Row]:
    """Yield a row per key: configured ones, those that history knows, each kind that callers bring into being."""
    for tenant in policies.tenants.values():
        yield from credential_rows(policies, tenant)
    for principal in _known(policies):
        yield _key_row(policies, principal)
    for kind, owner in _BROUGHT.items():
        yield _key_row(policies, Principal(kind, owner, _EACH))


def credential_rows(policies: PolicySet, tenant: TenantRules) -> Iterator[Row]:
    """Yield a row per configured credential of one tenant."""
    for rules in tenant.credentials.values():
        yield _key_row(policies, Principal(Kind.USER, tenant.id, rules.id), rules)


def tenant_row(policies: PolicySet, tenant: TenantRules) -> Row:
    """Return the row of what all credentials of a tenant may spend together."""
    row: Row = {"tenant": tenant.id, "weight": tenant.weight, "concurrency": tenant.concurrency}
    return row | _effective(effective_tenant(policies, Principal(Kind.USER, tenant.id, _EACH)))


def policy_rows(policies: PolicySet) -> Iterator[Row]:
    """Yield a row per named policy."""
    for policy in policies.policies:
        match = policy.match
        yield {
            "policy": policy.name,
            "key": [part.value for part in policy.key],
            "mode": policy.mode.value,
            "percent": policy.percent,
            "quota": quota_members(policy.quota),
            "match": {
                "identity": "any" if match.identity is None else match.identity.value,
                "tenant": match.tenant,
                "credential": match.credential,
                "route": match.route,
                "class": None if match.cls is None else match.cls.label,
                "method": match.method,
            },
        }


def key_quotas(policies: PolicySet) -> Iterable[KeyQuota]:
    """Yield what `evenhand_key_quota` shows."""
    for tenant in policies.tenants.values():
        for credential in tenant.credentials:
            quota = effective_key(policies, Principal(Kind.USER, tenant.id, credential)).quota
            yield tenant.id, credential, float(quota.rate.per_second)


_BROUGHT = {
    Kind.USER: _EACH,
    Kind.JOB: _EACH,
    Kind.ANONYMOUS: ANONYMOUS,
    Kind.PREFLIGHT: ANONYMOUS,
    Kind.REJECTED: REJECTED,
}


def _key_row(policies: PolicySet, principal: Principal, rules: CredentialRules | None = None) -> Row:
    row: Row = {
        "tenant": principal.tenant,
        "credential": principal.credential,
        "identity": principal.kind.value,
        "concurrency": None if rules is None else rules.concurrency,
    }
    return row | _effective(effective_key(policies, principal))


def _known(policies: PolicySet) -> Iterator[Principal]:
    """Yield the keys that only history knows of: projects, and credentials that a token vouches for."""
    for name in policies.sized:
        parts = dict(part.partition("=")[::2] for part in name.split(","))
        kind = Kind.JOB if "project" in parts else Kind.USER
        credential = unquote(parts.get("project", parts.get("credential", "")))
        principal = Principal(kind, unquote(parts["tenant"]), credential)
        if credential and credential_rules(policies, principal) is None:
            yield principal


def _effective(effective: Effective | None) -> Row:
    if effective is None:
        return {"quota": None, "mode": None, "provenance": None}
    return {
        "quota": quota_members(effective.quota),
        "mode": effective.mode.value,
        "provenance": effective.provenance,
        **({} if effective.sized is None else {"sizing": members(effective.sized)}),
    }
