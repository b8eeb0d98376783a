"""`evenhand inventory`: every limit that exists, what it covers, and what nothing covers.

Rules
1. A limit that is off or in shadow is listed as such: one that exists and does nothing is the most dangerous kind.
2. The counts are of the rows above them, so they add up.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import astuple, dataclass

from gateway.config.entries import CredentialEntry, MatchTable, PolicyEntry, RouteEntry, TenantEntry
from gateway.config.loader import Loaded
from gateway.config.sections import UpstreamSection
from gateway.config.values import QuotaText
from policies.policy import CredentialRules, Mode, Quota, TenantRules
from policies.request import Class, key_name

__all__ = ["Limit", "Standing", "inventory", "limits", "standings"]

_EVERYWHERE = "everything"


@dataclass(frozen=True, slots=True)
class Limit:
    """One limit: the name that refusals give it, whether it counts, what a bucket of it is kept by, what it allows."""

    name: str
    mode: str
    key: str
    quota: str
    covers: str = _EVERYWHERE


@dataclass(frozen=True, slots=True)
class Standing:
    """One route, and how it stands to named policies: `limited` by some, `unlimited` on purpose, or `without`."""

    route: str
    path: str
    standing: str
    by: str


def limits(loaded: Loaded) -> tuple[Limit, ...]:
    """Return every limit of a configuration: the service's, tenants', other callers', named policies', upstreams'."""
    rows = [*_service(loaded), *_tenants(loaded), *_others(loaded), *_named(loaded), *_upstreams(loaded)]
    if loaded.policies.mode is Mode.SHADOW:
        rows = [Limit(row.name, "shadow" if row.mode == "enforce" else row.mode, *astuple(row)[2:]) for row in rows]
    return tuple(rows)


def standings(loaded: Loaded) -> tuple[Standing, ...]:
    """Return how every route stands."""
    return tuple(_standing(route, loaded.settings.policies) for route in loaded.settings.routes)


def inventory(loaded: Loaded) -> str:
    """Return the whole as text: two tables, each with its counts."""
    rows, routes = limits(loaded), standings(loaded)
    modes = Counter(row.mode for row in rows)
    kinds = Counter(row.standing for row in routes)
    counted = (
        f"{len(routes)} routes: {kinds['limited']} limited by a named policy, "
        f"{kinds['unlimited']} unlimited on purpose, {kinds['without']} without."
    )
    return "\n".join(
        [
            *_table(("limit", "mode", "key", "quota", "covers"), [astuple(row) for row in rows]),
            f"{len(rows)} limits: {modes['enforce']} enforced, {modes['shadow']} in shadow, {modes['off']} off.",
            "",
            *_table(("route", "path", "named policies", "which, or why not"), [astuple(row) for row in routes]),
            counted,
        ]
    )


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> Iterator[str]:
    widths = [max(map(len, column)) for column in zip(head, *rows, strict=True)]
    for row in (head, *rows):
        yield "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()


def _written(text: QuotaText, quota: Quota) -> str:
    """Write a quota by its own unit, its burst settled."""
    rate = text.text.partition(" ")[0]
    return f"{rate} burst {quota.burst:g}" if quota.rate.per_second else f"{rate}, refuses everything"


def _service(loaded: Loaded) -> Iterator[Limit]:
    yield Limit("backstop", "enforce", "service", _written(loaded.settings.backstop.quota, loaded.policies.backstop))
    yield Limit("share", "enforce", "tenant", "max-min part of backstop by weight, when contended")
    for cls in Class:
        rule = loaded.policies.classes[cls]
        if rule.ceiling < 1:
            yield Limit("class", "enforce", key_name(**{"class": cls.label}), f"{rule.ceiling:g} of backstop")


def _tenants(loaded: Loaded) -> Iterator[Limit]:
    for tenant in loaded.settings.tenants:
        rules = loaded.policies.tenants[tenant.id]
        yield from _held("tenant", key_name(tenant=tenant.id), tenant, rules, loaded)
        for entry in tenant.credentials:
            key = key_name(tenant=tenant.id, credential=entry.id)
            yield from _held("key", key, entry, rules.credentials[entry.id], loaded)


def _held(
    name: str, key: str, entry: TenantEntry | CredentialEntry, rules: TenantRules | CredentialRules, loaded: Loaded
) -> Iterator[Limit]:
    """Yield the bucket and the seats of a tenant or credential; a credential always has a bucket."""
    if isinstance(entry.quota, QuotaText) and rules.quota is not None:
        yield Limit(name, "enforce", key, _written(entry.quota, rules.quota))
    elif entry.quota == "sized" or name == "key":
        yield _sized(name, key, loaded)
    if entry.concurrency is not None:
        yield Limit("concurrency", "enforce", key, f"{entry.concurrency} in flight")


def _sized(name: str, key: str, loaded: Loaded) -> Limit:
    initial = _written(loaded.settings.sizing.initial, loaded.policies.sizing.initial)
    return Limit(name, "shadow", key, f"sized, from {initial}")


def _others(loaded: Loaded) -> Iterator[Limit]:
    """Yield the keys of callers that no entry names."""
    auth, policies = loaded.settings.auth, loaded.policies
    yield _sized("key", "any other credential or project", loaded)
    yield Limit("key", "enforce", "address, anonymous", _written(auth.anonymous_quota, policies.anonymous))
    yield Limit("key", "enforce", "address, rejected", _written(auth.rejected_quota, policies.rejected))
    yield Limit("key", "enforce", "address, preflight", _written(auth.preflight_quota, policies.preflight))


def _named(loaded: Loaded) -> Iterator[Limit]:
    for entry, policy in zip(loaded.settings.policies, loaded.policies.policies, strict=True):
        mode = entry.mode if entry.mode != "enforce" or entry.percent > 0 else "shadow"
        key = ", ".join(entry.key) + ("" if entry.percent in {0, 100} else f" ({entry.percent:g} % of them)")
        yield Limit(entry.name, mode, key, _written(entry.quota, policy.quota), _covers(entry.match))


def _covers(match: MatchTable) -> str:
    asked = (
        ("route", match.route),
        ("identity", None if match.identity == "any" else match.identity),
        ("tenant", match.tenant),
        ("credential", match.credential),
        ("class", match.cls),
        ("method", match.method),
    )
    return ", ".join(f"{word} {value}" for word, value in asked if value is not None) or _EVERYWHERE


def _standing(route: RouteEntry, policies: Sequence[PolicyEntry]) -> Standing:
    names = [policy.name for policy in policies if policy.mode != "off" and policy.match.reaches(route)]
    word = "limited" if names else "unlimited" if route.unlimited else "without"
    return Standing(route.name, route.path, word, ", ".join(names) or route.unlimited or "-")


def _upstreams(loaded: Loaded) -> Iterator[Limit]:
    settings = loaded.settings
    yield _connections("upstream", settings.upstream, "all other routes" if settings.upstreams else _EVERYWHERE)
    for name, upstream in settings.upstreams.items():
        covered = [route.name for route in settings.routes if route.upstream == name]
        yield _connections(f"upstream {name}", upstream, f"route {', '.join(covered)}" if covered else "nothing")


def _connections(key: str, upstream: UpstreamSection, covers: str) -> Limit:
    seats = f", {upstream.concurrency} in flight" if upstream.concurrency else ""
    return Limit("connections", "enforce", key, f"{upstream.max_connections} connections{seats}", covers)
