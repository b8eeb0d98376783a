"""The entries of gateway.toml of which there can be any number: tenants, routes, policies, exemptions (contract 3)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated

from pydantic import Field

from gateway.config.kinds import (
    Characteristics,
    Classes,
    ClassName,
    Cost,
    Id,
    Instant,
    Method,
    Methods,
    Note,
    OwnId,
    PatDigests,
    PathPattern,
    Posture,
    Prefix,
    Quota,
    TenantQuota,
    Text,
    Wait,
    Weight,
    choice,
    count,
    real,
)
from gateway.config.table import Table, option, required
from policies.request import ANONYMOUS, REJECTED

__all__ = ["CredentialEntry", "ExemptionEntry", "MatchTable", "PolicyEntry", "RouteEntry", "TenantEntry"]

Seats = Annotated[int, count(1, 1_000_000)]

#: Identities that nobody proved: they have no quota of their own that could be raised.
_UNPROVED = frozenset({ANONYMOUS, REJECTED, "preflight"})


class CredentialEntry(Table):
    """A credential of a tenant: a PAT, or the key claim of a JWT."""

    id: OwnId = required("Its name in figures; without pat, the JWT key claim")
    pat: PatDigests = option((), doc="sha256: and the hex digest of the whole token; a list while rotating")
    quota: Quota | None = option(None, doc="Its own allowance; without it, sized from its past")
    classes: Classes = option(["interactive", "batch"], doc="The classes it may use")
    concurrency: Seats | None = option(None, doc="Requests in flight")
    expires: Instant | None = option(None, doc="From then on it proves nothing")


class TenantEntry(Table):
    """A customer that fairness is owed to."""

    id: OwnId = required("Its name in figures and in the tenant claim of tokens")
    weight: Weight = option(1.0, doc="Its share of the backstop when that is contended")
    quota: TenantQuota | None = option(None, doc='All its credentials together: a quota, or "sized"')
    concurrency: Seats | None = option(None, doc="Requests in flight, all its credentials together")
    credentials: tuple[CredentialEntry, ...] = option((), doc="Its credentials")


class RouteEntry(Table):
    """A named set of requests; the first match wins."""

    name: Id = required("Its name in policies")
    path: PathPattern = required("* is one segment, ** the rest; matched on the canonical path")
    methods: Methods | None = option(None, doc="Methods it covers; without it, all")
    cls: ClassName | None = option(None, alias="class", doc="Class of its requests; without it, the default class")
    cost: Cost = option(1.0, doc="Request units of one request")
    upstream: Id | None = option(None, doc="Name of an [upstreams.NAME]; without it, [upstream]")
    strip_prefix: Prefix = option("", doc="Leading segments that the upstream does not see")
    first_byte_timeout: Wait | None = option(None, doc="Instead of the upstream's")
    posture: Posture | None = option(None, doc="Instead of [store] posture")
    unlimited: Note = option("", doc="A reason: says on purpose that no named policy covers it")

    def contradictions(self) -> Iterator[tuple[str, str]]:
        """Strip only what stands in front of every path of the route."""
        if self.strip_prefix and not f"{self.path}/".startswith(f"{self.strip_prefix}/"):
            yield "strip_prefix", f'expected the first segments of path "{self.path}", found "{self.strip_prefix}"'


class MatchTable(Table):
    """Which requests a policy or exemption covers; a key that is left out matches all."""

    identity: Annotated[str, choice("anonymous", "rejected", "user", "job", "preflight", "any")] = option(
        "any", doc="What the caller proved"
    )
    tenant: Id | None = option(None, doc="Id of a tenant")
    credential: Id | None = option(None, doc="Id of a credential")
    route: Id | None = option(None, doc="Name of a route")
    cls: ClassName | None = option(None, alias="class", doc="Class the request runs at")
    method: Method | None = option(None, doc="A method")

    def reaches(self, route: RouteEntry) -> bool:
        """Return whether some request on `route` can be covered, whoever sends it."""
        method = "OPTIONS" if self.identity == "preflight" else self.method
        return self.route in {None, route.name} and (method is None or route.methods is None or method in route.methods)

    def spans(self, route: RouteEntry) -> bool:
        """Return whether every request on `route` is covered, whoever sends it."""
        narrowed = self.identity != "any" or self.tenant is not None or self.credential is not None
        return (
            not narrowed
            and self.route in {None, route.name}
            # Batch is the lowest class: nothing on a batch route runs at another.
            and (self.cls is None or self.cls == route.cls == "batch")
            and (self.method is None or route.methods == (self.method,))
        )


class PolicyEntry(Table):
    """A named limit besides the buckets that every key has."""

    name: OwnId = required("The `limit` that refusals name")
    match: MatchTable = Field(default_factory=MatchTable, description="Which requests it covers")
    key: Characteristics = required("What its buckets are kept by: address, tenant, credential, project, route, class")
    quota: Quota = required("What each of its buckets allows")
    mode: Annotated[str, choice("off", "shadow", "enforce")] = option("enforce", doc="Whether it is asked, and counts")
    percent: Annotated[float, real(0, 100)] = option(100.0, doc="Of keys, by a stable hash; the rest run in shadow")


class ExemptionEntry(Table):
    """A higher quota that still counts; there is no bypass."""

    name: Id = required("Its name in figures")
    match: MatchTable = required("Which requests it covers; names a tenant or a credential")
    multiplier: Annotated[float, real(1, 1_000)] | None = option(
        None, doc="Of rate and burst of key, tenant and the named policies"
    )
    quota: Quota | None = option(None, doc="Instead of the tenant's or key's own")
    policies: tuple[Id, ...] = option((), doc="Names of policies it raises too; empty means key and tenant only")
    reason: Text = required("Why, in words")
    owner: Text = required("Who answers for it")
    expires: Instant = required("When it ends")

    def contradictions(self) -> Iterator[tuple[str, str]]:
        """Raise only what somebody proved to have."""
        if self.match.identity in _UNPROVED or self.match.tenant in _UNPROVED:
            yield "match", "expected callers who proved who they are, found some who did not"
        elif self.match.tenant is None and self.match.credential is None:
            yield "match", "expected a tenant or a credential, found neither"
