"""From a head to facts, or to why it goes no further."""

from __future__ import annotations

from ipaddress import ip_network
from pathlib import Path
from typing import Any

import pytest

from gateway.clock import Clock
from gateway.proxy.address import Addresses
from gateway.proxy.ids import RequestIds, well_formed
from gateway.proxy.parse import Head, Parsed, Parser
from tests.gateway.proxy.house import A, House, head, write

ADDRESSES = Addresses([ip_network("10.0.0.0/8")])


def routes(method: str, path: str) -> int:
    """Stand in for a route table: /admin/** is a route, the rest is none."""
    return 0 if path.startswith("/admin/") else -1


PARSER = Parser(ADDRESSES, RequestIds(Clock()), routes, pseudonym=b"evenhand-1", max_header_bytes=2000, max_headers=20)


def raw(
    *fields: tuple[str, str], method: str = "GET", target: str = "/", peer: str = "192.0.2.7", version: str = "1.1"
) -> Parsed:
    """Parse a head of exactly these fields."""
    listed = [(name.encode(), value.encode("latin-1")) for name, value in fields]
    return PARSER.parse(Head(method.encode(), target.encode("latin-1"), listed, peer, version=version))


def code(parsed: Parsed) -> str | None:
    """Return the short name of the rejection."""
    return None if parsed.rejection is None else parsed.rejection.code


HOST = ("host", "api.example.com")


def test_facts_are_what_was_observed() -> None:
    """Method, canonical path, address, class asked for; the raw target is what will be forwarded."""
    parsed = PARSER.parse(head("/v1/%65xports?x=%2F", "POST", evenhand_class="batch", content_length="5"))
    assert parsed.rejection is None
    assert parsed.facts is not None
    facts = parsed.facts
    assert (facts.method, facts.path, facts.address) == ("POST", "/v1/exports", "192.0.2.7")
    assert (facts.asked_class, facts.preflight) == ("batch", False)
    assert (parsed.target, parsed.host, parsed.length) == (b"/v1/%65xports?x=%2F", b"api.example.com", 5)


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({}, True),
        ({"authorization": ""}, True),
        ({"authorization": "Bearer "}, True),
        ({"x_api_key": ""}, True),
        ({"authorization": f"Bearer {A.token}"}, False),
        ({"private_token": "x"}, False),
        ({"origin": None}, False),
        ({"access_control_request_method": None}, False),
    ],
)
def test_a_preflight_has_no_credential(fields: dict[str, Any], expected: bool) -> None:
    """OPTIONS with Origin and Access-Control-Request-Method and no credential, an empty one being none (Fetch)."""
    asked: dict[str, Any] = {"origin": "https://app.example.com", "access_control_request_method": "PUT"} | fields
    parsed = PARSER.parse(head("/", "OPTIONS", token=None, **asked))
    assert parsed.facts is not None
    assert parsed.facts.preflight is expected
    parsed = PARSER.parse(head("/", "GET", token=None, **asked))
    assert parsed.facts is not None
    assert not parsed.facts.preflight


@pytest.mark.parametrize(
    ("fields", "version", "expected"),
    [
        ((HOST,), "1.1", None),
        ((), "1.1", "bad-host"),
        ((), "1.0", None),
        ((), "2", "bad-host"),
        ((("host", ""),), "1.1", "bad-host"),
        ((("host", ""),), "1.0", "bad-host"),
        ((HOST, HOST), "1.1", "bad-host"),
        ((("host", "a, b"),), "1.1", "bad-host"),
        ((("host", "a/b"),), "1.1", "bad-host"),
        ((("host", "user@a"),), "1.1", "bad-host"),
        ((("host", "a:80:80"),), "1.1", "bad-host"),
        ((("host", "[::1]:80"),), "1.1", None),
        ((("host", "api.example.com:8080"),), "1.1", None),
        ((("host", "\xe9"),), "1.1", "bad-host"),
    ],
)
def test_exactly_one_valid_host(fields: tuple[tuple[str, str], ...], version: str, expected: str | None) -> None:
    """RFC 9112 section 3.2: a missing, repeated or invalid Host is 400; HTTP/1.0 may have none."""
    assert code(raw(*fields, version=version)) == expected


