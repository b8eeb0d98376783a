"""Credentials for tests: personal access tokens as the contract writes them, made from a name, so that runs repeat."""

from __future__ import annotations

import hashlib
import zlib
from dataclasses import dataclass

__all__ = ["Pat", "mistyped", "pat"]

ALPHABET = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"


@dataclass(frozen=True, slots=True)
class Pat:
    """A token, and what gateway.toml says of it."""

    token: str
    digest: str


def pat(name: str, prefix: str = "evh_pat_") -> Pat:
    """Return the token that belongs to `name`."""
    secret = _base62(int.from_bytes(hashlib.sha256(name.encode()).digest()), 30)
    token = f"{prefix}{secret}{_base62(zlib.crc32(secret.encode()), 6)}"
    return Pat(token, "sha256:" + hashlib.sha256(token.encode()).hexdigest())


def mistyped(token: str) -> str:
    """Return `token` with its last character but four replaced by another of the alphabet."""
    at = len(token) - 5
    other = ALPHABET[(ALPHABET.find(token[at]) + 1) % len(ALPHABET)]
    return token[:at] + other + token[at + 1 :]


def _base62(number: int, width: int) -> str:
    """Return the lowest `width` base62 digits of `number`, zero-padded, most significant first."""
    digits = ""
    for _ in range(width):
        number, digit = divmod(number, 62)
        digits = ALPHABET[digit] + digits
    return digits
