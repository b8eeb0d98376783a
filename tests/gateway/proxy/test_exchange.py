"""The line from head in to settled, on every path: one charge, one end, nothing half told."""

from __future__ import annotations

import gc
import logging
from pathlib import Path
from typing import Any, NoReturn

import orjson
import pytest

from gateway.pipeline import Pipeline
from gateway.ports import Headers
from gateway.proxy.call import Caller
from gateway.proxy.exchange import Exchange
from gateway.proxy.failure import FailureKind
from gateway.proxy.front import Way
from gateway.proxy.parse import Parser
from policies.charge import Memo
from tests.gateway.proxy.house import A, B, House, head, write

JSON = "application/problem+json"


@pytest.fixture
def house(tmp_path: Path) -> House:
    """Return a gateway whose key may spend 10/s, burst 20."""
    return House(write(tmp_path))


@pytest.fixture
def poor(tmp_path: Path) -> House:
    """Return a gateway whose key may spend one request a minute."""
    return House(write(tmp_path, quota="1/min burst 1"))


def affords(house: House) -> bool:
    """Return whether the one request a minute is still there."""
    _, told = house.begin(head("/"))
    return not told.status


def test_a_request_and_its_response(house: House) -> None:
    """Head, body and end pass through; the books say served, once."""
    exchange, told = house.begin(head("/a?b", accept="*/*"))
    call = house.call
    assert (call.method, call.target, call.length) == (b"GET", b"/a?b", 0)
    assert call.options.pop("share").tenant == "acme"
    assert isinstance(call.options.pop("memo"), Memo)
    assert call.options == {"idempotent": True, "host": None, "first_byte_timeout_us": None}
    call.respond(201, [(b"Content-Length", b"4")], b"ab", b"cd")
    assert (told.status, told.body, told.end_, told.field("content-length")) == (201, b"abcd", "end", "4")
    assert house.books.ends == [("served", 201, "")]
    assert house.books.settled[0].sent
    assert house.books.settled[0].upstream_us >= 0
    exchange.caller_gone()
    assert exchange.over
    assert call.did == []
    assert len(house.books.ends) == 1


@pytest.mark.parametrize(
    ("method", "idempotent"),
    [
        ("GET", True),
        ("HEAD", True),
        ("OPTIONS", True),
        ("PUT", True),
        ("DELETE", True),
        ("POST", False),
        ("PATCH", False),
    ],
)
def test_which_methods_may_be_repeated(house: House, method: str, idempotent: bool) -> None:
    """RFC 9110 section 9.2.2."""
    house.begin(head("/", method))
    assert house.call.options["idempotent"] is idempotent


def test_an_exchange_that_is_over_needs_no_collector(poor: House) -> None:
    """Served, refused, failed or left: nothing points in a circle, so its memory is free at once."""
    gc.collect()
    gc.disable()
    try:
        poor.relayed(head("/"), 200, [], b"ok")
        poor.ask(head("/"))
        poor.ask(head("//"))
        for end in (Exchange.caller_gone, lambda _: poor.call.fail(FailureKind.RESET)):
            end(poor.begin(head("/", token=B.token))[0])
        poor.upstream.calls.clear()
        assert not [one for one in gc.get_objects() if isinstance(one, Exchange)]
    finally:
        gc.enable()


# Refusals and rejections


def test_a_refusal(poor: House) -> None:
    """Nothing goes upstream, nothing is charged, and the books say refused by key."""
    poor.relayed(head("/"))
    told = poor.ask(head("/"))
    assert (told.status, told.field("content-type"), told.field("evenhand-refused")) == (429, JSON, "key")
    assert orjson.loads(told.body)["instance"] == f"urn:evenhand:request:{told.field('x-request-id')}"
    assert len(poor.upstream.calls) == 1
    assert poor.books.ends[1:] == [("refused", 429, "key")]
    assert not poor.books.settled[1].sent


def test_a_credential_that_proves_nothing(house: House) -> None:
    """401, counted as rejected; nothing goes upstream."""
    told = house.ask(head("/", token="evh_pat_wrong"))
    assert (told.status, told.field("www-authenticate")) == (401, 'Bearer error="invalid_token"')
    assert house.books.ends == [("rejected", 401, "")]
    assert house.books.settled[0].principal.tenant == "rejected"
    assert house.upstream.calls == []


