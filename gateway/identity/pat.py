"""Tokens of our own making: `evh_pat_`, 30 characters of base62, then 6 of CRC-32 over those 30.

Rules
1. The checksum proves nothing; it tells a typo from a token without a lookup, and lets a scanner recognise a leak.
2. Only the SHA-256 of a token is kept, in the configuration and here. 178 random bits need no slow hash, and a slow
   hash on this path would let fifteen bad calls a second stop the service.
3. Every well-formed token costs the same work, one hash and one lookup, whether unknown, revoked, expired or good.
   The lookup compares digests, so its timing tells nothing about any token.
"""

from __future__ import annotations

import hashlib
import secrets
import zlib
from collections.abc import Iterable, Sequence
from typing import NamedTuple, Protocol

from gateway.identity.answer import Answer, Finding, proven
from gateway.ports import Resolution
from policies.request import Principal
from policies.units import Micros

__all__ = ["JOB_PREFIX", "PAT_PREFIX", "Pats", "digest", "mint", "well_formed"]

PAT_PREFIX = "evh_pat_"
JOB_PREFIX = "evh_job_"

_RANDOM = 30
_LENGTH = 8 + _RANDOM + 6

_DIGITS = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
#: Two base62 digits at a time: six divisions in a loop cost more than the hash.
_PAIRS = tuple((high + low).encode() for high in _DIGITS for low in _DIGITS)
_BASE = len(_PAIRS)
_BASE_SQUARED = _BASE * _BASE


class _Source(Protocol):
    def choice(self, seq: Sequence[str], /) -> str: ...


def mint(source: _Source = secrets, prefix: str = PAT_PREFIX) -> str:
    """Return a new token; `source` draws its characters (`secrets`, unless a test wants the same one twice)."""
    body = "".join(source.choice(_DIGITS) for _ in range(_RANDOM))
    return prefix + body + _checksum(body.encode()).decode()


def digest(token: str) -> str:
    """Return what gateway.toml keeps of `token`: `sha256:` and 64 lower-case hexadecimal digits."""
    return "sha256:" + hashlib.sha256(token.encode()).hexdigest()


def well_formed(token: bytes) -> bool:
    """Tell whether `token`, whose prefix is ours, has the right length, alphabet and checksum."""
    return len(token) == _LENGTH and token[8:].isalnum() and _checksum(token[8:38]) == token[38:]


def _checksum(body: bytes) -> bytes:
    crc = zlib.crc32(body)
    return _PAIRS[crc // _BASE_SQUARED] + _PAIRS[crc // _BASE % _BASE] + _PAIRS[crc % _BASE]


class _Entry(NamedTuple):
    resolution: Resolution
    expires_us: Micros | None


class Pats:
    """The configured tokens, by digest. Removed ones are gone with the object a reload replaces."""

    __slots__ = ("_entries",)

    def __init__(self, entries: Iterable[tuple[bytes, Principal]]) -> None:
        """Take (SHA-256 digest, principal) pairs; several digests of one principal are a rotation."""
        self._entries = {key: _Entry(proven(principal), principal.expires_us) for key, principal in entries}

    def check(self, token: bytes, wall: Micros) -> Finding:
        """Judge a token that starts with `evh_pat_`; never NOT_MINE."""
        if not well_formed(token):
            return Answer.INVALID
        entry = self._entries.get(hashlib.sha256(token).digest())
        if entry is None or (entry.expires_us is not None and entry.expires_us <= wall):
            return Answer.INVALID
        return entry.resolution
