"""Names of records in a shared store."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.stores.link.link import slot_of
from gateway.stores.names import Names

__all__: list[str] = []

ROWS = (
    (("acme", "key", "acme/ci"), b"evenhand:1:{acme}:key:acme%2Fci"),
    (("acme", "seats"), b"evenhand:1:{acme}:seats"),
    (("", "key", "", "x"), b"evenhand:1:{%}:key:%:x"),
    (("a}{b:c\r\n", "key", "%", "\u00e9"), b"evenhand:1:{a%7D%7Bb%3Ac%0D%0A}:key:%25:%C3%A9"),
    (("\ud800", "key"), b"evenhand:1:{%ED%A0%80}:key"),
)


@pytest.mark.parametrize(("words", "name"), ROWS)
def test_what_a_caller_wrote_is_escaped(words: tuple[str, ...], name: bytes) -> None:
    """Neither colon, brace nor line break can be smuggled in; nobody's tag is not empty."""
    assert Names("evenhand").key(*words) == name


@given(st.lists(st.text(max_size=5), min_size=2, max_size=4), st.lists(st.text(max_size=5), min_size=2, max_size=4))
def test_different_words_have_different_names(one: list[str], other: list[str]) -> None:
    """However they are cut into parts."""
    names = Names("evenhand")
    first, second = (names.key(words[0], "key", *words[1:]) for words in (one, other))
    assert (first == second) == (one == other)
    assert re.fullmatch(rb"[A-Za-z0-9._~%:{}-]+", first)
    assert first.count(b"{") == first.count(b"}") == 1


def test_records_of_one_tag_lie_in_one_slot() -> None:
    """What Redis Cluster hashes is between the braces; the namespace cannot bring braces of its own."""
    names = Names("team{x}")
    assert names.prefix == "team%7Bx%7D:1:"
    assert slot_of(names.key("acme", "key", "a")) == slot_of(names.key("acme", "seats")) == slot_of(b"acme")
    # The specification's own example, and a name whose braces hold nothing.
    assert slot_of(b"123456789") == 0x31C3
    assert slot_of(b"foo{}{bar}") != slot_of(b"bar")


def test_a_long_word_stands_as_its_digest() -> None:
    """Names stay short, and stay different."""
    names = Names("evenhand")
    one, other = names.key("t", "key", "x" * 5_000), names.key("t", "key", "x" * 4_999 + "y")
    assert len(one) < 200
    assert one != other
    assert b":%~" in one