def test_failed_authentication_has_a_quota(tmp_path: Path) -> None:
    """401 while the address has quota, then 429, which is refused."""
    house = House(write(tmp_path, auth='rejected_quota = "1/min burst 1"'))
    assert [house.ask(head("/", token="evh_pat_wrong")).status for _ in range(2)] == [401, 429]
    assert [end[0] for end in house.books.ends] == ["rejected", "refused"]


@pytest.mark.parametrize(
    ("target", "method", "fields", "status", "outcome", "tenant"),
    [
        ("//a", "GET", {}, 400, "rejected", "rejected"),
        ("/", "GET", {"host": None}, 400, "rejected", "rejected"),
        ("a:443", "CONNECT", {}, 405, "rejected", "rejected"),
        ("/", "TRACE", {}, 405, "rejected", "acme"),
        ("/", "GET", {"expect": "nothing"}, 417, "rejected", "acme"),
        ("/", "GET", {"upgrade": "websocket"}, 501, "rejected", "acme"),
        ("/" + "a" * 40_000, "GET", {}, 414, "rejected", "rejected"),
        ("/", "POST", {"content_length": str(64 * 1024 * 1024 + 1)}, 413, "rejected", "acme"),
    ],
)
def test_rejections(
    poor: House, target: str, method: str, fields: dict[str, Any], status: int, outcome: str, tenant: str
) -> None:
    """Each is a problem, counted once under whom it proved (400 under nobody), and costs no quota."""
    told = poor.ask(head(target, method, **fields))
    assert (told.status, told.field("content-type")) == (status, JSON)
    assert poor.books.ends == [(outcome, status, "")]
    assert poor.books.settled[0].principal.tenant == tenant
    assert poor.upstream.calls == []
    assert affords(poor)


def test_case_128_a_loop_of_our_own(poor: House) -> None:
    """What we sent comes back to us: 508, counted as an upstream error, and the loop costs one charge."""
    poor.begin(head("/"))
    via = (poor.call.field("via") or b"").decode()
    told = poor.ask(head("/", via=via, token=None))
    assert told.status == 508
    assert poor.books.ends == [("upstream_error", 508, "")]


def test_shadow_refuses_nothing(tmp_path: Path) -> None:
    """`[server] mode = "shadow"`: over quota and unproved requests go on, and carry no RateLimit fields."""
    house = House(write(tmp_path, quota="1/min burst 1", server='mode = "shadow"'))
    for token in (A.token, A.token, "evh_pat_wrong"):
        told = house.relayed(head("/", token=token), 200, [], b"ok")
        assert (told.status, told.field("ratelimit")) == (200, None)
    assert [end[0] for end in house.books.ends] == ["served"] * 3


# What is relayed


@pytest.mark.parametrize("status", [200, 204, 301, 304, 400, 404, 429, 500, 502, 503, 599])
def test_ratelimit_fields_and_outcomes_by_status(house: House, status: int) -> None:
    """Admitted answers tell what is left, but 3xx, 429 and 503 of the upstream do not; a 5xx is its error."""
    told = house.relayed(head("/"), status, [])
    told_of_limits = told.field("ratelimit") is not None
    assert told_of_limits is (status not in (301, 304, 429, 503))
    assert told.field("evenhand-refused") is None
    assert house.books.ends == [("upstream_error" if status >= 500 else "served", status, "")]


@pytest.mark.parametrize(
    ("status", "headers"),
    [
        (429, [(b"Retry-After", b"30"), (b"RateLimit", b'"x";r=0;t=30'), (b"X-RateLimit-Remaining", b"0")]),
        (429, []),
        (503, [(b"Retry-After", b"Mon, 30 Nov 2026 00:00:00 GMT"), (b"Evenhand-Refused", b"key")]),
    ],
)
def test_case_057_the_upstreams_refusals_are_its_own(house: House, status: int, headers: Headers) -> None:
    """Relayed unchanged, told apart by Evenhand-Refused, and no refusal of ours in the books."""
    told = house.relayed(head("/"), status, list(headers), b"busy")
    kept = [(name.lower(), value) for name, value in headers if name != b"Evenhand-Refused"]
    assert told.headers[: len(kept)] == kept
    assert [name for name, _ in told.headers[len(kept) :]] == [b"via", b"date"]
    assert told.body == b"busy"
    assert house.books.ends[0][0] == ("served" if status == 429 else "upstream_error")


