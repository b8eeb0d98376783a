"""Whose history a row is: a user's key, a project's, or a tenant's as a whole."""

from __future__ import annotations

from typing import NamedTuple

from policies.request import Kind, Principal, key_name

__all__ = ["TENANT", "Identity", "tenant_identity"]

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


def tenant_identity(tenant: str) -> Identity:
    """Return the identity of a tenant as a whole."""
    return Identity(key_name(tenant=tenant), TENANT, tenant)
