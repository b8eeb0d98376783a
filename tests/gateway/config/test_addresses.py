"""Where we listen, where upstreams are, whom browsers call from."""

from __future__ import annotations

import pytest

from gateway.config.addresses import (
    parse_http_url,
    parse_listen,
    parse_origin,
    parse_upstream,
)
from gateway.config.store_url import parse_store_url

__all__: list[str] = []


@pytest.mark.parametrize(
    ("text", "host", "port", "unix", "loopback"),
    (
        ("127.0.0.1:8080", "127.0.0.1", 8080, "", True),
        ("127.9.9.9:1", "127.9.9.9", 1, "", True),
        ("0.0.0.0:0", "0.0.0.0", 0, "", False),
        ("[::1]:8080", "::1", 8080, "", True),
        ("[::]:8080", "::", 8080, "", False),
        ("localhost:80", "localhost", 80, "", True),
        ("gateway.example:65535", "gateway.example", 65_535, "", False),
        ("unix:/run/evenhand.sock", "", 0, "/run/evenhand.sock", True),
    ),
)
def test_a_listener_is_host_and_port_or_a_socket(text: str, host: str, port: int, unix: str, loopback: bool) -> None:
    """It stays the text that was written, and can be asked for its parts."""
    listen = parse_listen(text)
    assert listen == text
    assert (listen.host, listen.port, listen.unix, listen.loopback) == (host, port, unix, loopback)


@pytest.mark.parametrize(
    "value",
    ("", ":8080", "8080", "127.0.0.1", "127.0.0.1:", "127.0.0.1:65536", "127.0.0.1:٣", "::1:8080", "[::1]", "[x]:1",
     "unix:", "unix:run/x", "unix:/" + "x" * 120, "unix:/a\0b", "http://x:1", "a b:1", 8080, True, None),
)  # fmt: skip
def test_nothing_else_can_be_listened_on(value: object) -> None:
    """A socket's path is absolute, and fits into a socket address."""
    with pytest.raises(ValueError, match=r'^expected "host:port" or "unix:/path", found '):
        parse_listen(value)


@pytest.mark.parametrize(
    ("one", "other", "clash"),
    (
        ("127.0.0.1:1", "127.0.0.1:1", True),
        ("127.0.0.1:1", "127.0.0.1:2", False),
        ("0.0.0.0:1", "127.0.0.1:1", True),
        ("[::]:1", "127.0.0.1:1", True),
        ("127.0.0.2:1", "127.0.0.1:1", False),
        ("127.0.0.1:0", "127.0.0.1:0", False),
        ("unix:/a", "unix:/a", True),
        ("unix:/a", "127.0.0.1:1", False),
    ),
)
def test_two_listeners_clash_where_both_cannot_be_bound(one: str, other: str, clash: bool) -> None:
    """All addresses include each one; port 0 is another port each time."""
    assert parse_listen(one).clashes(parse_listen(other)) is clash
    assert parse_listen(other).clashes(parse_listen(one)) is clash


@pytest.mark.parametrize(
    ("text", "scheme", "host", "port", "path", "authority"),
    (
        ("http://127.0.0.1:9000", "http", "127.0.0.1", 9000, "", "127.0.0.1:9000"),
        ("http://app_1/base/", "http", "app_1", 80, "/base", "app_1"),
        ("https://api.example.com", "https", "api.example.com", 443, "", "api.example.com"),
        ("https://api.example.com:443/a%20b", "https", "api.example.com", 443, "/a%20b", "api.example.com"),
        ("http://[::1]:9000/", "http", "::1", 9000, "", "[::1]:9000"),
        ("unix:/run/app.sock", "unix", "localhost", 0, "", "localhost"),
    ),
)
def test_an_upstream_is_an_address_with_a_base(
    text: str, scheme: str, host: str, port: int, path: str, authority: str
) -> None:
    """The scheme's own port is left out of the Host field (RFC 9110, 4.2)."""
    url = parse_upstream(text)
    assert url == text
    assert (url.scheme, url.host, url.port, url.path, url.authority) == (scheme, host, port, path, authority)
    assert url.tls is (scheme == "https")
    assert url.unix == (text[5:] if scheme == "unix" else "")


@pytest.mark.parametrize(
    "value",
    ("", "127.0.0.1:9000", "ftp://x", "http://", "http:///x", "http://x:0", "http://x:", "http://x:65536", "http://x y",
     "http://é", "http://x?q=1", "http://x#f", "http://x?", "http://x/a b", "http://x/%zz", "http://[::1", "http://[x]",
     "http://x/\n", "http://x/a//b", "http://x/a/..", "http://x/./b", "unix:app.sock", 9000, True, None),
)  # fmt: skip
def test_nothing_else_is_an_upstream(value: object) -> None:
    """No query, no fragment, nothing that is not a host."""
    with pytest.raises(ValueError, match=r"^expected .*, found "):
        parse_upstream(value)


@pytest.mark.parametrize("text", ("http://ann:hunter2@x", "http://ann:hunter2@x:0", "ftp://ann:hunter2@x"))
def test_a_password_in_an_address_is_refused_and_not_quoted(text: str) -> None:
    """An address shows up in logs; a password must not."""
    for parse in (parse_upstream, parse_http_url, parse_origin, parse_store_url):
        with pytest.raises(ValueError, match=r"^expected ") as caught:
            parse(text)
        assert "hunter2" not in str(caught.value)


def test_an_origin_is_scheme_and_host() -> None:
    """As browsers send it, in lower case."""
    assert parse_origin("https://App.example.com:8443") == "https://app.example.com:8443"
    assert parse_origin("*") == "*"
    for wrong in ("https://x/", "https://x?y", "x", "null", "", 1):
        with pytest.raises(ValueError, match="expected an origin"):
            parse_origin(wrong)


def test_an_address_to_fetch_from_is_http() -> None:
    """With a path and a query, without a fragment."""
    assert parse_http_url("https://id.example.com/jwks.json?v=2") == "https://id.example.com/jwks.json?v=2"
    for wrong in ("file:///etc/passwd", "unix:/x", "https://x#y", "", 1):
        with pytest.raises(ValueError, match="expected an address"):
            parse_http_url(wrong)
