"""What is known of a request before it is judged, and who it proved to come from.

Rules
1. Facts are observations. A fact decides nothing by itself; a header is a fact, an identity is not.
2. A `Principal` exists only for what was verified, or says expressly that nothing was (ANONYMOUS, PREFLIGHT, REJECTED).
3. `Principal.name` is the identity charged, and is one-to-one: two principals share a bucket if and only if they are
   the same. It is built from named characteristics, each percent-encoded, so no value can imitate a separator.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import IntEnum, StrEnum
from urllib.parse import quote

from policies.native import mypyc_attr
from policies.units import Micros

__all__ = ["ANONYMOUS", "REJECTED", "Class", "Kind", "Principal", "RequestFacts", "key_name"]

#: Reserved tenants: all callers without a credential, and all whose credential proved nothing.
ANONYMOUS = "anonymous"
REJECTED = "rejected"


class Class(IntEnum):
    """Traffic class; the value is its place in every table of classes."""

    INTERACTIVE = 0
    BATCH = 1

    @property
    def label(self) -> str:
        """The word users see: `interactive` or `batch`."""
        return _CLASS_LABELS[self]


_CLASS_LABELS = ("interactive", "batch")


class Kind(StrEnum):
    """What a principal rests on; the `identity` a policy can match."""

    USER = "user"
    JOB = "job"
    ANONYMOUS = "anonymous"
    PREFLIGHT = "preflight"
    REJECTED = "rejected"


def key_name(**characteristics: str) -> str:
    """Name a bucket by its characteristics: `tenant=acme,credential=ci`; each value is percent-encoded (RFC 3986)."""
    return ",".join(f"{name}={quote(value, safe='')}" for name, value in characteristics.items())


@dataclass(slots=True, init=False, unsafe_hash=True)
class Principal:
    """Who a request proved to come from.

    `credential` is the id of the credential of a USER, the project of a JOB, and the address (or IPv6 prefix) of
    everybody else. `highest` is the highest class this credential may use. `listed` is false for a tenant that only a
    token vouches for. `expires_us` is wall-clock Unix time. `proved` is (tenant, credential) as the token says them,
    where more tenants are about than are told apart: it is charged and counted as the one they all are, and the
    upstream is told the truth. Nothing in here is secret.

    Nobody changes one. It is not frozen only because of the first two, which are no part of it but room for what others
    find by it: `plan` is its planner's, `said` whose job it is to tell an upstream. What every request reads comes
    first: with ten thousand tenants each line of the processor's cache is one that nobody had lately.
    """

    plan: object | None = field(init=False, compare=False, repr=False)
    said: bytes = field(init=False, compare=False, repr=False)
    highest: Class
    kind: Kind
    tenant: str
    credential: str
    listed: bool
    job: str | None
    expires_us: Micros | None
    proved: tuple[str, str] | None = field(compare=False)
    name: str = field(init=False, compare=False)

    # Written out: fields are here in the order in which they are read, and arguments in that in which they are said.
    def __init__(
        self,
        kind: Kind,
        tenant: str,
        credential: str,
        highest: Class = Class.INTERACTIVE,
        listed: bool = True,  # noqa: FBT002 - as above
        job: str | None = None,
        expires_us: Micros | None = None,
        proved: tuple[str, str] | None = None,
    ) -> None:
        self.plan = None
        self.said = b""
        self.highest = highest
        self.kind = kind
        self.tenant = tenant
        self.credential = credential
        self.listed = listed
        self.job = job
        self.expires_us = expires_us
        self.proved = proved
        match kind:
            case Kind.USER:
                self.name = key_name(tenant=tenant, credential=credential)
            case Kind.JOB:
                self.name = key_name(tenant=tenant, project=credential)
            case _:
                self.name = key_name(**{kind.value: credential})

    @property
    def spoken(self) -> tuple[str, str]:
        """Tenant and credential as they were proved: what the upstream is told."""
        return self.proved or (self.tenant, self.credential)


@mypyc_attr(acyclic=True, free_list_len=1)
@dataclass(slots=True, init=False)
class RequestFacts:
    """What was observed of one request. Not frozen only because one is made for every request; nobody changes it.

    `path` is the canonical path that routes match on (never what is forwarded). `address` is the caller's address after
    the trusted proxies, an IPv6 one cut to its prefix, or `unix`. `asked_class` is the `Evenhand-Class` field as sent,
    `trace` the `traceparent` field as sent (W3C Trace Context), whatever it holds.
    """

    method: str
    path: str
    address: str
    asked_class: str | None
    preflight: bool
    trace: str | None

    # Written out: the one that `dataclass` makes is interpreted even where this is compiled.
    def __init__(
        self,
        method: str,
        path: str,
        address: str,
        asked_class: str | None = None,
        preflight: bool = False,  # noqa: FBT002 - as a dataclass has it, by place
        trace: str | None = None,
    ) -> None:
        self.method = method
        self.path = path
        self.address = address
        self.asked_class = asked_class
        self.preflight = preflight
        self.trace = trace
