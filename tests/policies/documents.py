"""Documents and questions for tests of the core, in as few words as a row of a table."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any

from policies.policy import ClassRule, CredentialRules, PolicySet, Quota, Sizing, TenantRules
from policies.request import ANONYMOUS, REJECTED, Class, Kind, Principal
from policies.units import SECOND, Rate

__all__ = [
    "CLASSES", "Step", "acme", "anonymous", "credential", "job", "policy_set", "quota", "rejected", "tenants", "user",
]  # fmt: skip

CLASSES = (ClassRule(priority=0), ClassRule(priority=1, reserve=0.25, floor=0.05))


def quota(rate: float | Fraction, burst: float = 1.0) -> Quota:
    """Return a quota of `rate` units a second."""
    return Quota(Rate(Fraction(rate)), burst)


def credential(name: str, allowed: Quota | None = None, **changes: Any) -> CredentialRules:
    """Return the entry of one credential."""
    return CredentialRules(name, allowed, **changes)


def tenants(*entries: TenantRules) -> Mapping[str, TenantRules]:
    """Return tenants by id."""
    return {entry.id: entry for entry in entries}


def acme(*credentials: CredentialRules, **changes: Any) -> TenantRules:
    """Return the tenant `acme`."""
    return TenantRules("acme", credentials={entry.id: entry for entry in credentials}, **changes)


def policy_set(**changes: Any) -> PolicySet:
    """Return a policy set with roomy limits, changed by keyword."""
    sizing = Sizing(
        initial=quota(20, 20),
        floor=quota(5, 5),
        window_us=30 * 86_400 * SECOND,
        peak_interval_us=10 * SECOND,
        multiplier=2.0,
        learn_us=7 * 86_400 * SECOND,
        ceiling=0.5,
        max_growth_per_day=1.25,
        max_growth_per_month=3.0,
        max_shrink_per_day=0.9,
    )
    plain = PolicySet(
        classes=CLASSES,
        default_class=Class.INTERACTIVE,
        backstop=quota(1000, 1000),
        anonymous=quota(5, 20),
        anonymous_weight=1.0,
        rejected=quota(1, 60),
        preflight=quota(10, 50),
        sizing=sizing,
        unlisted_weight=1.0,
        tenants=tenants(acme(credential("ci", quota(10, 20)))),
    )
    return replace(plain, **changes)


def user(tenant: str = "acme", name: str = "ci", **changes: Any) -> Principal:
    """Return who proved to be credential `name` of `tenant`."""
    return Principal(Kind.USER, tenant, name, **changes)


def job(tenant: str = "acme", project: str = "web") -> Principal:
    """Return a job of a project."""
    return Principal(Kind.JOB, tenant, project, highest=Class.BATCH, job="7")


def anonymous(address: str = "192.0.2.1") -> Principal:
    """Return a caller without a credential."""
    return Principal(Kind.ANONYMOUS, ANONYMOUS, address)


def rejected(address: str = "192.0.2.1") -> Principal:
    """Return a caller whose credential proved nothing."""
    return Principal(Kind.REJECTED, REJECTED, address)


@dataclass(frozen=True)
class Step:
    """One ask on a bucket."""

    cost: float = 1.0
    low: bool = False
    reserve: float = 0.0
    floor: float = 0.0
