"""One reading of a request target (cases 101 and 103)."""

from __future__ import annotations

import posixpath
import re
from urllib.parse import unquote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.proxy.target import canonical, decoded, known, origin_form, split, stripped, told


@pytest.mark.parametrize(
    ("target", "path"),
    [
        ("/", "/"),
        ("/v1/exports/12?x=%2e%2e//;", "/v1/exports/12"),
        ("/a/b/", "/a/b/"),
        ("/Case", "/Case"),
        ("/admin.", "/admin."),
        ("/.well-known/x", "/.well-known/x"),
        ("/...", "/..."),
        ("/a..b", "/a..b"),
        ("/%41%7e%40%2B", "/A~@+"),
        ("/a%20b%c3%a9", "/a%20b%C3%A9"),
        ("/\xe9", "/%E9"),
        ('/"<>^`{|}[]', "/%22%3C%3E%5E%60%7B%7C%7D%5B%5D"),
        ("/a%2fb", "/a%2Fb"),
        ("/a%252fb", "/a%252fb"),
        ("/100%25", "/100%25"),
        ("/a;v=1/b", "/a/b"),
        ("/a;v=1", "/a"),
        ("/a%3bv", "/a%3Bv"),
        ("/open/../admin", "/admin"),
        ("/a/./b", "/a/b"),
        ("/a/b/..", "/a/"),
        ("/a/..", "/"),
        ("/a/.", "/a/"),
        ("/a/b/../../c/", "/c/"),
    ],
)
def test_the_canonical_path(target: str, path: str) -> None:
    """Escapes in one spelling, parameters left out, plain dot segments resolved, everything else as it came."""
    assert canonical(target.encode("latin-1"), rewritten=False) == path


@pytest.mark.parametrize(
    "target",
    [
        "/..",
        "/../admin",
        "/a/../../admin",
        "/%2e%2e/admin",
        "/open/.%2e/admin",
        "/open/%2E./admin",
        "/open/%252e%252e/admin",
        "/open/%25252e%25252e/admin",
        "/open;x/../admin",
        "/open/..;/admin",
        "/open/..;x=1/admin",
        "/open/.;/admin",
        "/;x/../admin",
        "/;x/admin",
        "/a/;x/b",
        "/open/%2e%2e%3b/admin",
        "//admin",
        "/open//admin",
        "/admin%2f..",
        "/open%2f..%2fadmin",
        "/open/%2f/admin",
        "/open/%2fadmin",
        "/open%252f..%252fadmin",
        "/open\\..\\admin",
        "/open%5c..%5cadmin",
        "/open%5Cadmin",
        "/open%255c..%255cadmin",
        "/admin%00",
        "/admin%2500",
        "/admin#x",
        "/admin?x#y",
        "/admin%",
        "/admin%4",
        "/admin%zz",
        "/ad min",
        "/ad\tmin",
        "/ad\x7fmin",
        "/ad\x00min",
        "/admin?x y",
        "/a%20b/../c",
        "/%2525252525252541",
    ],
)
def test_ambiguous_paths(target: str) -> None:
    """Where common ways of reading a path end in different places, there is no canonical form."""
    assert canonical(target.encode("latin-1"), rewritten=False) is None


@pytest.mark.parametrize("target", ["/a/../b", "/a/./b", "/a/..", "/."])
def test_dot_segments_and_rewriting_exclude_each_other(target: str) -> None:
    """A prefix taken off, or put in front, would change what `..` means."""
    assert canonical(target.encode(), rewritten=True) is None
    assert canonical(target.encode(), rewritten=False) is not None


@pytest.mark.parametrize(
    ("target", "expected"),
    [
        ("/a?b", ("/a?b", None)),
        ("*", ("*", None)),
        ("http://api.example.com/a?b", ("/a?b", "api.example.com")),
        ("HTTPS://api.example.com:8443", ("/", "api.example.com:8443")),
        ("http://api.example.com?b", ("/?b", "api.example.com")),
        ("http://user@api.example.com/", None),
        ("http:///a", None),
        ("ftp://api.example.com/", None),
        ("api.example.com:443", None),
        ("", None),
        ("a/b", None),
        ("?b", None),
    ],
)
def test_the_forms_of_a_target(target: str, expected: tuple[str, str | None] | None) -> None:
    """Origin-form and `*` as they are; an absolute target is taken apart; nothing else is a target."""
    found = origin_form(target.encode())
    assert (found and (found[0].decode(), found[1] and found[1].decode())) == expected


