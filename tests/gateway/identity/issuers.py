"""Issuers that the tests of JWTs share."""

from __future__ import annotations

from typing import Any

from gateway.identity.answer import Answer, Finding
from gateway.identity.jwt import Issuer, Jwts, UserMapping
from gateway.identity.keys import keys_of_secret, keys_of_set
from gateway.identity.roster import Roster, Rules, glob
from gateway.ports import Resolution
from policies.request import Principal
from policies.units import SECOND
from tests.gateway.identity.tokens import (
    AUDIENCE,
    ISSUER,
    NOW,
    SECRET,
    ManualClock,
    ec_key,
    jwk_of,
    rsa_key,
)

__all__ = [
    "EC",
    "OTHER_RSA",
    "RSA",
    "SIGNED_BY_RSA",
    "SIGNED_BY_SECRET",
    "USER",
    "WALL",
    "issuers",
    "principal",
    "rsa_issuer",
    "secret_issuer",
]

RSA, OTHER_RSA, EC = rsa_key("issuer"), rsa_key("stranger"), ec_key("issuer")
USER = UserMapping(glob(["*"]), "tenant", "sub")
WALL = NOW * SECOND


def issuers(*entries: Issuer, **rules: Rules) -> Jwts:
    """Return a checker of these entries; `rules` are those of the listed tenant acme."""
    return Jwts(entries, Roster({"acme": rules}, 10, ManualClock()))


def rsa_issuer(*members: dict[str, Any], mapping: UserMapping = USER, audience: str = AUDIENCE) -> Issuer:
    """Return an entry with a key set, of one key `k1` unless told otherwise."""
    members = members or (jwk_of(RSA, kid="k1"),)
    return Issuer(ISSUER, audience, keys_of_set({"keys": list(members)}, ["RS256"], "here"), mapping)


def secret_issuer(mapping: UserMapping = USER, audience: str = AUDIENCE) -> Issuer:
    """Return an entry with a shared secret."""
    return Issuer(ISSUER, audience, keys_of_secret(SECRET, ["HS256"], "here"), mapping)


def principal(finding: Finding) -> Principal | Answer:
    """Return whom a finding proves, or what else it is."""
    return finding.principal if isinstance(finding, Resolution) else finding


SIGNED_BY_RSA = issuers(rsa_issuer())
SIGNED_BY_SECRET = issuers(secret_issuer())
