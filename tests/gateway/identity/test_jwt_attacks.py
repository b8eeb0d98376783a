"""Public attacks on JSON Web Tokens: algorithm confusion, critical extensions, keys chosen by the token."""

from __future__ import annotations

import itertools
import json

import pytest
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from gateway.identity.answer import Answer
from gateway.ports import Resolution
from tests.gateway.identity.issuers import (
    EC,
    OTHER_RSA,
    RSA,
    SIGNED_BY_RSA,
    SIGNED_BY_SECRET,
    WALL,
    issuers,
    rsa_issuer,
)
from tests.gateway.identity.tokens import b64, claims, es256, hs256, jwk_of, rs256, unsigned

__all__: list[str] = []


def forged_with_public_key() -> list[bytes]:
    """HMAC over the text of the public key, in every form and length somebody might feed to a verifier."""
    public = RSA.public_key()
    texts = [
        public.public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo),
        public.public_bytes(Encoding.PEM, PublicFormat.PKCS1),
        public.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo),
        public.public_bytes(Encoding.OpenSSH, PublicFormat.OpenSSH),
        json.dumps(jwk_of(RSA, kid="k1")).encode(),
        json.dumps({"keys": [jwk_of(RSA, kid="k1")]}).encode(),
        b"",
    ]
    sizes = (("HS256", "sha256"), ("HS384", "sha384"), ("HS512", "sha512"))
    variants = [text for form in texts for text in {form, form.strip(), form + b"\n"}]
    return [hs256(claims(), text, digest, alg=alg, kid="k1") for text in variants for alg, digest in sizes]


@pytest.mark.parametrize("kid", ({}, {"kid": "k1"}), ids=("without kid", "with kid"))
@pytest.mark.parametrize("none", ["".join(c) for c in itertools.product(*zip("none", "NONE", strict=True))])
def test_case_013_algorithm_none(none: str, kid: dict[str, str]) -> None:
    """`none` in every letter case, with an empty, a rubbish and a good signature."""
    signed = unsigned({"alg": none} | kid, claims())
    good = rs256(claims(), RSA).rpartition(b".")[2]
    for signature in (b"", b"AAAA", good):
        assert SIGNED_BY_RSA.check(signed + b"." + signature, WALL) is Answer.INVALID
        assert SIGNED_BY_SECRET.check(signed + b"." + signature, WALL) is Answer.INVALID


@pytest.mark.parametrize("token", forged_with_public_key())
def test_case_013_public_key_as_secret(token: bytes) -> None:
    """No text of the trusted public key is a secret."""
    assert SIGNED_BY_RSA.check(token, WALL) is Answer.INVALID


@pytest.mark.parametrize("algorithm", (None, 7, True, ["RS256"], {"RS256": 1}, "", "rs256", "RS256 ", "RS512", "PS256"))
def test_case_013_the_token_never_chooses(algorithm: object) -> None:
    """A missing, mistyped or other algorithm fails even where the signature is right for the pinned one."""
    assert SIGNED_BY_RSA.check(rs256(claims(), RSA, alg=algorithm), WALL) is Answer.INVALID
    missing = unsigned({"typ": "JWT"}, claims())
    assert SIGNED_BY_RSA.check(missing + b".AAAA", WALL) is Answer.INVALID
    assert SIGNED_BY_RSA.check(es256(claims(), EC), WALL) is Answer.INVALID
    assert SIGNED_BY_RSA.check(es256(claims(), EC, alg="RS256"), WALL) is Answer.INVALID


@pytest.mark.parametrize(
    "crit", (["x"], [], "exp", ["exp"], ["x", "x"], None, 0, False, {}, ["b64"], [1], [["exp"]], "", ["alg"])
)
def test_case_015_critical_extensions(crit: object) -> None:
    """No extension is understood, so the mere presence of `crit` refuses."""
    assert SIGNED_BY_RSA.check(rs256(claims(), RSA, crit=crit), WALL) is Answer.INVALID
    assert SIGNED_BY_RSA.check(rs256(claims(), RSA, crit=crit, exp=1, x=1, b64=True), WALL) is Answer.INVALID


