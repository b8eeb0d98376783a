"""Paths, prefixes and lists of routes."""

from __future__ import annotations

import pytest

from gateway.config import patterns
from gateway.config.secrets import parse_pats, parse_secret, parse_shared, parse_token

__all__: list[str] = []


@pytest.mark.parametrize(
    ("text", "pattern"),
    (
        ("/", "/"),
        ("/**", "/**"),
        ("/v1/exports/**", "/v1/exports/**"),
        ("/v1/*/items", "/v1/*/items"),
        ("/a/", "/a/"),
        ("/café/*", "/caf%C3%A9/*"),
        ("/%41%2f", "/A%2F"),
        ("/a b", "/a%20b"),
    ),
)
def test_a_pattern_is_kept_as_canonical_paths_are(text: str, pattern: str) -> None:
    """Otherwise it would match nothing, and its limit would exist and never bind."""
    assert patterns.parse_pattern(text) == pattern


@pytest.mark.parametrize(
    "value",
    ("", "v1", "//", "/a//b", "/a*", "/**/x", "/*x/y", "/.", "/..", "/a/../b", "/%2e", "/%2A", "/a%", "/a%00", "/a%5C",
     "/a?b", "/a#b", "/a;b", "/a\\b", "/a\nb", 3, True, None),
)  # fmt: skip
def test_a_pattern_that_no_path_can_match_is_refused(value: object) -> None:
    """Queries, parameters, dot segments and broken escapes are in no canonical path."""
    with pytest.raises(ValueError, match=r"^expected a path "):
        patterns.parse_pattern(value)


def test_a_prefix_is_whole_segments() -> None:
    """Without a slash at its end, and without wildcards."""
    assert patterns.parse_prefix("") == ""
    assert patterns.parse_prefix("/v1/é") == "/v1/%C3%A9"
    for wrong in ("/", "/v1/", "v1", "/*", "/..", 1, None):
        with pytest.raises(ValueError, match="expected whole segments"):
            patterns.parse_prefix(wrong)


@pytest.mark.parametrize(
    ("value", "sentence"),
    (
        ([], 'expected an array such as ["GET", "POST"], found an empty one'),
        ("GET", 'expected an array such as ["GET", "POST"], found "GET"'),
        (["get"], 'expected a method in capitals such as "GET", found "get"'),
        (["GET", "GET"], 'expected an array such as ["GET", "POST"] without repetitions, found some'),
        ([True], 'expected a method in capitals such as "GET", found true'),
    ),
)
def test_a_list_of_methods_names_each_once(value: object, sentence: str) -> None:
    """Methods are case-sensitive (RFC 9110, 9.1)."""
    with pytest.raises(ValueError, match="expected") as caught:
        patterns.parse_methods(value)
    assert str(caught.value) == sentence


def test_a_list_of_anything_else_is_closed() -> None:
    """Classes and characteristics are words of ours."""
    assert patterns.parse_classes(["batch"]) == ("batch",)
    assert patterns.parse_characteristics(["tenant", "route"]) == ("tenant", "route")
    for parse in (patterns.parse_classes, patterns.parse_characteristics):
        with pytest.raises(ValueError, match=r'found "ip"$'):
            parse(["ip"])


@pytest.mark.parametrize(
    ("value", "sentence"),
    (
        ("evh_pat_0123456789", 'expected the "sha256:..." digest of a token, found a token itself'),
        ("sha256:" + "A" * 64, 'expected "sha256:" and 64 lower-case hexadecimal digits, found something else'),
        ("sha256:" + "a" * 63, 'expected "sha256:" and 64 lower-case hexadecimal digits, found something else'),
        ("a" * 64, 'expected "sha256:" and 64 lower-case hexadecimal digits, found something else'),
        ([], 'expected at least one "sha256:..." digest, found an empty array'),
        (True, 'expected "sha256:" and 64 lower-case hexadecimal digits, found something else'),
    ),
)
def test_a_pat_is_a_digest_and_is_never_quoted(value: object, sentence: str) -> None:
    """Whoever pasted the token itself must not find it in a log."""
    with pytest.raises(ValueError, match="expected") as caught:
        parse_pats(value)
    assert str(caught.value) == sentence


def test_secrets_are_strings_behind_stars() -> None:
    """Their repr is stars, and a wrong one is not quoted."""
    assert "hunter2" not in repr(parse_secret("hunter2")) + repr(parse_shared("hunter2")) + repr(parse_token("hunter2"))
    assert parse_token("").get_secret_value() == parse_shared("").get_secret_value() == ""
    for parse, wrong in (
        (parse_secret, ""),
        (parse_secret, 1),
        (parse_shared, 1),
        (parse_token, "a b"),
        (parse_token, 1),
    ):
        with pytest.raises(ValueError, match=r"expected a .*, found (none|something else)$"):
            parse(wrong)
