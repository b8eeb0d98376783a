"""From header fields to at most one credential."""

from __future__ import annotations

import base64
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.identity.credentials import CREDENTIAL_FIELDS, MAX_BASIC, Presented, extract

__all__: list[str] = []

A, B = b"token-of-a", b"token-of-b"


def basic(pair: bytes) -> bytes:
    return b"Basic " + base64.b64encode(pair)


SLOTS: dict[str, Callable[[bytes], tuple[bytes, bytes]]] = {
    "bearer": lambda token: (b"authorization", b"Bearer " + token),
    "bearer in capitals, more spaces": lambda token: (b"authorization", b" BEARER   " + token + b"\t"),
    "basic": lambda token: (b"authorization", basic(b"anybody:" + token)),
    "basic without a user": lambda token: (b"authorization", basic(b":" + token)),
    "private-token": lambda token: (b"private-token", token),
    "job-token": lambda token: (b"job-token", b"  " + token + b" "),
    "x-api-key": lambda token: (b"x-api-key", token),
}


@pytest.mark.parametrize("slot", SLOTS)
def test_every_slot_is_read(slot: str) -> None:
    """A token is found in each of the contract's slots, between other fields."""
    headers = [(b"host", b"x"), SLOTS[slot](A), (b"accept", b"*/*")]
    assert extract(headers) == (Presented.TOKEN, A)


@pytest.mark.parametrize("first", SLOTS)
@pytest.mark.parametrize("second", SLOTS)
def test_two_slots_are_one_credential_or_ambiguous(first: str, second: str) -> None:
    """The same token anywhere twice is one credential; two different ones are never merged or ranked."""
    assert extract([SLOTS[first](A), SLOTS[second](A)]) == (Presented.TOKEN, A)
    assert extract([SLOTS[first](A), SLOTS[second](B)])[0] is Presented.AMBIGUOUS


@pytest.mark.parametrize(
    "headers",
    (
        [],
        [(b"host", b"x"), (b"cookie", b"token=secret")],
        [(b"authorization", b"")],
        [(b"authorization", b"  ")],
        [(b"authorization", b"Bearer")],
        [(b"authorization", b"Bearer   ")],
        [(b"authorization", b"Basic ")],
        [(b"authorization", basic(b":"))],
        [(b"private-token", b""), (b"job-token", b"\t"), (b"x-api-key", b" ")],
        [(b"proxy-authorization", b"Bearer x")],
    ),
)
def test_nothing_or_an_empty_slot_is_no_credential(headers: list[tuple[bytes, bytes]]) -> None:
    """An empty slot is no credential, and other fields are not looked at."""
    assert extract(headers)[0] is Presented.NOTHING
    assert extract([*headers, SLOTS["x-api-key"](A)]) == (Presented.TOKEN, A)


@pytest.mark.parametrize(
    "value",
    (
        b"Digest username=x, realm=y",
        b"AWS4-HMAC-SHA256 Credential=x, SignedHeaders=y, Signature=z",
        b"Negotiate YII=",
        b"evh_pat_without_a_scheme",
        b"Basic not-base64!",
        b"Basic " + base64.b64encode(b"no colon"),
        b"Basic " + base64.b64encode(b"user:"),
        b"Basic " + base64.b64encode(b"user:abc").rstrip(b"="),
        b"Basic dXNlcjphYh==",
        b"Basic " + base64.b64encode(b"u:" + b"x" * MAX_BASIC),
    ),
)
def test_what_we_do_not_read_is_foreign_as_it_stands(value: bytes) -> None:
    """Another scheme, or a Basic that cannot be decoded to the letter, is a credential that none of ours could be."""
    assert extract([(b"authorization", value)])[0] is Presented.FOREIGN
    assert extract([(b"authorization", value), (b"authorization", value)])[0] is Presented.FOREIGN
    assert extract([(b"authorization", value), (b"x-api-key", A)])[0] is Presented.AMBIGUOUS


@pytest.mark.parametrize(
    "headers",
    (
        [(b"authorization", b"Bearer a, Bearer b")],
        [(b"authorization", b"Bearer a,b")],
        [(b"authorization", b"Basic YTph, Basic YTpi")],
        [(b"x-api-key", b"a, b")],
        [(b"authorization", b"Digest a=b"), (b"authorization", b"Digest a=c")],
        [(b"authorization", b"Bearer a"), (b"authorization", b"Bearer b"), (b"authorization", b"Bearer a")],
    ),
)
def test_joined_or_repeated_credentials_are_ambiguous(headers: list[tuple[bytes, bytes]]) -> None:
    """A joined line is as ambiguous as two lines."""
    assert extract(headers)[0] is Presented.AMBIGUOUS


def test_the_fields_to_strip_are_the_slots_and_the_proxys_own() -> None:
    """What is consumed is removed from every slot that is read, and Proxy-Authorization is not the upstream's."""
    assert {
        b"authorization",
        b"proxy-authorization",
        b"private-token",
        b"job-token",
        b"x-api-key",
    } == CREDENTIAL_FIELDS


@given(
    st.lists(
        st.tuples(
            st.sampled_from([*sorted(CREDENTIAL_FIELDS), b"host"]),
            st.one_of(
                st.binary(max_size=60),
                st.binary(max_size=60).map(basic),
                st.binary(max_size=60).map(b"Bearer ".__add__),
                st.binary(max_size=60).map(b"basic ".__add__),
            ),
        ),
        max_size=5,
    )
)
def test_no_bytes_can_raise(headers: list[tuple[bytes, bytes]]) -> None:
    """Whatever the fields hold, the answer is one of four, and a token is never empty."""
    presented, token = extract(headers)
    assert presented is not Presented.TOKEN or token
