"""`evenhand explain`: the effective quota of a key or tenant, and where it came from.

Rules
1. What is said is what the planner asks: `policies.sizing` over the numbers in force on the day.
2. The terms are those that were written when the number was made, and add up to it.
3. An archive that is not there is no error: then nothing has a past yet.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime

from gateway.errors import GatewayError
from gateway.history.archive import Archive
from gateway.history.identity import Identity, tenant_identity
from gateway.history.provenance import date_of, paragraph, spelt
from policies.exempt import Standing, standing
from policies.policy import Mode, PolicySet, Sized
from policies.request import Kind, Principal
from policies.sizing import Effective, credential_rules, effective_key, effective_tenant
from policies.sizing_past import NANO
from policies.units import SECOND, Micros

__all__ = ["explain"]

_FROM = {
    "configured": "as gateway.toml says",
    "sized": "sized from its own past",
    "inherited": "its tenant's, until it has a past of its own",
    "initial": "[sizing] initial, until it has `learn` of history",
}


def explain(
    policies: PolicySet,
    archive: Archive,
    tenant: str,
    credential: str = "",
    day: int | None = None,
    now: Micros | None = None,
) -> str:
    """Return what there is to say as of `day` (days since the epoch), or now. Raises GatewayError for unknown names.

    With `now`, of the wall clock, exemptions of the configuration that are in force are told; they have no past.
    """
    tenant_name = tenant_identity(tenant)
    identities = _candidates(tenant, credential) if credential else [tenant_name]
    known = {one.name: sized for one in (*identities, tenant_name) if (sized := archive.number(one, day)) is not None}
    identity = next((one for one in identities if one.name in known), identities[0])
    if not _listed(policies, tenant, credential) and not archive.seen(identity):
        raise GatewayError(f"{_label(tenant, credential)}: neither configured nor seen")
    policies = replace(policies, sized=known)
    principal = identity.principal()
    effective = effective_key(policies, principal) if credential else effective_tenant(policies, principal)
    lines = list(_said(effective, known.get(identity.name)))
    if effective is not None and now is not None:
        raised = _raised(standing(policies, "key" if credential else "tenant", effective.quota, principal, now))
        lines[1:1] = raised
    if not credential:
        lines += _credentials(policies, archive, tenant, day)
    asof = "" if day is None else f", as of {date_of(day)}"
    return "\n".join([f"{_label(tenant, credential)}{asof}: {lines[0]}", *lines[1:]])


def _candidates(tenant: str, credential: str) -> list[Identity]:
    return [Identity.of(Principal(kind, tenant, credential)) for kind in (Kind.USER, Kind.JOB)]


def _listed(policies: PolicySet, tenant: str, credential: str) -> bool:
    if not credential:
        return tenant in policies.tenants
    return credential_rules(policies, Principal(Kind.USER, tenant, credential)) is not None


def _label(tenant: str, credential: str) -> str:
    return f"{tenant}/{credential}" if credential else tenant


def _said(effective: Effective | None, sized: Sized | None) -> Iterator[str]:
    """Yield the number in one line, then why, then the arithmetic."""
    if effective is None:
        yield "no bucket of its own; its credentials have theirs, and the fair share is by its weight."
    else:
        mode = "enforced" if effective.mode is Mode.ENFORCE else "in shadow: counted, not enforced"
        yield f"{spelt(effective.quota)}, {mode}; {_FROM[effective.provenance]}."
    if sized is None:
        return
    if effective is None or effective.provenance == "configured":
        yield ""
        yield "Were it sized, this would hold:"
    yield ""
    yield paragraph(sized)
    yield ""
    yield from _arithmetic(sized)


def _raised(stands: Standing) -> Iterator[str]:
    """Yield what exemptions make of a quota."""
    if stands.exemption is not None:
        ends = datetime.fromtimestamp(stands.exemption.expires_us / SECOND, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        yield f"Exemption {stands.exemption.name} makes it {spelt(stands.quota)} until {ends}."
    for one in stands.in_part:
        yield f"Exemption {one.name} raises some of its requests, in a bucket of their own."


def _arithmetic(sized: Sized) -> Iterator[str]:
    rows = [(term.name, f"{term.delta / NANO:+.10g}", term.detail) for term in sized.terms]
    widths = [max((len(row[column]) for row in rows), default=0) for column in (0, 1)]
    for name, delta, detail in rows:
        yield f"  {name.ljust(widths[0])}  {delta.rjust(widths[1])}  {detail}"
    total = sum(term.delta for term in sized.terms)
    yield f"  = {total / NANO:.10g} request units per second, burst {sized.next_quota.burst:g}"


def _credentials(policies: PolicySet, archive: Archive, tenant: str, day: int | None) -> Iterator[str]:
    rules = policies.tenants.get(tenant)
    if rules is None or not rules.credentials:
        return
    yield ""
    for name in rules.credentials:
        identity = Identity.of(Principal(Kind.USER, tenant, name))
        sized = archive.number(identity, day)
        known = dict(policies.sized) if sized is None else {**policies.sized, identity.name: sized}
        effective = effective_key(replace(policies, sized=known), identity.principal())
        yield f"  {_label(tenant, name)}: {next(_said(effective, None))}"
