"""What upstreams and callers see of each other's fields (cases 99 and 85; contract, section 5)."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from gateway.config.sections import StoreSection
from gateway.ports import Headers
from gateway.proxy.front import pseudonym
from tests.gateway.identity.tokens import AUDIENCE, ISSUER, SECRET, claims, hs256
from tests.gateway.proxy.house import A, B, House, ScriptedCall, head, write

MANAGED = [
    "via", "x-forwarded-for", "x-forwarded-host", "x-forwarded-proto", "x-request-id", "evenhand-tenant",
    "evenhand-credential", "evenhand-class",
]  # fmt: skip


@pytest.fixture
def house(tmp_path: Path) -> House:
    """Return a gateway that trusts 10.0.0.0/8."""
    return House(write(tmp_path, server='trusted_proxies = ["10.0.0.0/8", "unix"]'))


def sent(house: House, **fields: Any) -> ScriptedCall:
    """Return the upstream call of a GET with `fields`."""
    house.begin(head("/", **fields))
    return house.call


def names(call: ScriptedCall) -> list[str]:
    """Return the names of the fields that went upstream, in order."""
    return [name.decode() for name, _ in call.headers]


def test_what_is_added(house: House) -> None:
    """Via, X-Forwarded-*, X-Request-Id and who was charged."""
    call = sent(house, accept="*/*", cookie="a=b")
    assert names(call) == ["accept", "cookie", *MANAGED]
    assert (call.field("via") or b"").startswith(b"1.1 evenhand-")
    said = {name: (call.field(name) or b"").decode() for name in MANAGED}
    assert said["x-forwarded-for"] == "192.0.2.7"
    assert said["x-forwarded-host"] == "api.example.com"
    assert said["x-forwarded-proto"] == "http"
    assert (said["evenhand-tenant"], said["evenhand-credential"], said["evenhand-class"]) == (
        "acme",
        "ci",
        "interactive",
    )


def test_ids_are_percent_encoded(house: House) -> None:
    """A credential called `b é` travels as ASCII."""
    assert sent(house, authorization=f"Bearer {B.token}").field("evenhand-credential") == b"b%20%C3%A9"


def test_a_tenant_in_the_overflow_is_charged_as_other_and_told_as_itself(tmp_path: Path) -> None:
    """One bucket for all above `max_unlisted_tenants`; the upstream still serves each as who it is (RFC 7519 `sub`)."""
    issuer = f'[[auth.jwt]]\nissuer = "{ISSUER}"\naudience = "{AUDIENCE}"\nsecret = "{SECRET}"\n'
    house = House(write(tmp_path, auth="max_unlisted_tenants = 1", more=issuer))
    for number, tenant in enumerate(("first", "second", "third")):
        token = hs256(claims(tenant=tenant, sub="me", exp=4_000_000_000, iat=None)).decode()
        call = sent(house, authorization=f"Bearer {token}")
        call.respond()
        assert (call.field("evenhand-tenant"), call.field("evenhand-credential")) == (tenant.encode(), b"me")
        assert house.books.settled[-1].principal.tenant == ("other" if number else "first")


@pytest.mark.parametrize("name", MANAGED)
@pytest.mark.parametrize("spelling", [str, lambda name: name.replace("-", "_", 1), lambda name: name.replace("-", "_")])
def test_copies_of_managed_names_are_removed(house: House, name: str, spelling: type[str]) -> None:
    """With `-` or `_`: whoever folds both into one variable must not find two values."""
    plain = sent(house)
    request = head("/")
    request.headers.append((spelling(name).encode(), b"forged"))
    house.begin(request)
    assert names(house.call) == names(plain)
    value = house.call.field(name) or b""
    assert b"forged" not in value or name == "via"


def test_case_099_connection_cannot_remove_what_we_add(house: House) -> None:
    """What the caller names goes first, what we add comes last."""
    connection = "close, X-Tenant, " + ", ".join(MANAGED).title()
    request = head("/", x_tenant="a", keep="b", connection=connection)
    request.headers.append((b"connection", b"\tEvenhand-Tenant ,x_forwarded_for,,"))
    house.begin(request)
    assert names(house.call) == ["keep", *MANAGED]
    assert house.call.field("evenhand-tenant") == b"acme"


@pytest.mark.parametrize(
    "field",
    [(b"a", b"b\r\nc: d"), (b"a\n", b"b"), (b"a", b"b\rc"), (b"via", b"1.1 a\r\nb: c"), (b"x-forwarded-host", b"a\nb")],
)
def test_line_break_in_a_field_is_refused(house: House, field: tuple[bytes, bytes]) -> None:
    """A field cannot bring others along, whoever let it pass."""
    request = head("/", peer="10.0.0.1")
    request.headers.append(field)
    assert house.ask(request).status == 500
    assert not house.upstream.calls


def test_what_is_said_of_a_peer_is_said_of_each_request(house: House) -> None:
    """Whatever the one before asked for: another host, another scheme."""
    for host in ("a.example.com", "b.example.com", "b.example.com"):
        assert sent(house, host=host).field("x-forwarded-host") == host.encode()
    request = head("/", host="b.example.com")
    request.scheme, request.version = "https", "2"
    house.begin(request)
    assert house.call.field("x-forwarded-proto") == b"https"
    assert (house.call.field("via") or b"").startswith(b"2 evenhand-")


def test_hop_by_hop_fields_end_here(house: House) -> None:
    """RFC 9110 section 7.6.1, and what a caller could hide behind an underscore."""
    call = sent(
        house,
        connection="keep-alive",
        keep_alive="timeout=5",
        te="trailers",
        trailer="x",
        upgrade="h2c",
        proxy_connection="close",
        proxy_authorization="Basic x",
        expect="100-continue",
        accept="*/*",
    )
    assert names(call) == ["accept", *MANAGED]
    request = head("/")
    request.headers += [(b"transfer_encoding", b"chunked"), (b"content_length", b"9"), (b"x_y", b"z")]
    house.begin(request)
    assert names(house.call) == ["x_y", *MANAGED]


SLOTS = {
    "authorization": f"Bearer {A.token}",
    "private_token": A.token,
    "job_token": A.token,
    "x_api_key": A.token,
}


@pytest.mark.parametrize("slot", SLOTS)
def test_a_consumed_credential_is_removed_from_every_slot(house: House, slot: str) -> None:
    """The upstream never sees it, unless it is told to check it too."""
    call = sent(house, **({"authorization": None} | {slot: SLOTS[slot]}))
    assert call.field("evenhand-tenant") == b"acme"
    assert A.token.encode() not in b"".join(value for _, value in call.headers)
    request = head("/")
    request.headers.append((b"x_api_key", b"another"))
    house.begin(request)
    assert b"x_api_key" not in dict(house.call.headers)


def test_forward_credential_leaves_it(tmp_path: Path) -> None:
    """`[upstream] forward_credential`: the upstream checks tokens itself."""
    house = House(write(tmp_path, upstream='url = "http://127.0.0.1:9"\nforward_credential = true'))
    assert sent(house).field("authorization") == f"Bearer {A.token}".encode()


def test_a_foreign_credential_is_forwarded_untouched(tmp_path: Path) -> None:
    """`[auth] unknown = "anonymous"`: what we could not have issued is not ours to remove."""
    house = House(write(tmp_path, auth='unknown = "anonymous"'))
    call = sent(house, authorization="Bearer foreign")
    assert call.field("authorization") == b"Bearer foreign"
    assert (call.field("evenhand-tenant"), call.field("evenhand-credential")) == (b"anonymous", b"192.0.2.7")


def test_shadow_forwards_a_rejected_credential_without_a_name(tmp_path: Path) -> None:
    """Nobody was proved, so nobody is named."""
    house = House(write(tmp_path, server='mode = "shadow"'))
    call = sent(house, authorization="Bearer evh_pat_wrong", evenhand_tenant="acme")
    assert call.field("authorization") == b"Bearer evh_pat_wrong"
    assert not any(name.startswith("evenhand") for name in names(call))


def test_an_edge_is_believed_and_continued(house: House) -> None:
    """From a trusted peer X-Forwarded-* goes on, with the peer appended, and so does Via."""
    request = head(
        "/", peer="10.0.0.1", x_forwarded_for="203.0.113.9, 10.2.2.2", x_forwarded_host="www.example.com",
        x_forwarded_proto="HTTPS", x_request_id="edge-1", via="1.0 fred", x_real_ip="203.0.113.9",
        forwarded="proto=https",
    )  # fmt: skip
    house.begin(request)
    call = house.call
    assert call.field("x-forwarded-for") == b"203.0.113.9, 10.2.2.2, 10.0.0.1"
    assert (call.field("x-forwarded-host"), call.field("x-forwarded-proto")) == (b"www.example.com", b"https")
    assert (call.field("x-request-id"), call.field("x-real-ip")) == (b"edge-1", b"203.0.113.9")
    assert (call.field("via") or b"").startswith(b"1.0 fred, 1.1 evenhand-")
    assert call.field("forwarded") == b"proto=https"


def test_anybody_else_is_not(house: House) -> None:
    """From any other peer the chain begins anew, and words of an edge are dropped."""
    call = sent(
        house, x_forwarded_for="203.0.113.9", x_forwarded_host="www.example.com", x_forwarded_proto="https",
        x_real_ip="203.0.113.9", forwarded="for=203.0.113.9", x_forwarded_port="443", x_forwarded_prefix="/x",
    )  # fmt: skip
    assert names(call) == MANAGED
    assert call.field("x-forwarded-for") == b"192.0.2.7"
    assert call.field("x-forwarded-proto") == b"http"


EDGE = [
    "forwarded", "true-client-ip", "cf-connecting-ip", "x-client-ip", "x-real-ip", "x-original-url", "x-rewrite-url",
    "x-forwarded-uri", "x-forwarded-client-cert",
]  # fmt: skip


@pytest.mark.parametrize("name", EDGE)
@pytest.mark.parametrize("fold", [False, True])
def test_words_of_an_edge(house: House, name: str, fold: bool) -> None:
    """Who a caller is, and what it asked for, is believed of a trusted peer only; in either spelling."""
    field = (name.replace("-", "_" if fold else "-").encode(), b"/admin")
    for peer, passes in (("10.0.0.1", True), ("192.0.2.7", False)):
        request = head("/", peer=peer)
        request.headers.append(field)
        house.begin(request)
        assert (field in house.call.headers) is passes


@pytest.mark.parametrize("peer", ["10.0.0.1", "192.0.2.7"])
def test_a_proxy_field_is_never_forwarded(house: House, peer: str) -> None:
    """A CGI program would take it for HTTP_PROXY, and send its own calls there (CVE-2016-5385)."""
    house.begin(head("/", peer=peer, proxy="http://192.0.2.66:3128", x_proxy="kept"))
    assert names(house.call) == ["x-proxy", *MANAGED]


def test_a_proto_that_is_none_and_a_unix_peer(house: House) -> None:
    """Nonsense from an edge is replaced by what we saw; a socket file has no address to append."""
    house.begin(head("/", peer="unix", x_forwarded_proto="gopher", x_forwarded_for="203.0.113.9"))
    assert house.call.field("x-forwarded-proto") == b"http"
    assert house.call.field("x-forwarded-for") == b"203.0.113.9"
    house.begin(head("/", peer="unix"))
    assert house.call.field("x-forwarded-for") is None


def test_http_1_0_without_a_host(house: House) -> None:
    """There is no host to speak of, and Via names the version that came."""
    request = head("/", host=None)
    request.version = "1.0"
    house.begin(request)
    assert house.call.field("x-forwarded-host") is None
    assert (house.call.field("via") or b"").startswith(b"1.0 evenhand-")


def test_trace_context(tmp_path: Path, house: House) -> None:
    """Passed on by default; `trace_headers = false` keeps it from the upstream."""
    trace = {"traceparent": "00-1-2-01", "tracestate": "a=b", "baggage": "c=d"}
    assert names(sent(house, **trace))[:3] == ["traceparent", "tracestate", "baggage"]
    untraced = House(write(tmp_path, upstream='url = "http://127.0.0.1:9"\ntrace_headers = false'))
    assert names(sent(untraced, **trace)) == ["baggage", *MANAGED]


@pytest.mark.parametrize(("host", "expected"), [("upstream", None), ("preserve", b"api.example.com")])
def test_host(tmp_path: Path, host: str, expected: bytes | None) -> None:
    """The upstream's own authority by default, the caller's Host with `preserve`; never both."""
    house = House(write(tmp_path, upstream=f'url = "http://127.0.0.1:9"\nhost = "{host}"'))
    call = sent(house)
    assert call.options["host"] == expected
    assert "host" not in names(call)


ENCODED: Headers = [
    (b"Content-Type", b"text/html"),
    (b"Content-Encoding", b"gzip"),
    (b"Content-Length", b"4"),
    (b"ETag", b'W/"1"'),
    (b"Set-Cookie", b"a=1, b"),
    (b"X-One", b"1"),
    (b"Set-Cookie", b"c=2"),
    (b"Date", b"yesterday"),
    (b"Server", b"up/1"),
]


def test_case_085_a_response_is_relayed_as_it_is(house: House) -> None:
    """Order and repetition are kept, cookies stay apart, nothing is decoded; Date and Server are the upstream's."""
    told = house.relayed(head("/"), 200, list(ENCODED), b"\x1f\x8b\x08\x00")
    kept = [(name.lower(), value) for name, value in ENCODED]
    assert told.headers[: len(kept)] == kept
    assert told.body == b"\x1f\x8b\x08\x00"
    added = [name for name, _ in told.headers[len(kept) :]]
    assert added == [b"via", b"ratelimit-policy", b"ratelimit"]


