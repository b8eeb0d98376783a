"""Whose history a row is: a user's key, a project's, or a tenant's as a whole."""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple
from urllib.parse import unquote

from policies.request import Kind, Principal, key_name

__all__ = ["TENANT", "Identity", "identity_named", "tenant_identity"]

#: The kind of a tenant as a whole.
TENANT = "tenant"


class Identity(NamedTuple):
    """Whose history a row is: a user's key, a project's, or a tenant's as a whole."""

    name: str
    kind: str
    tenant: str
    credential: str = ""

    @classmethod
    def of(cls, principal: Principal) -> Identity:
        """Return that of a principal's key."""
        return cls(principal.name, principal.kind.value, principal.tenant, principal.credential)

    def principal(self) -> Principal:
        """Return who it is charged as; a tenant as a user with no name of its own."""
        kind = Kind.JOB if self.kind == Kind.JOB.value else Kind.USER
        return Principal(kind, self.tenant, self.credential or "*")


# Every tenant's is asked for thrice in ten seconds, and to quote a name takes longer than to write its row.
@lru_cache(maxsize=16_384)
def tenant_identity(tenant: str) -> Identity:
    """Return the identity of a tenant as a whole."""
    return Identity(key_name(tenant=tenant), TENANT, tenant)


def identity_named(name: str) -> Identity:
    """Return the identity that has a name."""
    parts = {kind: unquote(value) for kind, _, value in (part.partition("=") for part in name.split(","))}
    tenant = parts["tenant"]
    if "project" in parts:
        return Identity.of(Principal(Kind.JOB, tenant, parts["project"]))
    return (
        Identity.of(Principal(Kind.USER, tenant, parts["credential"]))
        if "credential" in parts
        else tenant_identity(tenant)
    )