@pytest.mark.parametrize(
    ("fields", "version", "length", "expected"),
    [
        ((), "1.1", 0, None),
        ((("content-length", "0"),), "1.1", 0, None),
        ((("content-length", "12"),), "1.1", 12, None),
        ((("content-length", "012"),), "1.1", 12, None),
        ((("content-length", "12"), ("content-length", "12")), "1.1", 0, "bad-framing"),
        ((("content-length", "12, 12"),), "1.1", 0, "bad-framing"),
        ((("content-length", "+12"),), "1.1", 0, "bad-framing"),
        ((("content-length", "-1"),), "1.1", 0, "bad-framing"),
        ((("content-length", ""),), "1.1", 0, "bad-framing"),
        ((("content-length", "1" * 19),), "1.1", 0, "bad-framing"),
        ((("content-length", "\xb2"),), "1.1", 0, "bad-framing"),
        ((("transfer-encoding", "chunked"),), "1.1", None, None),
        ((("transfer-encoding", "Chunked"),), "1.1", None, None),
        ((("transfer-encoding", "chunked"),), "1.0", 0, "bad-framing"),
        ((("transfer-encoding", "chunked"),), "2", 0, "bad-framing"),
        ((("transfer-encoding", "gzip, chunked"),), "1.1", 0, "bad-framing"),
        ((("transfer-encoding", "chunked"), ("transfer-encoding", "chunked")), "1.1", 0, "bad-framing"),
        ((("transfer-encoding", "identity"),), "1.1", 0, "bad-framing"),
        ((("transfer-encoding", "chunked"), ("content-length", "1")), "1.1", 0, "bad-framing"),
        ((), "2", None, None),
        ((("content-length", "12"),), "3", 12, None),
    ],
)
def test_one_framing_or_none(
    fields: tuple[tuple[str, str], ...], version: str, length: int | None, expected: str | None
) -> None:
    """RFC 9112 section 6.3: the length of a body comes from one place, or the request is 400."""
    parsed = raw(HOST, *fields, version=version)
    assert (parsed.length, code(parsed)) == (length, expected)


def test_a_server_may_know_that_no_body_follows() -> None:
    """Under HTTP/2 the end of a stream says so, not a field."""
    parsed = PARSER.parse(Head(b"GET", b"/", [(b"host", b"a")], "192.0.2.7", version="2", ended=True))
    assert parsed.length == 0


@pytest.mark.parametrize(
    ("method", "target", "status", "expected"),
    [
        ("CONNECT", "api.example.com:443", 405, "method-not-allowed"),
        ("TRACE", "/", 405, "method-not-allowed"),
        ("GE T", "/", 400, "bad-request"),
        ("", "/", 400, "bad-request"),
        ("X" * 33, "/", 400, "bad-request"),
        ("GET", "*", 400, "bad-request"),
        ("GET", "a", 400, "bad-request"),
        ("GET", "http://a b/", 400, "bad-host"),
        ("GET", "//admin", 400, "ambiguous-path"),
        ("GET", "/x%2Fadmin", None, None),
        ("GET", "/admin%2Fusers", 400, "ambiguous-path"),
        ("GET", "/admin/a%2Fb", None, None),
        ("PROPFIND", "/", None, None),
        ("OPTIONS", "*", None, None),
        ("GET", "/" + "a" * 2000, 414, "uri-too-long"),
    ],
)
def test_what_goes_no_further(method: str, target: str, status: int | None, expected: str | None) -> None:
    """What nobody can tell the meaning of is 400; CONNECT and TRACE are 405; an encoded slash only where it matters."""
    parsed = raw(HOST, method=method, target=target)
    assert code(parsed) == expected
    assert (parsed.rejection and parsed.rejection.status) == status