def test_hop_by_hop_fields_of_a_response(house: House) -> None:
    """They end here, with those that Connection names, but never what frames the body; a missing Date is added."""
    told = house.relayed(
        head("/"),
        200,
        [
            (b"Connection", b"keep-alive, X-Private"),
            (b"Connection", b"Content-Length"),
            (b"Keep-Alive", b"timeout=5"),
            (b"X-Private", b"1"),
            (b"Transfer-Encoding", b"chunked"),
            (b"Evenhand-Refused", b"key"),
            (b"Evenhand_Refused", b"key"),
            (b"Content_Length", b"9"),
            (b"Transfer_Encoding", b"chunked"),
            (b"Content-Length", b"2"),
            (b"Via", b"1.1 cache"),
        ],
        b"ok",
    )
    names = [name for name, _ in told.headers]
    assert names == [b"content-length", b"via", b"via", b"date", b"ratelimit-policy", b"ratelimit"]
    assert (told.field("date") or "").endswith(" GMT")


def test_a_204_has_no_length(house: House) -> None:
    """RFC 9110 section 8.6; a 304 may tell the length it would have had."""
    assert house.relayed(head("/"), 204, [(b"Content-Length", b"0")]).field("content-length") is None
    assert house.relayed(head("/"), 304, [(b"Content-Length", b"9")]).field("content-length") == "9"


def store(url: str, namespace: str = "evenhand") -> StoreSection:
    """Return the section of a store."""
    return StoreSection.model_validate({"url": url, "namespace": namespace})


def test_processes_with_one_set_of_books_have_one_name() -> None:
    """A loop is a request that comes back to the same books; no password is in the name, not even digested."""
    shared = pseudonym(store("redis://user:secret@redis.example.com:6379/0"))
    assert shared == pseudonym(store("redis://other:words@redis.example.com:6379/0"))
    assert shared != pseudonym(store("redis://redis.example.com:6379/0", "team-b"))
    assert shared != pseudonym(store("redis://redis-b.example.com:6379/0"))
    own = pseudonym(store("memory:"))
    assert own == pseudonym(store("memory:", "team-b"))
    assert re.fullmatch(rb"evenhand-[0-9a-f]{8}", own)
    assert re.fullmatch(rb"evenhand-[0-9a-f]{8}", shared)
