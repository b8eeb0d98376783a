"""Exemptions: a higher quota for a while, with a reason and an owner. It still counts; there is no bypass.

Rules
1. An exemption raises; where it would lower, the ordinary quota holds. Of several, the highest rate holds.
2. A multiplier raises rate and burst of key and tenant, and of the named policies it lists. A quota replaces the key's
   if the match names a credential, else the tenant's if it names a tenant. Share, weight and backstop never change.
3. One that covers only some of a bucket's requests (of a route, say) counts them in a bucket of its own beside it. Were
   the shared bucket itself resized from request to request, the others would spend what was raised.
4. It ends at its expiry: a plan is valid until the next one of any exemption.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from fractions import Fraction
from typing import NamedTuple

from policies.cost import route_name
from policies.policy import Exemption, Match, PolicySet, Quota
from policies.request import Class, Principal
from policies.units import Micros, Rate

__all__ = ["Standing", "bucket_suffix", "in_force", "next_expiry", "raised", "standing"]


class Standing(NamedTuple):
    """How a bucket stands whatever is asked: its quota, the exemption that made it so, and those for a part of it."""

    quota: Quota
    exemption: Exemption | None
    in_part: tuple[Exemption, ...]


def in_force(
    policies: PolicySet, principal: Principal, cls: Class, route: int, method: str, now: Micros
) -> tuple[Exemption, ...]:
    """Return the exemptions that cover a request at `now`."""
    name = route_name(policies, route)
    return tuple(
        exemption
        for exemption in policies.exemptions
        if now < exemption.expires_us and exemption.match.covers(principal, cls, name, method)
    )


def next_expiry(policies: PolicySet, now: Micros) -> Micros | None:
    """Return when the next exemption ends after `now`, or None."""
    return min((exemption.expires_us for exemption in policies.exemptions if exemption.expires_us > now), default=None)


def raised(limit: str, quota: Quota, exemptions: Iterable[Exemption]) -> tuple[Quota, Exemption | None]:
    """Return the effective quota of `limit` (`key`, `tenant` or a policy's name), and the exemption that made it so."""
    best: tuple[Quota, Exemption | None] = (quota, None)
    for exemption in exemptions:
        offer = _offer(limit, quota, exemption)
        if offer is not None and offer.rate.per_second > best[0].rate.per_second:
            best = (offer, exemption)
    return best


def standing(policies: PolicySet, limit: str, quota: Quota, principal: Principal, now: Micros) -> Standing:
    """Return how the `key` or `tenant` bucket of `principal`, ordinarily of `quota`, stands at `now`.

    What raises only some of its requests counts them in a bucket of its own (rule 3), so it is named and not applied.
    """
    live = [
        exemption
        for exemption in policies.exemptions
        if now < exemption.expires_us and _concerns(policies, exemption.match, limit, principal)
    ]
    effective, made = raised(limit, quota, [one for one in live if not bucket_suffix(limit, one)])
    narrow = [one for one in live if bucket_suffix(limit, one) and raised(limit, effective, (one,))[1] is not None]
    return Standing(effective, made, tuple(narrow))


def _concerns(policies: PolicySet, match: Match, limit: str, principal: Principal) -> bool:
    """Return whether some request of the bucket is covered."""
    wide = replace(match, route=None, cls=None, method=None)
    if limit == "key":
        return wide.covers(principal, Class.INTERACTIVE, "", "")
    tenant = policies.tenants.get(principal.tenant)
    held = match.credential is None or (tenant is not None and match.credential in tenant.credentials)
    return match.tenant == principal.tenant or (match.tenant is None and held)


def _offer(limit: str, quota: Quota, exemption: Exemption) -> Quota | None:
    if exemption.quota is not None:
        return exemption.quota if limit == _replaces(exemption) else None
    if exemption.multiplier is None or limit not in {"key", "tenant", *exemption.policies}:
        return None
    # Through its shortest decimal form, so that 1.1 is 11/10 and RateLimit-Policy stays readable.
    factor = Fraction(str(exemption.multiplier))
    return Quota(Rate(quota.rate.per_second * factor), quota.burst * exemption.multiplier)


def _replaces(exemption: Exemption) -> str:
    if exemption.match.credential is not None:
        return "key"
    return "tenant" if exemption.match.tenant is not None else ""


def bucket_suffix(limit: str, exemption: Exemption | None) -> str:
    """Return what to add to a bucket's name: nothing if all its requests are exempted alike."""
    if exemption is None:
        return ""
    match = exemption.match
    narrowing = {"key": (), "tenant": (match.credential, match.identity)}.get(limit)
    if narrowing is not None and not any((match.route, match.cls is not None, match.method, *narrowing)):
        return ""
    return f",exemption={exemption.name}"
