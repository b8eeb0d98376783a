"""`[auth]` of gateway.toml: who may vouch for whom, and what is left to those who prove nothing (contract 3)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any

from pydantic import model_validator

from gateway.config.kinds import (
    Algorithm,
    Duration,
    Flag,
    HttpUrl,
    KeySetFile,
    Posture,
    Quota,
    Secret,
    SharedSecret,
    TenantPattern,
    Text,
    Weight,
    choice,
    count,
)
from gateway.config.table import Table, option, required

__all__ = ["AuthSection", "IntrospectionSection", "IssuerEntry", "JobIssuerEntry", "JwtIssuerEntry"]


_EMPTY = "expected at least one entry, found an empty array"


class IssuerEntry(Table):
    """An issuer of JWTs: who it is, how its signatures are checked, and whom it may speak for."""

    issuer: Text = required("The iss claim, exactly")
    audience: Text = required("The aud claim that tokens for this service carry")
    algorithms: tuple[Algorithm, ...] = option(
        ("RS256",), doc="Signature algorithms, never chosen by the token; HS256 with secret"
    )
    jwks_url: HttpUrl | None = option(None, doc="Where its key set is fetched from")
    jwks_file: KeySetFile = option("", doc="File that holds its key set")
    secret: SharedSecret = option("", doc="Shared secret of HS256, HS384 or HS512")
    jwks_stale: Duration = option("24h", doc="How long the last good key set serves when it cannot be fetched")
    allow_private: Flag = option(False, doc="The key set may be fetched from a private address, and by http")
    tenant_claim: Text = option("tenant", doc="The claim that names the tenant")
    tenants: tuple[TenantPattern, ...] = option(("*",), doc="The tenants this issuer may speak for")

    @model_validator(mode="before")
    @classmethod
    def _default_algorithm(cls, table: Any) -> Any:
        if isinstance(table, dict) and "algorithms" not in table and table.get("secret"):
            return {**table, "algorithms": ["HS256"]}
        return table

    def contradictions(self) -> Iterator[tuple[str, str]]:
        """Keep shared secrets to HS*, key sets to everything else (case 13: never both)."""
        for name in ("algorithms", "tenants"):
            if not getattr(self, name):
                yield name, _EMPTY
        symmetric = [name for name in self.algorithms if name.startswith("HS")]
        secret = self.secret.get_secret_value()
        if secret and len(symmetric) < len(self.algorithms):
            yield "algorithms", "expected HS256, HS384 or HS512 only, since there is a secret, found another"
        elif not secret and symmetric:
            yield "algorithms", f"expected no {symmetric[0]}, which needs a secret instead of a key set, found it"
        elif secret and symmetric and len(secret.encode()) * 8 < _bits(symmetric):
            yield (
                "secret",
                f"expected at least {_bits(symmetric) // 8} bytes for {symmetric[0]} (RFC 7518), found fewer",
            )
        if self.jwks_url and self.jwks_url.startswith("http:") and not self.allow_private:
            yield "jwks_url", "expected an address with https, or allow_private, found http"


def _bits(algorithms: list[str]) -> int:
    """Return the least bits of a key for these HS algorithms (RFC 7518 section 3.2)."""
    return max(int(name[2:]) for name in algorithms)


class JwtIssuerEntry(IssuerEntry):
    """An issuer of user tokens."""

    key_claim: Text = option("sub", doc="The claim that names the credential")


class JobIssuerEntry(IssuerEntry):
    """An issuer of CI job tokens: a bucket per project, class batch, parent the tenant."""

    tenant_claim: Text = option("namespace", doc="The claim that names the tenant")
    tenants: tuple[TenantPattern, ...] = required(doc="Required: a namespace is chosen by whoever registers it")
    project_claim: Text = option("project", doc="The claim that names the project")
    job_claim: Text = option("job", doc="The claim that names the job")


class IntrospectionSection(Table):
    """Opaque tokens known to another service (RFC 7662)."""

    url: HttpUrl = required("The introspection endpoint")
    client_id: Text = required("Our name there")
    client_secret: Secret = required("Our password there")
    tenant_field: Text = option("tenant", doc="The member of its answer that names the tenant")
    key_field: Text = option("sub", doc="The member that names the credential")
    cache: Duration = option("5s", doc="How long an answer holds; a revoked token lives as long")
    tenants: tuple[TenantPattern, ...] = option(("*",), doc="The tenants it may speak for")
    posture: Posture = option("closed", doc="When it does not answer")

    def contradictions(self) -> Iterator[tuple[str, str]]:
        """Let it speak for somebody."""
        if not self.tenants:
            yield "tenants", _EMPTY


class AuthSection(Table):
    """Identity: what is left to callers who prove nothing, and who may vouch for the others."""

    anonymous: Flag = option(True, doc="false: no credential is 401")
    unknown: Annotated[str, choice("reject", "anonymous")] = option(
        "reject",
        doc="A credential no entry here could have issued: 401, or forwarded untouched, charged to its address",
    )
    anonymous_quota: Quota = option("5/s burst 20", doc="Of each address without a credential")
    anonymous_weight: Weight = option(1.0, doc="All anonymous callers together are one tenant of this weight")
    rejected_quota: Quota = option("60/min burst 60", doc="Failed authentication, of each address")
    preflight_quota: Quota = option("10/s burst 50", doc="CORS preflights, of each address")
    max_unlisted_tenants: Annotated[int, count(1, 10_000_000)] = option(
        10_000, doc="Tenants proved by JWT without an entry; above it new ones share one bucket"
    )
    unlisted_weight: Weight | None = option(
        None, doc="Weight of all of them together; without it the sum of the listed weights, at least 1"
    )
    cache: Duration = option("10m", doc="How long a verified token is remembered, at most to its expiry")
    jwt: tuple[JwtIssuerEntry, ...] = option((), doc="Issuers of user tokens")
    job: tuple[JobIssuerEntry, ...] = option((), doc="Issuers of CI job tokens")
    introspection: IntrospectionSection | None = option(None, doc="Opaque tokens known to another service")