def test_members_of_the_upstream_are_kept(house: House) -> None:
    """A List may stand in several fields: the upstream's members first, ours appended."""
    told = house.relayed(head("/"), 200, [(b"RateLimit", b'"up";r=5'), (b"RateLimit-Policy", b'"up";q=5')])
    assert [value for name, value in told.headers if name == b"ratelimit"] == [b'"up";r=5', b'"key";r=10;t=1']
    assert [value for name, value in told.headers if name == b"ratelimit-policy"] == [b'"up";q=5', b'"key";q=10;w=1']


def test_legacy_fields_have_one_value(tmp_path: Path) -> None:
    """X-RateLimit-* are no List: where the upstream sends them, they are its own."""
    house = House(write(tmp_path, refusal='headers = "legacy"'))
    assert house.relayed(head("/")).field("x-ratelimit-limit") == "10"
    assert house.relayed(head("/"), 200, [(b"X-RateLimit-Limit", b"7")]).field("x-ratelimit-limit") == "7"


def test_interim_responses(house: House) -> None:
    """Early hints pass, without hop-by-hop fields and framing; a 100 was between us and the upstream."""
    _, told = house.begin(head("/"))
    receiver = house.call.receiver
    receiver.on_interim(100, [])
    receiver.on_interim(103, [(b"Link", b"</a>"), (b"Connection", b"X-A"), (b"x_a", b"1"), (b"Content_Length", b"3")])
    assert told.interims == [(103, [(b"link", b"</a>")])]
    house.call.respond()
    assert told.status == 200


# Failures

KINDS = [
    (FailureKind.REFUSED, 502),
    (FailureKind.DNS, 502),
    (FailureKind.TLS, 502),
    (FailureKind.PROTOCOL, 502),
    (FailureKind.RESET, 502),
    (FailureKind.TRUNCATED, 502),
    (FailureKind.IDLE_TIMEOUT, 502),
    (FailureKind.CONNECT_TIMEOUT, 504),
    (FailureKind.FIRST_BYTE_TIMEOUT, 504),
    (FailureKind.TOTAL_TIMEOUT, 504),
    (FailureKind.CLOSED, 503),
]


def test_every_failure_is_mapped() -> None:
    """No kind of failure without a status here."""
    assert {kind for kind, _ in KINDS} | {FailureKind.CONNECTIONS} == set(FailureKind)


@pytest.mark.parametrize(("kind", "status"), KINDS)
@pytest.mark.parametrize("sent", [True, False])
def test_failures_before_the_head(poor: House, kind: FailureKind, status: int, sent: bool) -> None:
    """A problem with the status of the failure; the charge is kept if and only if the head was written."""
    poor.upstream.connects = sent
    _, told = poor.begin(head("/"))
    poor.call.fail(kind)
    assert (told.status, told.field("content-type"), told.end_) == (status, JSON, "end")
    assert orjson.loads(told.body)["detail"] == "It did not work."
    assert poor.books.ends == [("upstream_error", status, "")]
    assert affords(poor) is not sent


def test_no_connection_is_a_refusal_and_costs_nothing(poor: House) -> None:
    """503 that names `connections`, outcome refused, the charge given back."""
    poor.upstream.connects = False
    _, told = poor.begin(head("/"))
    poor.call.fail(FailureKind.CONNECTIONS)
    assert (told.status, told.field("evenhand-refused"), told.field("retry-after")) == (503, "connections", "1")
    assert poor.books.ends == [("refused", 503, "connections")]
    assert affords(poor)


@pytest.mark.parametrize("status", [200, 404, 500])
@pytest.mark.parametrize("chunks", [(), (b"half",)])
@pytest.mark.parametrize("kind", [FailureKind.TRUNCATED, FailureKind.RESET, FailureKind.IDLE_TIMEOUT])
def test_case_083_a_broken_answer_is_a_broken_transfer(
    house: House, status: int, chunks: tuple[bytes, ...], kind: FailureKind
) -> None:
    """After the head was passed on the transfer is broken off, never completed; it is the upstream's error."""
    _, told = house.begin(head("/"))
    receiver = house.call.receiver
    receiver.on_response(status, [(b"Content-Length", b"8")])
    for chunk in chunks:
        receiver.on_data(chunk)
    house.call.fail(kind)
    assert (told.status, told.body, told.end_) == (status, b"".join(chunks), "abort")
    assert house.books.ends == [("upstream_error", status, "")]


