"""From settings to the documents of the core (`policies/policy.py`): what depends on something else settled."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType

from gateway.config.auth import AuthSection
from gateway.config.entries import CredentialEntry, ExemptionEntry, MatchTable, PolicyEntry, RouteEntry, TenantEntry
from gateway.config.sections import InteractiveSection, SizingSection
from gateway.config.settings import Settings
from gateway.config.values import QuotaText
from policies.policy import (
    Characteristic,
    ClassRule,
    CredentialRules,
    Exemption,
    Match,
    Mode,
    Pause,
    Policy,
    PolicySet,
    Quota,
    Route,
    Sizing,
    TenantRules,
)
from policies.request import Class, Kind
from policies.units import Micros, RequestUnits

__all__ = ["act_exemption", "act_pause", "build_policies"]


def build_policies(settings: Settings) -> PolicySet:
    """Return everything that decides. `PolicySet.routes` has the same order as `settings.routes`."""
    auth, classes = settings.auth, settings.classes
    dearest = max((route.cost for route in settings.routes), default=1.0)
    return PolicySet(
        classes=(_class_rule(classes.interactive), _class_rule(classes.batch)),
        default_class=_class(classes.default),
        backstop=settings.backstop.quota.resolve(dearest),
        anonymous=_section_quota(auth, "anonymous_quota", dearest),
        anonymous_weight=auth.anonymous_weight,
        rejected=_section_quota(auth, "rejected_quota", dearest),
        preflight=_section_quota(auth, "preflight_quota", dearest),
        sizing=_sizing(settings.sizing, dearest),
        unlisted_weight=_unlisted_weight(settings),
        max_unlisted_tenants=auth.max_unlisted_tenants,
        backstop_status=settings.backstop.status,
        mode=Mode(settings.server.mode),
        tenants=MappingProxyType({tenant.id: _tenant(tenant, dearest) for tenant in settings.tenants}),
        routes=tuple(map(_route, settings.routes)),
        policies=tuple(_policy(policy, dearest) for policy in settings.policies),
        exemptions=tuple(_exemption(exemption, dearest) for exemption in settings.exemptions),
        posture=settings.store.posture,
        safe_fraction=settings.store.safe_fraction,
    )


def _section_quota(auth: AuthSection, key: str, dearest: RequestUnits) -> Quota:
    """Return a quota of `[auth]`; one that nobody wrote grows with the dearest route, as every default burst does."""
    quota: Quota = getattr(auth, key).resolve(dearest)
    return quota if key in auth.model_fields_set else Quota(quota.rate, max(quota.burst, dearest))


def _unlisted_weight(settings: Settings) -> float:
    if settings.auth.unlisted_weight is not None:
        return settings.auth.unlisted_weight
    return max(1.0, sum(tenant.weight for tenant in settings.tenants))


def _class(name: str) -> Class:
    return Class[name.upper()]


def _class_rule(section: InteractiveSection) -> ClassRule:
    return ClassRule(section.priority, section.reserve, section.floor, section.ceiling)


def _sizing(section: SizingSection, dearest: RequestUnits) -> Sizing:
    return Sizing(
        initial=section.initial.resolve(dearest),
        floor=section.floor.resolve(dearest),
        window_us=section.window,
        peak_interval_us=section.peak_interval,
        multiplier=section.multiplier,
        learn_us=section.learn,
        ceiling=section.ceiling,
        max_growth_per_day=section.max_growth_per_day,
        max_growth_per_month=section.max_growth_per_month,
        max_shrink_per_day=section.max_shrink_per_day,
    )


def _optional(quota: QuotaText | str | None, dearest: RequestUnits) -> Quota | None:
    return quota.resolve(dearest) if isinstance(quota, QuotaText) else None


def _tenant(entry: TenantEntry, dearest: RequestUnits) -> TenantRules:
    credentials: Mapping[str, CredentialRules] = {
        credential.id: _credential(credential, dearest) for credential in entry.credentials
    }
    return TenantRules(
        id=entry.id,
        weight=entry.weight,
        quota=_optional(entry.quota, dearest),
        sized=entry.quota == "sized",
        concurrency=entry.concurrency,
        credentials=MappingProxyType(credentials),
    )


def _credential(entry: CredentialEntry, dearest: RequestUnits) -> CredentialRules:
    return CredentialRules(
        id=entry.id,
        quota=_optional(entry.quota, dearest),
        highest=min(map(_class, entry.classes)),
        concurrency=entry.concurrency,
    )


def _route(entry: RouteEntry) -> Route:
    return Route(
        name=entry.name,
        path=entry.path,
        methods=None if entry.methods is None else frozenset(entry.methods),
        cls=None if entry.cls is None else _class(entry.cls),
        cost=entry.cost,
        posture=entry.posture,
        unlimited=entry.unlimited,
    )


def _match(table: MatchTable) -> Match:
    return Match(
        identity=None if table.identity == "any" else Kind(table.identity),
        tenant=table.tenant,
        credential=table.credential,
        route=table.route,
        cls=None if table.cls is None else _class(table.cls),
        method=table.method,
    )


def _policy(entry: PolicyEntry, dearest: RequestUnits) -> Policy:
    return Policy(
        name=entry.name,
        match=_match(entry.match),
        key=tuple(map(Characteristic, entry.key)),
        quota=entry.quota.resolve(dearest),
        mode=Mode(entry.mode),
        percent=entry.percent,
    )


def act_pause(name: str, match: MatchTable, reason: str, owner: str, expires: Micros) -> Pause:
    """Return a pause, which only ever comes of an operator's act."""
    return Pause(name, _match(match), reason, owner, expires)


def act_exemption(entry: ExemptionEntry, dearest: RequestUnits) -> Exemption:
    """Return an exemption that comes of an operator's act; `dearest` is the highest cost of any route."""
    return replace(_exemption(entry, dearest), act=True)


def _exemption(entry: ExemptionEntry, dearest: RequestUnits) -> Exemption:
    return Exemption(
        name=entry.name,
        match=_match(entry.match),
        reason=entry.reason,
        owner=entry.owner,
        expires_us=entry.expires,
        multiplier=entry.multiplier,
        quota=_optional(entry.quota, dearest),
        policies=entry.policies,
    )
