"""JSON Web Tokens of configured issuers: what is believed, and the attacks that are public."""

from __future__ import annotations

import itertools
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.identity.answer import Answer
from gateway.identity.job import JobMapping
from gateway.identity.jwt import LEEWAY, MAX_TOKEN, Issuer, UserMapping, looks_like_jwt, read
from gateway.identity.keys import keys_of_set
from gateway.identity.roster import Rules, glob
from gateway.ports import Resolution
from policies.request import Class, Kind, Principal
from policies.units import SECOND
from tests.gateway.identity.issuers import (
    EC,
    OTHER_RSA,
    RSA,
    SIGNED_BY_RSA,
    SIGNED_BY_SECRET,
    USER,
    WALL,
    issuers,
    principal,
    rsa_issuer,
)
from tests.gateway.identity.tokens import (
    AUDIENCE,
    ISSUER,
    NOW,
    b64,
    claims,
    ec_key,
    es256,
    hs256,
    jwk_of,
    rs256,
    unsigned,
)

__all__: list[str] = []


def test_a_good_token_proves_its_claims() -> None:
    """The tenant and the credential are the claims; the expiry is `exp`; the credential is consumed."""
    finding = SIGNED_BY_RSA.check(rs256(claims(), RSA, kid="k1"), WALL)
    assert principal(finding) == Principal(Kind.USER, "acme", "sub-1", expires_us=(NOW + 600) * SECOND)
    assert isinstance(finding, Resolution)
    assert finding.consumed
    assert finding.rejection is None


def test_every_pinned_algorithm_verifies() -> None:
    """HMAC, RSA and ECDSA, each with its own issuer's key."""
    by_ec = issuers(Issuer(ISSUER, AUDIENCE, keys_of_set({"keys": [jwk_of(EC)]}, ["ES256"], "here"), USER))
    assert isinstance(SIGNED_BY_SECRET.check(hs256(claims()), WALL), Resolution)
    assert isinstance(SIGNED_BY_RSA.check(rs256(claims(), RSA), WALL), Resolution)
    assert isinstance(by_ec.check(es256(claims(), EC), WALL), Resolution)
    assert by_ec.check(es256(claims(), ec_key("stranger")), WALL) is Answer.INVALID


@pytest.mark.parametrize(
    "token",
    (
        b"opaque",
        b"a.b.c",
        b"eyJ.e30.x",
        b"e30.e30.",
        b"..",
        b"e..",
        unsigned({"alg": "RS256"}, b"[]") + b".x",
        unsigned({"alg": "RS256"}, b"{") + b".x",
        unsigned({"alg": "RS256"}, claims(iss="https://elsewhere.example")) + b".x",
        unsigned({"alg": "RS256"}, claims(iss=None)) + b".x",
        unsigned({"alg": "RS256"}, claims(iss=[ISSUER])) + b".x",
        unsigned({"alg": "RS256"}, claims(iss=ISSUER + "/")) + b".x",
        rs256(claims(), RSA) + b".x",
        b"e" + b"x" * MAX_TOKEN,
    ),
)
def test_what_names_no_configured_issuer_is_not_ours(token: bytes) -> None:
    """Nor is what cannot be read as a JWT at all: nobody is accused of having issued it."""
    assert SIGNED_BY_RSA.check(token, WALL) is Answer.NOT_MINE


def test_what_is_too_long_to_read_proves_nothing() -> None:
    """A JWT beyond the bound is refused before any of it is decoded."""
    assert SIGNED_BY_RSA.check(rs256(claims(pad="x" * MAX_TOKEN), RSA), WALL) is Answer.INVALID
    assert isinstance(SIGNED_BY_RSA.check(rs256(claims(pad="x" * 8000), RSA), WALL), Resolution)


# ---- claims ----

SECONDS_OF_LEEWAY = LEEWAY // SECOND

BAD_CLAIMS = (
    {"aud": "other"},
    {"aud": ["other"]},
    {"aud": "API"},
    {"aud": "api "},
    {"aud": ""},
    {"aud": None},
    {"aud": {"api": 1}},
    {"aud": 1},
    {"exp": None},
    {"exp": NOW},
    {"exp": NOW - 1},
    {"exp": 0},
    {"exp": -1},
    {"exp": True},
    {"exp": "1900000600"},
    {"exp": [NOW + 600]},
    {"nbf": NOW + SECONDS_OF_LEEWAY + 1},
    {"iat": NOW + SECONDS_OF_LEEWAY + 1},
    {"nbf": "soon"},
    {"nbf": False},
    {"iat": "now"},
    {"tenant": None},
    {"tenant": ""},
    {"tenant": 7},
    {"tenant": ["acme"]},
    {"tenant": {"id": "acme"}},
    {"tenant": True},
    {"tenant": "a\nb"},
    {"tenant": "a\x00"},
    {"tenant": "a\x85"},
    {"tenant": "x" * 129},
    {"tenant": "é" * 65},
    {"sub": None},
    {"sub": 7},
    {"sub": ""},
    {"sub": "\x7f"},
    {"sub": "x" * 129},
)
RESERVED = "anonymous rejected other key tenant concurrency paused class share backstop posture connections"


