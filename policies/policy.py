"""Documents of the core: what an operator configured, frozen. `gateway/config` builds them from gateway.toml.

Rules
1. Everything here is immutable once built; a reload builds a new `PolicySet`.
2. A quota's burst is always resolved: defaults are applied when the document is built, never when it is read.
3. No value here was written by a caller.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import NamedTuple

from policies.request import Class, Kind, Principal
from policies.units import Micros, Rate, RequestUnits, Seats

__all__ = [
    "Characteristic",
    "ClassRule",
    "CredentialRules",
    "Exemption",
    "Match",
    "Mode",
    "Pause",
    "Policy",
    "PolicySet",
    "PostureAct",
    "Quota",
    "Route",
    "Sized",
    "Sizing",
    "TenantRules",
    "Term",
]


class Mode(StrEnum):
    """Whether a limit is asked, and whether its answer counts."""

    OFF = "off"
    SHADOW = "shadow"
    ENFORCE = "enforce"


class Characteristic(StrEnum):
    """What a named policy can key its buckets by."""

    ADDRESS = "address"
    TENANT = "tenant"
    CREDENTIAL = "credential"
    PROJECT = "project"
    ROUTE = "route"
    CLASS = "class"


@dataclass(frozen=True, slots=True)
class Quota:
    """An allowance of request units: a rate, and how many may come at once."""

    rate: Rate
    burst: RequestUnits


@dataclass(frozen=True, slots=True)
class ClassRule:
    """One traffic class. Parts are fractions from 0 to 1 of a bucket's burst (reserve) or rate (floor, ceiling)."""

    priority: int
    reserve: float = 0.0
    floor: float = 0.0
    ceiling: float = 1.0


@dataclass(frozen=True, slots=True)
class Match:
    """Which requests a policy or exemption covers; None matches all. `identity` None is the config's `any`."""

    identity: Kind | None = None
    tenant: str | None = None
    credential: str | None = None
    route: str | None = None
    cls: Class | None = None
    method: str | None = None

    def covers(self, principal: Principal, cls: Class, route: str, method: str) -> bool:
        """Return whether a request falls under this; `route` is "" when none matched.

        A credential is what a USER presented. A job's project and an anonymous caller's address are none, so an entry
        that names a credential never covers those, whatever they are called.
        """
        return (
            (self.identity is None or self.identity is principal.kind)
            and (self.tenant is None or self.tenant == principal.tenant)
            and (self.credential is None or (principal.kind is Kind.USER and self.credential == principal.credential))
            and (self.route is None or self.route == route)
            and (self.cls is None or self.cls is cls)
            and (self.method is None or self.method == method)
        )


@dataclass(frozen=True, slots=True)
class Policy:
    """A named limit besides the buckets every key has. `percent` of its keys are enforced, the rest run in shadow."""

    name: str
    match: Match
    key: tuple[Characteristic, ...]
    quota: Quota
    mode: Mode = Mode.ENFORCE
    percent: float = 100.0


@dataclass(frozen=True, slots=True)
class Exemption:
    """A higher quota that still counts; there is no bypass. Either `multiplier` or `quota`."""

    name: str
    match: Match
    reason: str
    owner: str
    expires_us: Micros
    multiplier: float | None = None
    quota: Quota | None = None
    policies: tuple[str, ...] = ()
    #: Made by an operator's act on the running gateway, not by its file.
    act: bool = False


@dataclass(frozen=True, slots=True)
class Pause:
    """Nothing that `match` covers is admitted until `expires_us`: an act of an operator."""

    name: str
    match: Match
    reason: str
    owner: str
    expires_us: Micros


@dataclass(frozen=True, slots=True)
class PostureAct:
    """What is answered without a store until `expires_us`, on one route or, with None, on all without their own."""

    name: str
    posture: str
    route: str | None
    reason: str
    owner: str
    expires_us: Micros


@dataclass(frozen=True, slots=True)
class Route:
    """A named set of requests, with class and cost of each. `path` is as configured: `*` one segment, `**` the rest."""

    name: str
    path: str
    methods: frozenset[str] | None = None
    cls: Class | None = None
    cost: RequestUnits = 1.0
    posture: str | None = None
    unlimited: str = ""


@dataclass(frozen=True, slots=True)
class CredentialRules:
    """A credential of a tenant. Without a `quota` its key is sized from its own past."""

    id: str
    quota: Quota | None = None
    highest: Class = Class.INTERACTIVE
    concurrency: Seats | None = None


@dataclass(frozen=True, slots=True)
class TenantRules:
    """A tenant. `quota` bounds all its credentials together; None is no tenant bucket; `sized` is one from its past."""

    id: str
    weight: float = 1.0
    quota: Quota | None = None
    sized: bool = False
    concurrency: Seats | None = None
    credentials: Mapping[str, CredentialRules] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Sizing:
    """How the quota of a key that has none of its own follows from its past (design 1.4)."""

    initial: Quota
    floor: Quota
    window_us: Micros
    peak_interval_us: Micros
    multiplier: float
    learn_us: Micros
    ceiling: float
    max_growth_per_day: float
    max_growth_per_month: float
    max_shrink_per_day: float


class Term(NamedTuple):
    """One step on the way to a sized quota: its name, what it added (nano-units a second), and why."""

    name: str
    delta: int
    detail: str


@dataclass(frozen=True, slots=True)
class Sized:
    """A quota that follows from the past of a key or tenant, and where it comes from (`sizing_past.py`).

    `quota` is in force from `day` (days since the epoch); before `learn` it is what the key started with, and
    `next_quota` what its past says. The terms add up to the rate of `next_quota`. `grown` is that rate over what it was
    30 days ago, `flagged` if it more than doubled. `peak` and `offered` are units a second.
    """

    quota: Quota
    mode: Mode
    provenance: str
    day: int
    next_quota: Quota
    terms: tuple[Term, ...] = ()
    peak: float = 0.0
    peak_hour: int = 0
    peak_rule: str = ""
    grown: float = 1.0
    flagged: bool = False
    starved: bool = False
    proposal: Quota | None = None
    offered: float = 0.0


@dataclass(frozen=True, slots=True)
class PolicySet:
    """Everything that decides, from one gateway.toml.

    `classes` is indexed by `Class`. `unlisted_weight` is the weight of all tenants nobody listed, together. `sized`
    holds what history knows, by the names of keys (`Principal.name`) and of tenants (`tenant=acme`). `posture` answers
    where no store does, unless a route or an act says otherwise; `safe_fraction` is the part of each limit that safe
    capacity allows.
    """

    classes: tuple[ClassRule, ...]
    default_class: Class
    backstop: Quota
    anonymous: Quota
    anonymous_weight: float
    rejected: Quota
    preflight: Quota
    sizing: Sizing
    unlisted_weight: float
    max_unlisted_tenants: int = 10_000
    backstop_status: int = 429
    mode: Mode = Mode.ENFORCE
    tenants: Mapping[str, TenantRules] = field(default_factory=dict)
    routes: tuple[Route, ...] = ()
    policies: tuple[Policy, ...] = ()
    exemptions: tuple[Exemption, ...] = ()
    pauses: tuple[Pause, ...] = ()
    posture: str = "safe-capacity"
    safe_fraction: float = 0.5
    #: In the order in which they were made.
    posture_acts: tuple[PostureAct, ...] = ()
    sized: Mapping[str, Sized] = field(default_factory=dict)
