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
    Duration,
    Id,
    Instant,
    Method,
    Methods,
    OwnId,
    PatDigests,
    PathPattern,
    Posture,
    Prefix,
    Quota,
    TenantQuota,
    Text,
    Weight,
    choice,
    count,
    real,
)
from gateway.config.table import Table
from policies.request import ANONYMOUS, REJECTED

__all__ = ["CredentialEntry", "ExemptionEntry", "MatchTable", "PolicyEntry", "RouteEntry", "TenantEntry"]

Seats = Annotated[int, count(1, 1_000_000)]

#: Identities that nobody proved: they have no quota of their own that could be raised.
_UNPROVED = frozenset({ANONYMOUS, REJECTED, "preflight"})


class CredentialEntry(Table):
    """A credential of a tenant: a PAT, or the key claim of a JWT."""

    id: OwnId = Field(description="Its name in figures; without pat, the JWT key claim")
    pat: PatDigests = Field((), description="sha256: and the hex digest of the whole token; a list while rotating")
    quota: Quota | None = Field(None, description="Its own allowance; without it, sized from its past")
    classes: Classes = Field(["interactive", "batch"], description="The classes it may use")
    concurrency: Seats | None = Field(None, description="Requests in flight")
    expires: Instant | None = Field(None, description="From then on it proves nothing")


class TenantEntry(Table):
    """A customer that fairness is owed to."""

    id: OwnId = Field(description="Its name in figures and in the tenant claim of tokens")
    weight: Weight = Field(1.0, description="Its share of the backstop when that is contended")
    quota: TenantQuota | None = Field(None, description='All its credentials together: a quota, or "sized"')
    concurrency: Seats | None = Field(None, description="Requests in flight, all its credentials together")
    credentials: tuple[CredentialEntry, ...] = Field((), description="Its credentials")


class RouteEntry(Table):
    """A named set of requests; the first match wins."""

    name: Id = Field(description="Its name in policies")
    path: PathPattern = Field(description="* is one segment, ** the rest; matched on the canonical path")
    methods: Methods | None = Field(None, description="Methods it covers; without it, all")
    cls: ClassName | None = Field(
        None, alias="class", description="Class of its requests; without it, the default class"
    )
    cost: Cost = Field(1.0, description="Request units of one request")
    upstream: Id | None = Field(None, description="Name of an [upstreams.NAME]; without it, [upstream]")
    strip_prefix: Prefix = Field("", description="Leading segments that the upstream does not see")
    first_byte_timeout: Duration | None = Field(None, description="Instead of the upstream's")
    posture: Posture | None = Field(None, description="Instead of [store] posture")
    unlimited: str = Field("", description="A reason: says on purpose that no named policy covers it")

    def contradictions(self) -> Iterator[tuple[str, str]]:
        """What is stripped stands in front of every path of the route."""
        if self.strip_prefix and not f"{self.path}/".startswith(f"{self.strip_prefix}/"):
            yield "strip_prefix", f'expected the first segments of path "{self.path}", found "{self.strip_prefix}"'
        if self.first_byte_timeout == 0:
            yield "first_byte_timeout", "expected a duration above 0s, found 0s, which would never allow an answer"


class MatchTable(Table):
    """Which requests a policy or exemption covers; a key that is left out matches all."""

    identity: Annotated[str, choice("anonymous", "rejected", "user", "job", "preflight", "any")] = Field(
        "any", description="What the caller proved"
    )
    tenant: Id | None = Field(None, description="Id of a tenant")
    credential: Id | None = Field(None, description="Id of a credential")
    route: Id | None = Field(None, description="Name of a route")
    cls: ClassName | None = Field(None, alias="class", description="Class the request runs at")
    method: Method | None = Field(None, description="A method")


class PolicyEntry(Table):
    """A named limit besides the buckets that every key has."""

    name: OwnId = Field(description="The `limit` that refusals name")
    match: MatchTable = Field(default_factory=MatchTable, description="Which requests it covers")
    key: Characteristics = Field(
        description="What its buckets are kept by: address, tenant, credential, project, route, class"
    )
    quota: Quota = Field(description="What each of its buckets allows")
    mode: Annotated[str, choice("off", "shadow", "enforce")] = Field(
        "enforce", description="Whether it is asked, and counts"
    )
    percent: Annotated[float, real(0, 100)] = Field(
        100.0, description="Of keys, by a stable hash; the rest run in shadow"
    )


class ExemptionEntry(Table):
    """A higher quota that still counts; there is no bypass."""

    name: Id = Field(description="Its name in figures")
    match: MatchTable = Field(description="Which requests it covers; names a tenant or a credential")
    multiplier: Annotated[float, real(1, 1_000)] | None = Field(
        None, description="Of rate and burst of key, tenant and the named policies"
    )
    quota: Quota | None = Field(None, description="Instead of the tenant's or key's own")
    policies: tuple[Id, ...] = Field((), description="Names of policies it raises too; empty means key and tenant only")
    reason: Text = Field(description="Why, in words")
    owner: Text = Field(description="Who answers for it")
    expires: Instant = Field(description="When it ends")

    def contradictions(self) -> Iterator[tuple[str, str]]:
        """It raises what somebody proved to have, and only by one way."""
        if self.multiplier is not None and self.quota is not None:
            yield "quota", "expected either multiplier or quota, found both"
        if self.match.identity in _UNPROVED or self.match.tenant in _UNPROVED:
            yield "match", "expected callers who proved who they are, found some who did not"
        elif self.match.tenant is None and self.match.credential is None:
            yield "match", "expected a tenant or a credential, found neither"
