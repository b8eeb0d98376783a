"""`evenhand inventory`: every limit that exists, what it covers, what nothing covers, and what is raised.

Rules
1. A limit that is off or in shadow is listed as such: one that exists and does nothing is the most dangerous kind.
2. The counts are of the rows above them, so they add up. `/readyz` shows the same counts (`counts`).
3. A named policy that has applied to nothing for 30 days is said to be unused: whoever wrote it meant something by it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from dataclasses import astuple, dataclass, replace
from datetime import UTC, datetime

from gateway.config.advice import SOON
from gateway.config.entries import CredentialEntry, ExemptionEntry, MatchTable, PolicyEntry, RouteEntry, TenantEntry
from gateway.config.loader import Loaded
from gateway.config.sections import UpstreamSection
from gateway.config.values import QuotaText
from policies.exempt import standing
from policies.policy import CredentialRules, Mode, Quota, TenantRules
from policies.request import Class, Kind, Principal, key_name
from policies.units import SECOND, Micros

__all__ = ["Exempted", "Limit", "Standing", "counts", "exemptions", "inventory", "limits", "standings"]

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
    """One route, and how it stands to named policies.

    `limited`: one that is enforced covers all its requests; `in part`: it covers some; `unlimited`: on purpose;
    `without`.
    """

    route: str
    path: str
    standing: str
    by: str


@dataclass(frozen=True, slots=True)
class Exempted:
    """One exemption: for whom, what it raises, its state (`in force`, `ends soon` or `ended`), and who says so."""

    name: str
    covers: str
    raises: str
    state: str
    ends: str
    owner: str
    reason: str


def limits(loaded: Loaded, now: Micros | None = None) -> tuple[Limit, ...]:
    """Return every limit of a configuration: the service's, tenants', other callers', named policies', upstreams'.

    With `now`, of the wall clock, what an exemption raises says to what.
    """
    rows = [*_service(loaded), *_tenants(loaded, now), *_others(loaded), *_named(loaded), *_upstreams(loaded)]
    if loaded.policies.mode is Mode.SHADOW:
        rows = [Limit(row.name, "shadow" if row.mode == "enforce" else row.mode, *astuple(row)[2:]) for row in rows]
    return tuple(rows)


def standings(loaded: Loaded) -> tuple[Standing, ...]:
    """Return how every route stands."""
    return tuple(_standing(route, loaded.settings.policies) for route in loaded.settings.routes)


def exemptions(loaded: Loaded, now: Micros) -> tuple[Exempted, ...]:
    """Return every exemption as it stands at the wall-clock instant `now`."""
    return tuple(_exempted(entry, now) for entry in loaded.settings.exemptions)


def counts(loaded: Loaded, now: Micros, unused: Collection[str] = ()) -> dict[str, dict[str, int]]:
    """Return how many there are of each kind; the parts of each add up to its `total`."""
    modes = Counter(row.mode for row in limits(loaded))
    kinds = Counter(row.standing for row in standings(loaded))
    states = Counter(row.state for row in exemptions(loaded, now))
    names = [policy.name for policy in loaded.settings.policies]
    idle = sum(name in unused for name in names)
    return {
        "limits": {"total": modes.total(), **{mode: modes[mode] for mode in ("enforce", "shadow", "off")}},
        "routes": {"total": kinds.total(), **{kind: kinds[kind.replace("_", " ")] for kind in _STANDINGS}},
        "policies": {"total": len(names), "used_or_new": len(names) - idle, "unused": idle},
        "exemptions": {"total": states.total(), **{state.replace(" ", "_"): states[state] for state in _STATES}},
    }


def inventory(loaded: Loaded, now: Micros = 0, unused: Collection[str] = ()) -> str:
    """Return the whole as text: three tables, each with its counts; `unused` are policies that nothing meets."""
    rows, routes, raised = limits(loaded, now), standings(loaded), exemptions(loaded, now)
    of = counts(loaded, now, unused)
    modes, kinds, states = of["limits"], of["routes"], of["exemptions"]
    text = [
        *_table(("limit", "mode", "key", "quota", "covers"), [astuple(row) for row in rows]),
        f"{len(rows)} limits: {modes['enforce']} enforced, {modes['shadow']} in shadow, {modes['off']} off.",
        "",
        *_table(("route", "path", "named policies", "which, or why not"), [astuple(row) for row in routes]),
    ]
    text.append(
        f"{len(routes)} routes: {kinds['limited']} limited by a named policy, {kinds['in_part']} in part, "
        f"{kinds['unlimited']} unlimited on purpose, {kinds['without']} without."
    )
    if raised:
        head = ("exemption", "covers", "raises", "state", "ends", "owner", "reason")
        text += ["", *_table(head, [astuple(row) for row in raised])]
        text.append(
            f"{len(raised)} exemptions: {states['in_force']} in force, {states['ends_soon']} that end within a week, "
            f"{states['ended']} ended."
        )
    if idle := [policy.name for policy in loaded.settings.policies if policy.name in unused]:
        text += ["", f"{len(idle)} policies have applied to nothing in 30 days: {', '.join(idle)}."]
    return "\n".join(text)


_STANDINGS = ("limited", "in_part", "unlimited", "without")
_STATES = ("in force", "ends soon", "ended")


def _exempted(entry: ExemptionEntry, now: Micros) -> Exempted:
    left = entry.expires - now
    state = "ended" if left <= 0 else "ends soon" if left <= SOON else "in force"
    raised = ", ".join(["key", "tenant", *entry.policies])
    if isinstance(entry.quota, QuotaText):
        raised = f"{'tenant' if entry.match.credential is None else 'key'} to {entry.quota.text}"
    elif entry.multiplier is not None:
        raised += f" x {entry.multiplier:g}"
    ends = datetime.fromtimestamp(entry.expires / SECOND, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    return Exempted(entry.name, _covers(entry.match), raised, state, ends, entry.owner, entry.reason)


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


def _tenants(loaded: Loaded, now: Micros | None) -> Iterator[Limit]:
    for tenant in loaded.settings.tenants:
        rules = loaded.policies.tenants[tenant.id]
        principal = Principal(Kind.USER, tenant.id, "")
        for row in _held("tenant", key_name(tenant=tenant.id), tenant, rules, loaded):
            yield _raised(row, principal, rules.quota, loaded, now)
        for entry in tenant.credentials:
            key = key_name(tenant=tenant.id, credential=entry.id)
            credential, principal = rules.credentials[entry.id], Principal(Kind.USER, tenant.id, entry.id)
            for row in _held("key", key, entry, credential, loaded):
                yield _raised(row, principal, credential.quota, loaded, now)


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


def _raised(row: Limit, principal: Principal, quota: Quota | None, loaded: Loaded, now: Micros | None) -> Limit:
    """Return a row that says what an exemption of all its requests makes of its quota at `now`."""
    if now is None or row.name == "concurrency":
        return row
    initial = loaded.policies.sizing.initial
    stands = standing(loaded.policies, row.name, quota or initial, principal, now)
    if stands.exemption is None:
        return row
    factor = f" x {stands.exemption.multiplier:g}" if quota is None and stands.exemption.multiplier else ""
    rate = f"{float(stands.quota.rate.per_second):g}/s burst {stands.quota.burst:g}"
    return replace(row, quota=f"{row.quota}{factor or f', now {rate}'} by exemption {stands.exemption.name}")


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
        mode = _mode(entry)
        key = ", ".join(entry.key) + ("" if entry.percent in {0, 100} else f" ({entry.percent:g} % of them)")
        yield Limit(entry.name, mode, key, _written(entry.quota, policy.quota), _covers(entry.match))


def _mode(policy: PolicyEntry) -> str:
    """Return the mode that a policy is in, whatever it says: of 0 per cent of its keys, shadow."""
    return policy.mode if policy.mode != "enforce" or policy.percent > 0 else "shadow"


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
    met = [policy for policy in policies if policy.mode != "off" and policy.match.reaches(route)]
    enforced = [policy for policy in met if _mode(policy) == "enforce"]
    whole = any(policy.match.spans(route) and policy.percent == 100 for policy in enforced)
    word = "limited" if whole else "unlimited" if route.unlimited else "in part" if enforced else "without"
    names = ", ".join(_qualified(policy, route) for policy in met)
    by = route.unlimited if word == "unlimited" else names
    return Standing(route.name, route.path, word, by or "-")


def _qualified(policy: PolicyEntry, route: RouteEntry) -> str:
    """Return the name of a policy, and why it does not limit all of a route if it does not."""
    match = policy.match.model_copy(update={"route": None})
    why = [] if _mode(policy) == "enforce" else ["shadow"]
    why += [] if policy.match.spans(route) else [_covers(match)]
    why += [] if policy.percent in {0, 100} else [f"{policy.percent:g} % of keys"]
    return f"{policy.name} ({', '.join(why)})" if why else policy.name


def _upstreams(loaded: Loaded) -> Iterator[Limit]:
    settings = loaded.settings
    yield _connections("upstream", settings.upstream, "all other routes" if settings.upstreams else _EVERYWHERE)
    for name, upstream in settings.upstreams.items():
        covered = [route.name for route in settings.routes if route.upstream == name]
        yield _connections(f"upstream {name}", upstream, f"route {', '.join(covered)}" if covered else "nothing")


def _connections(key: str, upstream: UpstreamSection, covers: str) -> Limit:
    seats = f", {upstream.concurrency} in flight" if upstream.concurrency else ""
    return Limit("connections", "enforce", key, f"{upstream.max_connections} connections{seats}", covers)