@pytest.mark.parametrize(
    ("name", "value", "status"),
    [
        ("expect", "100-continue", None),
        ("expect", "100-Continue", None),
        ("expect", "y 100-continue", 417),
        ("expect", "200-ok", 417),
        ("upgrade", "websocket", 501),
        ("upgrade", "h2c, WebSocket", 501),
        ("upgrade", "h2c", None),
        ("via", "1.1 evenhand-1", 508),
        ("via", "1.0 fred, 1.1 Evenhand-1 (x), 1.1 p", 508),
        ("via", "1.1 evenhand-2", None),
        ("via", "1.1 evenhand-11", None),
        ("via", "1.1 not-evenhand-1", None),
    ],
)
def test_what_is_not_passed_on(name: str, value: str, status: int | None) -> None:
    """Expectations but 100-continue, WebSocket upgrades, and what has been here before."""
    parsed = raw(HOST, (name, value))
    assert (parsed.rejection and parsed.rejection.status) == status
    assert parsed.facts is not None


def test_a_head_is_bounded() -> None:
    """Octets and fields are counted for servers that do not; a lane that counted them says so."""
    many = [("a", "b")] * 20
    assert code(raw(HOST, *many)) == "headers-too-large"
    assert code(raw(HOST, ("a", "b" * 2000))) == "headers-too-large"
    assert code(raw(HOST, *many[1:])) is None
    wide = Head(b"GET", b"/", [(b"host", b"a"), (b"a", b"b" * 5000)], "192.0.2.7", measured=True)
    assert code(PARSER.parse(wide)) is None


def test_an_absolute_target_names_the_host() -> None:
    """RFC 9112 section 3.2.2: its authority replaces Host, and origin-form is what goes on."""
    parsed = raw(HOST, target="http://other.example.com:81/a?b")
    assert (parsed.target, parsed.host, code(parsed)) == (b"/a?b", b"other.example.com:81", None)


def test_a_version_not_spoken() -> None:
    """Anything but 1.0, 1.1, 2 and 3 is 505."""
    assert code(raw(HOST, version="0.9")) == "version-not-supported"


def test_ids_are_kept_from_trusted_peers_only() -> None:
    """A well-formed X-Request-Id of a proxy of ours goes on; any other is replaced."""
    assert raw(HOST, ("x-request-id", "abc-1"), peer="10.0.0.1").request_id == "abc-1"
    assert raw(HOST, ("x-request-id", "abc-1")).request_id != "abc-1"
    for bad in ("", "a b", "a" * 129, "a\xe9"):
        assert len(raw(HOST, ("x-request-id", bad), peer="10.0.0.1").request_id) == 26
    assert len(raw(HOST, ("x-request-id", "a"), ("x-request-id", "b"), peer="10.0.0.1").request_id) == 26


def test_ids_are_unique_and_sort_by_time() -> None:
    """Many more than fit one block, and no two alike; 26 characters of Crockford's base 32."""
    ids = RequestIds(Clock())
    made = [ids.new() for _ in range(5000)]
    assert len(set(made)) == 5000
    assert all(len(one) == 26 and set(one) <= set("0123456789ABCDEFGHJKMNPQRSTVWXYZ") for one in made)
    assert [one[:10] for one in made] == sorted(one[:10] for one in made)
    assert well_formed(made[0].encode())


def test_the_address_is_the_callers(tmp_path: Path) -> None:
    """Behind a trusted proxy the facts name the caller; an untrusted peer that speaks for others is noticed."""
    house = House(write(tmp_path, server='trusted_proxies = ["10.0.0.0/8"]'))
    house.begin(head("/", token=None, peer="10.0.0.1", x_forwarded_for="203.0.113.9"))
    house.begin(head("/", token=None, peer="192.0.2.1", x_forwarded_for="203.0.113.9"))
    house.begin(head("/", token=None, peer="192.0.2.2", forwarded="for=203.0.113.9"))
    house.begin(head("/", token=None, peer="192.0.2.3"))
    assert house.forwarders == ["192.0.2.1", "192.0.2.2"]
    for call in house.upstream.calls:
        call.respond()
    assert [one.facts.address for one in house.books.settled] == ["203.0.113.9", "192.0.2.1", "192.0.2.2", "192.0.2.3"]