# The caller leaves


@pytest.mark.parametrize("sent", [True, False])
def test_case_087_gone_before_the_head(poor: House, sent: bool) -> None:
    """The call is cancelled at once and the request aborted; unsent it costs nothing."""
    poor.upstream.connects = sent
    exchange, told = poor.begin(head("/"))
    exchange.caller_gone()
    assert poor.call.did == ["cancel"]
    assert (told.status, told.end_) == (0, "")
    exchange.caller_gone()
    exchange.body(b"late")
    exchange.body_end()
    exchange.caller_writable(True)
    assert poor.books.ends == [("aborted", 0, "")]
    assert affords(poor) is not sent


@pytest.mark.parametrize(("status", "outcome"), [(200, "served"), (404, "served"), (500, "upstream_error")])
def test_case_087_gone_during_the_body(house: House, status: int, outcome: str) -> None:
    """The call is cancelled at once; a caller that cuts a running response was served."""
    exchange, _ = house.begin(head("/"))
    house.call.receiver.on_response(status, [])
    house.call.receiver.on_data(b"half")
    exchange.caller_gone()
    assert house.call.did == ["cancel"]
    assert house.books.ends == [(outcome, status, "")]


def test_a_slow_caller_holds_the_response_back(house: House) -> None:
    """Back-pressure reaches the upstream connection."""
    exchange, _ = house.begin(head("/"))
    exchange.caller_writable(False)
    exchange.caller_writable(True)
    assert house.call.did == ["pause", "resume"]


# Routes

ROUTED = """
[upstreams.reports]
url = "http://127.0.0.1:9100"

[[routes]]
name = "exports"
path = "/v1/exports/**"
cost = 5
class = "batch"
upstream = "reports"
strip_prefix = "/v1"
first_byte_timeout = "5m"
"""


def test_a_route_chooses_upstream_prefix_and_time(tmp_path: Path) -> None:
    """`upstream`, `strip_prefix` and `first_byte_timeout` are the route's; the rest of the target is unchanged."""
    house = House(write(tmp_path, more=ROUTED))
    house.begin(head("/v1/%65xports/a%20b?x=%2f"))
    (call,) = house.named["reports"].calls
    assert call.target == b"/%65xports/a%20b?x=%2f"
    assert call.options["first_byte_timeout_us"] == 300_000_000
    assert call.field("evenhand-class") == b"batch"
    house.begin(head("/v1/other"))
    assert house.call.target == b"/v1/other"
    house.begin(head("*", "OPTIONS"))
    assert house.call.target == b"*"
    assert house.ask(head("/v1/exports/../other")).status == 400


# Bugs


def test_a_bug_is_one_problem_and_is_counted(house: House, caplog: pytest.LogCaptureFixture) -> None:
    """Whatever breaks while a head is handled: 500 for this caller, a line for us, and nothing left open."""

    class Broken(Caller):
        def call(self, *_: Any, **__: Any) -> NoReturn:
            raise RuntimeError("broken")

    house.front.ways = (Way(Broken(), house.front.ways[-1].fields, preserve_host=False),)
    with caplog.at_level(logging.ERROR):
        told = house.ask(head("/"))
    assert (told.status, told.field("content-type")) == (500, JSON)
    assert house.books.ends == [("upstream_error", 500, "")]
    assert "could not be handled" in caplog.text


@pytest.mark.interpreted
@pytest.mark.parametrize("stage", ["parse", "decide"])
def test_a_bug_before_the_decision(house: House, monkeypatch: pytest.MonkeyPatch, stage: str) -> None:
    """Nobody was identified, so nobody but the address is blamed."""

    def broken(*_: object) -> None:
        raise RuntimeError("broken")

    monkeypatch.setattr(Parser if stage == "parse" else Pipeline, stage, broken)
    told = house.ask(head("/"))
    assert (told.status, len(told.field("x-request-id") or "")) == (500, 26)
    assert house.books.ends == [("upstream_error", 500, "")]


def test_a_bug_while_the_end_is_counted(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    """A refusal that was answered is not answered twice."""

    def broken(*_: object) -> None:
        raise RuntimeError("broken")

    monkeypatch.setattr(house.books, "record", broken)
    told = house.ask(head("/", token="evh_pat_wrong"))
    assert told.status == 401
