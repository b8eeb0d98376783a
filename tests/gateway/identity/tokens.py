"""Keys, tokens and clocks for the tests of identity.

The writer of tokens is our own, because most of what is worth sending is what no library would sign.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
from functools import cache
from typing import Any

import jwt
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, padding, rsa
from cryptography.hazmat.primitives.asymmetric.utils import decode_dss_signature

from gateway.clock import Clock
from policies.units import SECOND, Micros

__all__ = [
    "AUDIENCE",
    "ISSUER",
    "NOW",
    "SECRET",
    "ManualClock",
    "b64",
    "claims",
    "ec_key",
    "es256",
    "hs256",
    "jwk_of",
    "rs256",
    "rsa_key",
    "sha256",
    "unsigned",
]

ISSUER = "https://id.example.com"
AUDIENCE = "api"
SECRET = "a-shared-secret-of-more-than-thirty-two-bytes"
#: Where every ManualClock starts, in seconds.
NOW = 1_900_000_000


class ManualClock(Clock):
    """A clock that stands where it is put."""

    __slots__ = ("us",)

    def __init__(self, us: Micros = NOW * SECOND) -> None:
        super().__init__()
        self.us = us

    def now(self) -> Micros:
        return self.us

    def wall(self) -> Micros:
        return self.us


@cache
def rsa_key(name: str) -> rsa.RSAPrivateKey:
    """Return the RSA key of this name; the same one during a run."""
    del name
    return rsa.generate_private_key(public_exponent=65537, key_size=2048)


@cache
def ec_key(name: str) -> ec.EllipticCurvePrivateKey:
    """Return the P-256 key of this name; the same one during a run."""
    del name
    return ec.generate_private_key(ec.SECP256R1())


def jwk_of(key: rsa.RSAPrivateKey | ec.EllipticCurvePrivateKey, **members: Any) -> dict[str, Any]:
    """Return the public JWK of `key` with `members` beside it."""
    if isinstance(key, rsa.RSAPrivateKey):
        return jwt.algorithms.RSAAlgorithm.to_jwk(key.public_key(), as_dict=True) | members
    return jwt.algorithms.ECAlgorithm.to_jwk(key.public_key(), as_dict=True) | members


def claims(**changes: Any) -> dict[str, Any]:
    """Return good claims of tenant acme, credential sub-1, with `changes`; a value of None leaves the claim out."""
    good = {"iss": ISSUER, "aud": AUDIENCE, "exp": NOW + 600, "iat": NOW - 5, "tenant": "acme", "sub": "sub-1"}
    return {name: value for name, value in (good | changes).items() if value is not None}


def b64(data: bytes) -> bytes:
    """Return `data` as a segment."""
    return base64.urlsafe_b64encode(data).rstrip(b"=")


def unsigned(header: dict[str, Any], payload: dict[str, Any] | bytes) -> bytes:
    """Return the first two segments."""
    body = payload if isinstance(payload, bytes) else json.dumps(payload).encode()
    return b64(json.dumps(header).encode()) + b"." + b64(body)


def hs256(
    payload: dict[str, Any] | bytes, secret: str | bytes = SECRET, digest: str = "sha256", **header: Any
) -> bytes:
    """Return a token signed with HMAC; `header` adds to, or replaces, `alg` and `typ`."""
    signed = unsigned({"alg": "HS256", "typ": "JWT"} | header, payload)
    key = secret.encode() if isinstance(secret, str) else secret
    return signed + b"." + b64(hmac.digest(key, signed, digest))


def rs256(payload: dict[str, Any] | bytes, key: rsa.RSAPrivateKey, **header: Any) -> bytes:
    """Return a token signed with RSA."""
    signed = unsigned({"alg": "RS256", "typ": "JWT"} | header, payload)
    return signed + b"." + b64(key.sign(signed, padding.PKCS1v15(), hashes.SHA256()))


def es256(payload: dict[str, Any] | bytes, key: ec.EllipticCurvePrivateKey, **header: Any) -> bytes:
    """Return a token signed with ECDSA."""
    signed = unsigned({"alg": "ES256", "typ": "JWT"} | header, payload)
    r, s = decode_dss_signature(key.sign(signed, ec.ECDSA(hashes.SHA256())))
    return signed + b"." + b64(r.to_bytes(32, "big") + s.to_bytes(32, "big"))


def sha256(token: str) -> str:
    """Return what gateway.toml says of a PAT, computed by other means than ours."""
    return "sha256:" + hashlib.sha256(token.encode()).hexdigest()