@pytest.mark.parametrize("value", (False, 0, None, "false", "true", []))
def test_case_015_unencoded_payload(value: object) -> None:
    """`b64` other than true (RFC 7797), the payload encoded or not."""
    assert SIGNED_BY_RSA.check(rs256(claims(), RSA, b64=value), WALL) is Answer.INVALID
    header = b64(json.dumps({"alg": "HS256", "b64": value, "crit": ["b64"]}).encode())
    raw = header + b"." + json.dumps(claims()).encode()
    assert not isinstance(SIGNED_BY_SECRET.check(raw + b".AAAA", WALL), Resolution)


KIDS: tuple[object, ...] = (
    None,
    0,
    1.5,
    True,
    [],
    ["k1"],
    {},
    {"k1": 1},
    "",
    "K1",
    "k1 ",
    "k1\x00",
    "../../x",
    "/dev/null",
    "' OR '1'='1",
    "http://127.0.0.1:1/keys",
    "x" * 10_000,
)


@pytest.mark.parametrize("kid", KIDS, ids=lambda kid: repr(kid)[:30])
def test_case_017_kid_is_an_opaque_lookup(kid: object) -> None:
    """Only the very string of the set is found; with a good signature and with HMAC over nothing alike."""
    two = issuers(rsa_issuer(jwk_of(RSA, kid="k1"), jwk_of(OTHER_RSA, kid="k2")))
    for checker in (SIGNED_BY_RSA, two):
        assert checker.check(rs256(claims(), RSA, kid=kid), WALL) is Answer.INVALID
        assert checker.check(hs256(claims(), b"", kid=kid), WALL) is Answer.INVALID
    assert SIGNED_BY_SECRET.check(hs256(claims(), kid=kid), WALL) is Answer.INVALID


def test_case_017_a_missing_kid_needs_a_sole_key() -> None:
    """With two keys and no kid, neither is tried."""
    two = issuers(rsa_issuer(jwk_of(RSA, kid="k1"), jwk_of(OTHER_RSA, kid="k2")))
    assert two.check(rs256(claims(), RSA), WALL) is Answer.INVALID
    assert isinstance(two.check(rs256(claims(), RSA, kid="k1"), WALL), Resolution)
    assert two.check(rs256(claims(), RSA, kid="k2"), WALL) is Answer.INVALID


def test_case_017_keys_inside_the_token_are_never_used(monkeypatch: pytest.MonkeyPatch) -> None:
    """`jku`, `x5u`, `jwk` and `x5c` are not looked at: no connection, no file, no key; a good token may carry them."""

    def touched(*_: object, **__: object) -> None:
        raise AssertionError("something was opened")

    monkeypatch.setattr("socket.socket.connect", touched)
    monkeypatch.setattr("socket.getaddrinfo", touched)
    monkeypatch.setattr("builtins.open", touched)
    for extra in (
        {"jku": "http://127.0.0.1:9/keys"},
        {"x5u": "http://127.0.0.1:9/cert"},
        {"jwk": jwk_of(OTHER_RSA)},
        {"jwk": jwk_of(OTHER_RSA, kid="k1"), "kid": "k1"},
        {"x5c": ["MIIB"]},
    ):
        assert SIGNED_BY_RSA.check(rs256(claims(), OTHER_RSA, **extra), WALL) is Answer.INVALID
        assert isinstance(SIGNED_BY_RSA.check(rs256(claims(), RSA, **extra), WALL), Resolution)


def test_the_signature_is_over_what_was_read() -> None:
    """Claims of one token under the signature of another prove nothing."""
    mine, theirs = rs256(claims(), RSA), rs256(claims(tenant="globex"), RSA)
    mixed = theirs.rpartition(b".")[0] + b"." + mine.rpartition(b".")[2]
    assert SIGNED_BY_RSA.check(mixed, WALL) is Answer.INVALID
