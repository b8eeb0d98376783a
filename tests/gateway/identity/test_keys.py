"""Keys are pinned before any token is seen."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import orjson
import pytest
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from jwt.algorithms import OKPAlgorithm, RSAAlgorithm

from gateway.errors import ConfigError
from gateway.identity.keys import keys_of_file, keys_of_secret, keys_of_set
from tests.gateway.identity.tokens import SECRET, ec_key, jwk_of, rsa_key

__all__: list[str] = []

ALL = ("RS256", "RS512", "PS256", "ES256", "ES384", "ES512", "EdDSA")
RSA = rsa_key("issuer")


def one(member: dict[str, Any], *algorithms: str) -> list[str]:
    """Return the algorithms that the key of a set can be found by."""
    try:
        keys = keys_of_set({"keys": [member]}, algorithms or ALL, "here")
    except ConfigError:
        return []
    return [name for name in (*ALL, "HS256", "none") if keys.find(None, name) is not None]


@pytest.mark.parametrize(
    ("member", "algorithms", "pinned"),
    (
        (jwk_of(RSA), ("RS256",), ["RS256"]),
        (jwk_of(RSA), ("RS512", "RS256"), ["RS512"]),
        (jwk_of(RSA, alg="PS256"), ("RS256", "PS256"), ["PS256"]),
        (jwk_of(RSA, alg="RS512"), ("RS256",), []),
        (jwk_of(RSA), ("ES256",), []),
        (jwk_of(ec_key("issuer")), ("RS256", "ES256"), ["ES256"]),
        (jwk_of(ec_key("issuer")), ("ES384",), []),
        (jwk_of(ec_key("issuer"), crv="P-384"), ("ES384",), []),
        (jwk_of(ec.generate_private_key(ec.SECP521R1())), ALL, ["ES512"]),
        (OKPAlgorithm.to_jwk(ed25519.Ed25519PrivateKey.generate().public_key(), as_dict=True), ALL, ["EdDSA"]),
        (RSAAlgorithm.to_jwk(RSA, as_dict=True) | {"key_ops": ["sign", "verify"]}, ("RS256",), ["RS256"]),
        (jwk_of(RSA, use="sig"), ("RS256",), ["RS256"]),
        (jwk_of(RSA, use="enc"), ("RS256",), []),
        (jwk_of(RSA, key_ops=["encrypt"]), ("RS256",), []),
        (jwk_of(RSA, key_ops="verify"), ("RS256",), []),
        (jwk_of(RSA, kid=7), ("RS256",), []),
        (jwk_of(RSA, n="!"), ("RS256",), []),
        (jwk_of(RSA, kty="XX"), ("RS256",), []),
        ({"kty": "oct", "k": "c2VjcmV0"}, ("HS256",), []),
        ({"kty": "oct", "k": "c2VjcmV0", "alg": "RS256"}, ("RS256",), []),
    ),
)
def test_a_key_serves_one_algorithm(member: dict[str, Any], algorithms: tuple[str, ...], pinned: list[str]) -> None:
    """Its own `alg` if configured, else the first configured one of its type; anything else is not usable."""
    assert one(member, *algorithms) == pinned


def test_a_private_key_in_the_set_verifies_with_its_public_half() -> None:
    """Nothing private is even parsed."""
    private = RSAAlgorithm.to_jwk(RSA, as_dict=True) | {"key_ops": ["sign", "verify"]}
    keys = keys_of_set({"keys": [private]}, ["RS256"], "here")
    key = keys.find(None, "RS256")
    assert key is not None
    assert key.verify(b"x", b"y") is False


def test_a_kid_is_found_exactly_and_needed_among_several() -> None:
    """Without a kid, only a sole key is meant; with one, only that key, and only with its algorithm."""
    several = keys_of_set(
        {"keys": [jwk_of(RSA, kid="a"), jwk_of(rsa_key("other"), kid="b"), jwk_of(ec_key("issuer"), kid="a"), "junk"]},
        ["RS256", "ES256"],
        "here",
    )
    assert several.find("a", "RS256") is not several.find("a", "ES256")
    assert several.find("b", "ES256") is None
    assert several.find(None, "RS256") is None
    sole = keys_of_set({"keys": [jwk_of(RSA, kid="a")]}, ["RS256"], "here")
    assert sole.find(None, "RS256") is sole.find("a", "RS256")
    assert sole.find("A", "RS256") is None


@pytest.mark.parametrize(
    ("document", "words"),
    (
        ([], "JWK set"),
        ({"keys": {}}, "JWK set"),
        ({"keys": []}, "no key"),
        ({"keys": [jwk_of(ec_key("issuer"))]}, "no key of the set verifies RS256"),
        ({"keys": [jwk_of(RSA, kid="a"), jwk_of(rsa_key("other"), kid="a")]}, "same kid"),
    ),
)
def test_a_set_without_a_usable_key_stops_the_start(document: object, words: str) -> None:
    """The fault names its place in the configuration."""
    with pytest.raises(ConfigError, match=words) as caught:
        keys_of_set(document, ["RS256"], "auth.jwt[0].jwks_file")
    assert caught.value.faults[0].path == "auth.jwt[0].jwks_file"


def test_a_file_is_read_or_the_start_stops(tmp_path: Path) -> None:
    """Missing and malformed files are one sentence each."""
    file = tmp_path / "keys.json"
    with pytest.raises(ConfigError, match="cannot read"):
        keys_of_file(file, ["RS256"], "here")
    file.write_text("{")
    with pytest.raises(ConfigError, match="not JSON"):
        keys_of_file(file, ["RS256"], "here")
    file.write_bytes(orjson.dumps({"keys": [jwk_of(RSA)]}))
    assert keys_of_file(file, ["RS256"], "here").find(None, "RS256") is not None


def test_a_secret_is_one_key_without_a_kid(caplog: pytest.LogCaptureFixture) -> None:
    """Pinned to the first HMAC algorithm, whatever else is listed; what is ignored is said."""
    keys = keys_of_secret(SECRET, ["HS256"], "here")
    assert keys.find(None, "HS256") is not None
    assert keys.find("any", "HS256") is None
    assert not caplog.records
    assert keys_of_secret(SECRET, ["HS512", "HS256"], "here").find(None, "HS256") is None
    assert "never with HS256" in caplog.text


@pytest.mark.parametrize("form", ("pem", "ssh", "jwk", "empty"))
def test_a_secret_that_is_a_public_key_stops_the_start(form: str) -> None:
    """The text of a public key is known to everybody; nor does an empty secret prove anything."""
    public = RSA.public_key()
    text = {
        "pem": public.public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo).decode(),
        "ssh": public.public_bytes(Encoding.OpenSSH, PublicFormat.OpenSSH).decode(),
        "jwk": orjson.dumps(jwk_of(RSA)).decode(),
        "empty": "",
    }[form]
    with pytest.raises(ConfigError, match="expected a secret") as caught:
        keys_of_secret(text, ["HS256"], "here")
    assert text == "" or text not in str(caught.value)
    with pytest.raises(ConfigError, match="HS256"):
        keys_of_secret(SECRET, ["RS256"], "here")


def test_a_short_key_is_warned_of(caplog: pytest.LogCaptureFixture) -> None:
    """The name of the place and of the algorithm, nothing of the key."""
    with caplog.at_level(logging.WARNING):
        keys_of_secret("short", ["HS256"], "auth.jwt[0].secret")
        weak = rsa.generate_private_key(public_exponent=65537, key_size=1024)
        keys_of_set({"keys": [jwk_of(weak)]}, ["RS256"], "auth.jwt[1].jwks_file")
    assert "auth.jwt[0].secret: the key is shorter" in caplog.text
    assert "auth.jwt[1].jwks_file: the key is shorter" in caplog.text
    assert "short key" not in caplog.text
