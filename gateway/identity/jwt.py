"""JSON Web Tokens of configured issuers (RFC 7519, RFC 8725).

Rules
1. Read once, strictly: three segments of unpadded canonical base64url, two JSON objects. Nothing is parsed twice, so
   what was looked at and what was verified cannot differ. PyJWT supplies the keys and the signatures (`keys.py`), not
   the parsing: its decoder walks every byte of a segment in Python, which a stranger could make the loop pay for.
2. The issuer named by the token, unverified, selects the configured entries; their keys, algorithm and audience verify
   it. An issuer nobody configured is NOT_MINE; after that, anything wrong is INVALID.
3. `crit` in any form is refused: no extension is understood here (RFC 7515, 4.1.11), and so is `b64` other than true.
   `jku`, `x5u`, `jwk` and `x5c` are never looked at.
4. `exp` is required and is the end. `nbf` and `iat` may be ahead by the leeway of two honest clocks.
5. Entries of one issuer and audience are tried in the order of the configuration, each with its own keys and claims.
"""

from __future__ import annotations

import binascii
import math
import re
from collections.abc import Iterable
from typing import Any, NamedTuple, Protocol

import orjson

from gateway.identity.answer import Answer, Finding, proven
from gateway.identity.keys import Keys
from gateway.identity.roster import Claimed, Roster, is_id
from policies.request import Kind
from policies.units import SECOND, Micros

__all__ = [
    "LEEWAY",
    "MAX_TOKEN",
    "ClaimMapping",
    "Claims",
    "Issuer",
    "Jwts",
    "Token",
    "UserMapping",
    "looks_like_jwt",
    "read",
]

#: Longest token read, in bytes. Those of large directories, with a group list, reach 8 KiB.
MAX_TOKEN = 16 * 1024

#: How far ahead `nbf` and `iat` may be. Envoy's filter allows 60 s unless told otherwise, PyJWT nothing.
LEEWAY: Micros = 30 * SECOND

#: Later than any expiry that matters, and within 63 bits (year 2255): larger ones are cut to it.
_LATEST: Micros = 9_000_000_000 * SECOND

Claims = dict[str, Any]

_URL_SAFE = bytes.maketrans(b"-_+/=", b"+/!!!")


class Token(NamedTuple):
    """A token taken apart, nothing verified; a signature that is no base64url is None."""

    header: dict[str, Any]
    claims: Claims
    signed: bytes
    signature: bytes | None


class ClaimMapping(Protocol):
    """How the claims of one entry name somebody."""

    def claimed(self, claims: Claims, expires_us: Micros) -> Claimed | None:
        """Return who `claims` say the holder is; None if they do not say it, or not with this entry's authority."""
        ...


class UserMapping(NamedTuple):
    """The claims of one `[[auth.jwt]]`."""

    tenants: re.Pattern[str]
    tenant_claim: str
    key_claim: str

    def claimed(self, claims: Claims, expires_us: Micros) -> Claimed | None:
        """Return the tenant and the credential that `claims` name."""
        tenant, key = claims.get(self.tenant_claim), claims.get(self.key_claim)
        if not is_id(tenant) or not is_id(key) or self.tenants.fullmatch(tenant) is None:
            return None
        return Claimed(Kind.USER, tenant, key, expires_us)


class Issuer(NamedTuple):
    """One `[[auth.jwt]]` or `[[auth.job]]`."""

    issuer: str
    audience: str
    keys: Keys
    mapping: ClaimMapping


def looks_like_jwt(token: bytes) -> bool:
    """Tell a JWT by its shape (RFC 7515, 7.1): three segments, the first starting as base64url of `{` does."""
    return token[:1] == b"e" and token.count(b".") == 2


def read(token: bytes) -> Token | None:
    """Take `token` apart, or return None if it is no JWT."""
    signed, _, signature = token.rpartition(b".")
    head, _, body = signed.partition(b".")
    header, claims = _object(head), _object(body)
    if header is None or claims is None:
        return None
    return Token(header, claims, signed, _decode(signature))


def _object(segment: bytes) -> dict[str, Any] | None:
    decoded = _decode(segment)
    if decoded is None:
        return None
    try:
        value = orjson.loads(decoded)
    except orjson.JSONDecodeError:
        return None
    return value if isinstance(value, dict) else None


def _decode(segment: bytes) -> bytes | None:
    """Decode canonical base64url: a second spelling of the same bytes would be a second spelling of the token."""
    standard = segment.translate(_URL_SAFE) + b"=" * (-len(segment) % 4)
    try:
        decoded = binascii.a2b_base64(standard, strict_mode=True)
    except binascii.Error:
        return None
    return decoded if binascii.b2a_base64(decoded, newline=False) == standard else None


class Jwts:
    """All configured issuers."""

    __slots__ = ("_issuers", "_roster")

    def __init__(self, issuers: Iterable[Issuer], roster: Roster) -> None:
        self._issuers: dict[str, list[Issuer]] = {}
        for entry in issuers:
            self._issuers.setdefault(entry.issuer, []).append(entry)
        self._roster = roster

    def check(self, token: bytes, wall: Micros) -> Finding:
        """Judge any token; what does not look like a JWT, or names no issuer of ours, is NOT_MINE."""
        if not looks_like_jwt(token):
            return Answer.NOT_MINE
        if len(token) > MAX_TOKEN:
            return Answer.INVALID
        parts = read(token)
        issuer = parts.claims.get("iss") if parts is not None else None
        entries = self._issuers.get(issuer) if isinstance(issuer, str) else None
        if parts is None or entries is None:
            return Answer.NOT_MINE
        return self._verified(parts, entries, wall)

    def _verified(self, parts: Token, entries: list[Issuer], wall: Micros) -> Finding:
        expires_us = _lifetime(parts.claims, wall)
        if expires_us is None:
            return Answer.INVALID
        for entry in entries:
            if _audience(parts.claims, entry.audience) and _signed(parts, entry.keys):
                claimed = entry.mapping.claimed(parts.claims, expires_us)
                principal = None if claimed is None else self._roster.principal(claimed, wall)
                if principal is not None:
                    return proven(principal)
        return Answer.INVALID


def _signed(parts: Token, keys: Keys) -> bool:
    header = parts.header
    algorithm, kid = header.get("alg"), header.get("kid")
    if "crit" in header or header.get("b64", True) is not True:
        return False
    if not isinstance(algorithm, str) or not (isinstance(kid, str) or "kid" not in header):
        return False
    key = keys.find(kid, algorithm)
    return key is not None and parts.signature is not None and key.verify(parts.signed, parts.signature)


def _audience(claims: Claims, audience: str) -> bool:
    """Compare exactly; a list may name other services too (RFC 7519, 4.1.3)."""
    named = claims.get("aud")
    return audience in named if isinstance(named, list) else named == audience


def _lifetime(claims: Claims, wall: Micros) -> Micros | None:
    """Return the expiry of a token that is alive at `wall`, or None."""
    expires_us = _instant(claims.get("exp"))
    if expires_us is None or expires_us <= wall:
        return None
    for name in ("nbf", "iat"):
        if name in claims:
            start_us = _instant(claims[name])
            if start_us is None or start_us > wall + LEEWAY:
                return None
    return min(expires_us, _LATEST)


def _instant(value: object) -> Micros | None:
    """Read a NumericDate (RFC 7519, section 2); true is no number, and infinity no instant."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        return None
    return int(value) * SECOND
