"""Secrets in gateway.toml, and digests of them.

Rules
1. No message quotes one, not even a bad one: what is wrong with it is said in words.
2. A secret travels as SecretStr, whose repr is stars.
"""

from __future__ import annotations

import re

from pydantic import SecretStr

__all__ = ["ALGORITHMS", "PAT", "parse_pats", "parse_secret", "parse_shared", "parse_token"]

#: RFC 7518 section 3.1 and RFC 8037; `none` is not among them, nor anything with SHA-1.
ALGORITHMS = (
    "RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA", "HS256", "HS384", "HS512",
)  # fmt: skip

#: The digest of a personal access token as `evenhand token` prints it.
PAT = "^sha256:[0-9a-f]{64}$"

_PAT = re.compile(PAT[1:-1], re.ASCII)
_VISIBLE = re.compile(r"[\x21-\x7e]*")


def parse_secret(value: object) -> SecretStr:
    """Parse a secret, which is not empty."""
    if not isinstance(value, str) or not value:
        raise ValueError("expected a secret that is not empty, found none")
    return SecretStr(str(value))


def parse_shared(value: object) -> SecretStr:
    """Parse a secret that need not be there, "" being none."""
    if not isinstance(value, str):
        raise ValueError("expected a secret as a string, found something else")  # noqa: TRY004 - pydantic collects only these
    return SecretStr(str(value))


def parse_token(value: object) -> SecretStr:
    """Parse a bearer token of visible ASCII characters (RFC 6750), "" being none."""
    if not isinstance(value, str) or not _VISIBLE.fullmatch(value):
        raise ValueError("expected a token of visible ASCII characters, found something else")
    return SecretStr(str(value))


def parse_pats(value: object) -> tuple[str, ...]:
    """Parse the digest of a token, or a list of them while rotating, to a tuple; () is the default, none."""
    if value == ():
        return ()
    digests = value if isinstance(value, list) else [value]
    if not digests:
        raise ValueError('expected at least one "sha256:..." digest, found an empty array')
    for digest in digests:
        if isinstance(digest, str) and digest.startswith("evh_"):
            raise ValueError('expected the "sha256:..." digest of a token, found a token itself')
        if not isinstance(digest, str) or not _PAT.fullmatch(digest):
            raise ValueError('expected "sha256:" and 64 lower-case hexadecimal digits, found something else')
    return tuple(map(str, digests))