@pytest.mark.parametrize("claim", ("tenant", "sub"))
@pytest.mark.parametrize("word", RESERVED.split())
def test_a_reserved_word_is_nobodys_id(claim: str, word: str) -> None:
    """In figures these words mean something else, so a token that uses one proves nothing."""
    assert SIGNED_BY_RSA.check(rs256(claims(**{claim: word}), RSA), WALL) is Answer.INVALID


@pytest.mark.parametrize("change", BAD_CLAIMS, ids=str)
def test_a_wrong_claim_proves_nothing(change: dict[str, Any]) -> None:
    """Audience and expiry are exact, instants are numbers, ids are ids of our own making; a good signature or not."""
    assert SIGNED_BY_RSA.check(rs256(claims(**change), RSA), WALL) is Answer.INVALID


@pytest.mark.parametrize(
    "raw",
    ("NaN", "Infinity", "-Infinity", "1e999", "1e400"),
)
def test_an_expiry_that_is_no_number_makes_no_token(raw: str) -> None:
    """What JSON cannot hold is not JSON."""
    body = json.dumps(claims(exp=0)).replace('"exp": 0', f'"exp": {raw}')
    assert SIGNED_BY_RSA.check(rs256(body.encode(), RSA), WALL) in set(Answer)


@pytest.mark.parametrize(
    "change",
    (
        {"aud": ["other", "api"]},
        {"exp": NOW + 0.5 + 1},
        {"exp": 10**17},
        {"exp": 1e300},
        {"exp": 10**40},
        {"nbf": NOW + SECONDS_OF_LEEWAY},
        {"iat": NOW + SECONDS_OF_LEEWAY},
        {"iat": None, "nbf": None},
        {"nbf": -5},
        {"tenant": "x" * 128},
        {"tenant": "é" * 64},
        {"tenant": "acme,credential=ci"},
        {"sub": "a b/c%"},
    ),
    ids=str,
)
def test_a_right_claim_is_believed(change: dict[str, Any]) -> None:
    """A list of audiences may name ours; clocks may differ a little; an id may hold anything but controls."""
    finding = SIGNED_BY_RSA.check(rs256(claims(**change), RSA), WALL)
    assert isinstance(finding, Resolution)
    assert finding.principal.expires_us is not None
    assert WALL < finding.principal.expires_us < 2**63


def test_a_token_ends_at_its_expiry() -> None:
    """Not one microsecond later."""
    token = rs256(claims(exp=NOW + 1), RSA)
    assert isinstance(SIGNED_BY_RSA.check(token, WALL + SECOND - 1), Resolution)
    assert SIGNED_BY_RSA.check(token, WALL + SECOND) is Answer.INVALID


@pytest.mark.parametrize(
    ("patterns", "tenant", "may"),
    (
        (["*"], "anything", True),
        (["acme"], "acme", True),
        (["acme"], "acme2", False),
        (["acme"], "Acme", False),
        (["acme-*"], "acme-eu", True),
        (["acme-*"], "acme", False),
        (["*.eu", "acme"], "shop.eu", True),
        (["*.eu", "acme"], "shopXeu", False),
        (["a.c"], "abc", False),
        (["[ab]"], "a", False),
        (["a*b*c"], "a-b-b-c", True),
        (["a?"], "ab", False),
    ),
)
def test_an_issuer_speaks_only_for_its_tenants(patterns: list[str], tenant: str, may: bool) -> None:
    """`*` is any characters; everything else is itself."""
    checker = issuers(rsa_issuer(mapping=UserMapping(glob(patterns), "tenant", "sub")))
    finding = checker.check(rs256(claims(tenant=tenant), RSA), WALL)
    assert isinstance(finding, Resolution) is may


def test_no_pattern_matches_no_tenant() -> None:
    """An empty list speaks for nobody."""
    assert glob([]).fullmatch("") is None


