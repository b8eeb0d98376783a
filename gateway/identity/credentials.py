"""From header fields to at most one credential.

Rules
1. One pass over the fields, whose names are lower case. The target is never looked at: a credential in a URL ends up
   in every log on the way.
2. The same credential in several slots is one credential; two different ones are ambiguous, never merged and never
   ranked (a gateway and an upstream that rank differently see two callers in one request).
3. An empty slot is no credential.
4. A comma cannot be part of a bearer token, of base64 or of a token of ours, but it is what joins repeated lines
   (RFC 9110, 5.3): such a value is two credentials. Other schemes of Authorization (Digest, AWS4-HMAC-SHA256) have
   commas of their own; none of them is read here, so they are FOREIGN as they stand.
5. Nothing here knows what a token means: its kind is told by its own prefix and shape, later.
"""

from __future__ import annotations

import binascii
from enum import StrEnum
from typing import Final

from gateway.ports import Headers

__all__ = ["CREDENTIAL_FIELDS", "MAX_BASIC", "Presented", "extract"]

_SLOTS: Final = frozenset({b"authorization", b"private-token", b"job-token", b"x-api-key"})

#: Every field that can carry a credential: all are removed before forwarding once one was consumed. The upstream is
#: not our proxy, so Proxy-Authorization, which is read nowhere, never travels either.
CREDENTIAL_FIELDS: Final = _SLOTS | {b"proxy-authorization"}

#: Longest Basic value decoded, in bytes; the longest password it can hold is longer than any token we accept.
MAX_BASIC: Final = 32 * 1024

_BLANK: Final = b" \t"
#: As an octet: looked for as bytes it costs an exception inside.
_COMMA: Final = ord(",")


class Presented(StrEnum):
    """What the fields presented: nothing, one token to check, one credential we do not read, or several."""

    NOTHING = "nothing"
    TOKEN = "token"  # noqa: S105 - the name of a finding, not a secret
    FOREIGN = "foreign"
    AMBIGUOUS = "ambiguous"


_TOKEN: Final = Presented.TOKEN
_EMPTY: Final = Presented.NOTHING
_NOTHING: Final = (_EMPTY, b"")
_AMBIGUOUS: Final = (Presented.AMBIGUOUS, b"")


def extract(headers: Headers) -> tuple[Presented, bytes]:
    """Return what `headers` present and, for TOKEN, the token (not empty)."""
    found = _NOTHING
    for name, value in headers:
        if name in _SLOTS:
            here = _authorization(value) if name == b"authorization" else _token(value)
            if found[0] is _EMPTY:
                found = here
            elif here[0] is not _EMPTY and here != found:
                return _AMBIGUOUS
    return found


def _token(value: bytes) -> tuple[Presented, bytes]:
    token = value.strip(_BLANK)
    if _COMMA in token:
        return _AMBIGUOUS
    return (_TOKEN, token) if token else _NOTHING


def _authorization(value: bytes) -> tuple[Presented, bytes]:
    """Read one Authorization field: scheme, 1*SP, credential (RFC 9110, 11.6.2; schemes ignore case)."""
    if value[:7] == b"Bearer ":
        return _token(value[7:])
    scheme, _, rest = value.strip(_BLANK).partition(b" ")
    match scheme.lower():
        case b"bearer":
            return _token(rest)
        case b"basic":
            return _basic(rest)
        case b"":
            return _NOTHING
        case _:
            return Presented.FOREIGN, value.strip(_BLANK)


def _basic(encoded: bytes) -> tuple[Presented, bytes]:
    """Take the password as the token (RFC 7617). What cannot be decoded is somebody else's, as it stands."""
    presented = _token(encoded)
    if presented[0] is not _TOKEN:
        return presented
    value = presented[1]
    pair = _decode(value)
    if pair is None or b":" not in pair:
        return Presented.FOREIGN, b"Basic " + value
    user, _, password = pair.partition(b":")
    if password:
        return _TOKEN, password
    return (Presented.FOREIGN, b"Basic " + value) if user else _NOTHING


def _decode(value: bytes) -> bytes | None:
    """Decode base64 as RFC 4648 writes it, padding and unused bits included; anything looser is None."""
    if len(value) > MAX_BASIC:
        return None
    try:
        decoded = binascii.a2b_base64(value, strict_mode=True)
    except binascii.Error:
        return None
    return decoded if binascii.b2a_base64(decoded, newline=False) == value else None