@pytest.mark.parametrize(
    ("target", "segments", "left"),
    [
        ("/v1/exports/1?x=/y", 1, "/exports/1?x=/y"),
        ("/v1/exports/1", 2, "/1"),
        ("/v1", 1, "/"),
        ("/v1?x=/y/z", 1, "/?x=/y/z"),
        ("/v1/", 1, "/"),
        ("/%761/Exports;x", 1, "/Exports;x"),
        ("/a/b", 3, "/"),
        ("/a", 0, "/a"),
    ],
)
def test_a_prefix_is_stripped_by_counting(target: str, segments: int, left: str) -> None:
    """However the prefix is spelled, the rest goes on byte for byte."""
    assert stripped(target.encode(), segments).decode() == left


def test_an_encoded_slash_can_be_read_both_ways() -> None:
    """`decoded` is the other reading, for whoever knows the routes."""
    assert decoded("/group%2Fproject/x") == "/group/project/x"
    assert split(b"/a?b?c") == (b"/a", b"?b?c")


segments = st.sampled_from(
    [
        "open",
        "admin",
        ".",
        "..",
        "%2e",
        "%2E%2e",
        "..;x",
        ";x",
        "",
        "a%2f..",
        "%252e%252e",
        "\\..",
        "%5c",
        ".%00",
        "x;y",
    ]
)


def readings(path: str) -> set[str]:
    """Return what various servers make of `path`: each decodes, strips parameters and resolves, or does not."""
    found = {path}
    for _ in range(3):
        found |= {unquote(one, "latin-1") for one in found}
        found |= {one.replace("\\", "/") for one in found}
        found |= {re.sub(r";[^/]*", "", one) for one in found}
    return {posixpath.normpath("/" + one.split("\0")[0]).replace("//", "/").rstrip("/") for one in found}


@given(st.lists(segments, min_size=1, max_size=5).map(lambda parts: "/" + "/".join(parts)))
def test_no_reading_leads_elsewhere(path: str) -> None:
    """A path that is let through is read alike by servers that decode, strip, merge and resolve as they please."""
    found = canonical(path.encode("latin-1"), rewritten=False)
    if found is None or "%" in found:
        return
    elsewhere = {one for one in readings(path) if one.startswith("/admin")}
    if elsewhere:
        assert found.startswith("/admin")


@given(st.binary(max_size=40))
def test_canonical_is_a_fixed_point(octets: bytes) -> None:
    """What is canonical has itself as its canonical form, and any octets have one answer."""
    found = canonical(b"/" + octets, rewritten=False)
    if found is not None:
        assert found.isascii()
        assert canonical(found.encode(), rewritten=False) == found


def test_what_came_lately_is_known() -> None:
    """As it was read; but no query is kept, nothing long, and no more than so many."""
    plain = [b"/lately/%d" % number for number in range(3000)]
    assert [canonical(target, rewritten=True) for target in plain] == [target.decode() for target in plain]
    assert known(plain[-1]) == plain[-1].decode()
    assert sum(known(target) is not None for target in plain) <= 1024
    for target in (b"/lately?token=secret", b"/lately?", b"/" + b"a" * 200, b"/%6cately", b"/lately/../other"):
        canonical(target, rewritten=False)
        assert known(target) is None


@pytest.mark.parametrize(
    ("target", "expected"),
    [
        ("/a\\b", "/a%5Cb"),
        ("//", "//"),
        ("//a?token=secret", "//a"),
        ("/a\\#token=secret", "/a%5C"),
        ("/a\\;sid=secret/b", "/a%5C/b"),
        ("/a/%2e%2e/b%zz", "/a/../b%zz"),
        ('/\n\x1b"\xe9', "/%0A%1B%22%E9"),
        ("http://a/b\\?secret", "/b%5C"),
        ("http://user:secret@a/b", ""),
        ("secret", ""),
        ("*", "*"),
        ("/" + "a" * 5000, "/" + "a" * 1023),
        ("http://" + "a" * 5000 + "/b", "/b"),
    ],
)
def test_what_a_log_is_told_of_a_target_that_could_not_be_read(target: str, expected: str) -> None:
    """The path as it came, in octets that end no line; no query, fragment, parameter or password; of bounded length."""
    assert told(target.encode("latin-1")) == expected