def test_a_listed_credential_has_its_rules_however_it_is_proved() -> None:
    """A batch-only credential stays batch-only; its own expiry counts beside the token's."""
    checker = issuers(
        rsa_issuer(),
        night=Rules(Class.BATCH, None),
        gone=Rules(Class.INTERACTIVE, WALL),
        brief=Rules(Class.INTERACTIVE, WALL + 5 * SECOND),
    )

    def ask(sub: str, tenant: str = "acme") -> Principal | Answer:
        return principal(checker.check(rs256(claims(sub=sub, tenant=tenant), RSA), WALL))

    exp = (NOW + 600) * SECOND
    assert ask("night") == Principal(Kind.USER, "acme", "night", Class.BATCH, expires_us=exp)
    assert ask("gone") is Answer.INVALID
    assert ask("brief") == Principal(Kind.USER, "acme", "brief", expires_us=WALL + 5 * SECOND)
    assert ask("unknown") == Principal(Kind.USER, "acme", "unknown", expires_us=exp)
    assert ask("night", "globex") == Principal(Kind.USER, "globex", "night", listed=False, expires_us=exp)


# ---- entries of one issuer ----


def test_entries_of_one_issuer_are_tried_by_audience_in_order() -> None:
    """A user and a CI job of the same issuer are told apart by audience, else by the first entry that is satisfied."""
    jobs = JobMapping(glob(["acme"]), "namespace", "project", "job")
    keys = keys_of_set({"keys": [jwk_of(RSA)]}, ["RS256"], "here")
    apart = issuers(rsa_issuer(), Issuer(ISSUER, "ci", keys, jobs))
    same = issuers(rsa_issuer(), Issuer(ISSUER, AUDIENCE, keys, jobs))
    job = {"namespace": "acme", "project": "acme/web", "job": 4711}
    exp = (NOW + 600) * SECOND
    expected = Principal(Kind.JOB, "acme", "acme/web", Class.BATCH, job="4711", expires_us=exp)
    only_job = rs256(claims(tenant=None, sub=None, aud="ci", **job), RSA)
    assert principal(apart.check(only_job, WALL)) == expected
    assert principal(apart.check(rs256(claims(aud=AUDIENCE, **job), RSA), WALL)) == Principal(
        Kind.USER, "acme", "sub-1", expires_us=exp
    )
    assert principal(apart.check(rs256(claims(aud="api2", **job), RSA), WALL)) is Answer.INVALID
    assert principal(same.check(rs256(claims(tenant=None, **job), RSA), WALL)) == expected


def test_two_issuers_do_not_share_keys() -> None:
    """A token is verified by the entry of the issuer it names and by no other."""
    keys = keys_of_set({"keys": [jwk_of(OTHER_RSA)]}, ["RS256"], "here")
    both = issuers(rsa_issuer(), Issuer("https://two.example", AUDIENCE, keys, USER))
    assert isinstance(both.check(rs256(claims(iss="https://two.example"), OTHER_RSA), WALL), Resolution)
    assert both.check(rs256(claims(), OTHER_RSA), WALL) is Answer.INVALID
    assert both.check(rs256(claims(iss="https://two.example"), RSA), WALL) is Answer.INVALID


# ---- the wire form ----


def test_a_token_has_one_spelling() -> None:
    """Every single changed character of a good token proves nothing, the unused bits of the last one included."""
    token = rs256(claims(), RSA, kid="k1")
    for at, char in itertools.product(range(len(token)), b"Aw-="):
        changed = token[:at] + bytes([char]) + token[at + 1 :]
        if changed != token:
            assert not isinstance(SIGNED_BY_RSA.check(changed, WALL), Resolution), (at, char)


@pytest.mark.parametrize("change", (lambda t: t + b"=", lambda t: t + b"==", lambda t: t.replace(b"-", b"+") + b"+"))
def test_padding_and_the_other_alphabet_are_refused(change: Any) -> None:
    """Base64url without padding, as RFC 7515 writes it."""
    assert SIGNED_BY_RSA.check(change(rs256(claims(), RSA)), WALL) is Answer.INVALID


@given(st.binary(max_size=200), st.binary(max_size=200), st.binary(max_size=80))
def test_no_bytes_can_raise(head: bytes, body: bytes, signature: bytes) -> None:
    """Whatever the three segments hold, raw or encoded, there is an answer."""
    for token in (head + b"." + body + b"." + signature, b".".join(map(b64, (head, body, signature)))):
        assert SIGNED_BY_RSA.check(token, WALL) in set(Answer)
        read(token)
        looks_like_jwt(token)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=5,
)


@given(
    st.dictionaries(st.sampled_from(["alg", "kid", "crit", "b64", "typ", "jwk"]), JSON),
    st.dictionaries(st.sampled_from(["aud", "exp", "nbf", "iat", "tenant", "sub"]), JSON),
    st.booleans(),
)
def test_no_json_can_raise(header: dict[str, Any], payload: dict[str, Any], signed: bool) -> None:
    """Whatever JSON the header and the claims hold, under a good signature or not, there is an answer."""
    body = claims() | payload
    token = rs256(body, RSA, **header) if signed else unsigned({"alg": "RS256"} | header, body) + b".AAAA"
    finding = SIGNED_BY_RSA.check(token, WALL)
    assert signed or finding is Answer.INVALID
