"""Case 59: every error we originate is one shape: valid problem+json, its status the real one, told when to retry."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from tests.wire.caller import Caller, Response, call, request
from tests.wire.gateway import Gateway, free_port, running, tenant, token
from tests.wire.ledger import Ledger, balanced
from tests.wire.origin import Origin
from tests.wire.script import HANG
from tests.wire.tokens import pat
from tests.wire.waiting import until

__all__: list[str] = []

UPGRADE = (
    ("Connection", "Upgrade"),
    ("Upgrade", "websocket"),
    ("Sec-WebSocket-Version", "13"),
    ("Sec-WebSocket-Key", "dGhlIHNhbXBsZSBub25jZQ=="),
)
METHODS = ("GET", "HEAD", "POST", "OPTIONS", "PURGE")
REQUIRED = {"type": str, "title": str, "status": int, "detail": str, "instance": str}
OF_A_LIMIT = {"limit": str, "violated-policies": list, "retryable": bool, "tenant": str, "class": str}


@dataclass(frozen=True)
class Error:
    """One error of our own: what provokes it, its status, and to whom it is counted (None: rejected)."""

    status: int
    token: str | None
    target: str = "/"
    fields: tuple[tuple[str, str], ...] = ()
    tenant: str | None = None
    limit: str | None = None
    retry: bool = False


ERRORS = {
    "two credentials": Error(400, token("plenty"), fields=(("X-API-Key", token("spent")),)),
    "bad token": Error(401, pat("nobody").token),
    "over quota": Error(429, token("spent"), tenant="spent", limit="key", retry=True),
    "zero quota": Error(429, token("zero"), tenant="zero", limit="key"),
    "no seat": Error(429, token("seatless"), tenant="seatless", limit="concurrency", retry=True),
    "tenant spent": Error(429, token("shared"), tenant="shared", limit="tenant", retry=True),
    "policy": Error(429, token("plenty"), "/narrow", tenant="plenty", limit="narrow", retry=True),
    "no connection": Error(503, token("plenty"), "/full", tenant="plenty", limit="connections", retry=True),
    "upstream down": Error(502, token("plenty"), "/down", tenant="plenty"),
    "upstream silent": Error(504, token("plenty"), "/slow", tenant="plenty"),
}


#: What is refused once one request was served, and while one is held.
SPENT = {"over quota", "tenant spent", "policy"}
HELD = {"no seat": "/hold", "no connection": "/full/hold"}


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory, origin: Origin) -> Iterator[Gateway]:
    """Run a gateway with a tenant for each error, one upstream that is down and one route that waits 0.1 s."""
    config = {
        "backstop": {"quota": "1000/s burst 1000"},
        "auth": {"rejected_quota": "1000/s burst 1000"},
        "server": {"max_body_bytes": "1KiB"},
        "upstreams": {
            "down": {"url": f"http://127.0.0.1:{free_port()}"},
            "full": {"url": origin.address, "max_connections": 1, "connect_timeout": "500ms"},
        },
        "policies": [{"name": "narrow", "match": {"route": "narrow"}, "key": ["tenant"], "quota": "1/h burst 1"}],
        "routes": [
            {"name": "full", "path": "/full/**", "upstream": "full"},
            {"name": "full-itself", "path": "/full", "upstream": "full"},
            {"name": "narrow", "path": "/narrow"},
            {"name": "down", "path": "/down", "upstream": "down"},
            {"name": "slow", "path": "/slow", "first_byte_timeout": "100ms"},
        ],
        "tenants": [
            tenant("spent", quota="1/h burst 1"),
            tenant("zero", quota="0/s"),
            tenant("seatless", quota="1000/s burst 1000", concurrency=1),
            tenant("shared", quota="1000/s burst 1000", entry={"quota": "1/h burst 1"}),
            tenant("plenty", quota="1000/s burst 1000"),
        ],
    }
    with running(tmp_path_factory.mktemp("gateway"), origin, config) as one:
        yield one


async def provoke(gateway: Gateway, books: Ledger, error: Error, method: str, octets: bytes) -> Response:
    """Send `octets`, which are to end in `error`, and see that the connection goes on or ends with notice."""
    async with await Caller.connect(gateway.address) as caller:
        await caller.send(octets)
        answer = await caller.response(method)
        if (answer.header("connection") or "").lower() == "close":
            await caller.until_closed()
        else:
            await caller.send(request("HEAD", "/again", token=token("plenty")))
            assert (await caller.response("HEAD")).status == 200
            books.sent("plenty")
    if error.tenant is None:
        books.rejected()
    else:
        books.sent(error.tenant)
    return answer


def check(answer: Response, error: Error, method: str) -> None:
    """Hold an answer to the shape that all have."""
    assert answer.status == error.status
    assert answer.complete
    assert answer.header("cache-control") == "no-store"
    assert answer.header("content-type") == "application/problem+json"
    assert (answer.header("retry-after") is not None) == error.retry
    assert answer.header("evenhand-refused") == error.limit
    length = int(answer.header("content-length") or 0)
    if method == "HEAD":
        assert answer.body == b""
        assert length > 0
        return
    assert length == len(answer.body)
    problem = answer.json()
    wanted = REQUIRED | (OF_A_LIMIT if error.limit else {})
    assert {name: type(problem.get(name)) for name in wanted} == wanted
    assert problem["status"] == error.status
    assert problem["type"].startswith("https://")
    assert problem["instance"] == f"urn:evenhand:request:{answer.header('x-request-id')}"
    if error.limit:
        assert problem["limit"] == error.limit
        assert problem["retryable"] == error.retry


@pytest.fixture(autouse=True)
def _scripts(up: Origin) -> None:
    up.on("/slow", HANG)
    up.on("/hold", HANG)
    up.on("/full/hold", HANG)


@pytest.mark.parametrize("name", ERRORS)
async def test_error_has_one_shape(gateway: Gateway, up: Origin, name: str) -> None:
    """Whatever the error and the method: one schema, one framing, and a connection that goes on or says it ends."""
    error = ERRORS[name]
    async with balanced(gateway, up) as books:
        if name in SPENT:
            assert (await call(gateway.address, request(target=error.target, token=error.token))).status == 200
            books.sent(error.tenant or "")
        async with await Caller.connect(gateway.address) as holder:
            if name in HELD:
                await holder.send(request(target=HELD[name], token=error.token))
                await until(lambda: up.seen, "it is held")
                books.sent(error.tenant or "")
            for method in METHODS:
                body = b"some" if method == "POST" else None
                octets = request(method, error.target, token=error.token, fields=error.fields, body=body)
                check(await provoke(gateway, books, error, method, octets), error, method)


@pytest.mark.parametrize("name", ["bad token", "zero quota"])
async def test_refused_upgrade_is_a_plain_problem(gateway: Gateway, up: Origin, name: str) -> None:
    """A WebSocket handshake is refused in HTTP, before any upgrade."""
    error = ERRORS[name]
    async with balanced(gateway, up) as books:
        octets = request(token=error.token, fields=[*UPGRADE, *error.fields])
        check(await provoke(gateway, books, error, "GET", octets), error, "GET")


@pytest.mark.parametrize(("method", "target"), [("TRACE", "/"), ("CONNECT", "example.com:443")])
async def test_method_that_is_not_passed_on(gateway: Gateway, up: Origin, method: str, target: str) -> None:
    """TRACE and CONNECT are 405 with what is allowed."""
    error = Error(405, token("plenty"))
    async with balanced(gateway, up) as books:
        octets = request(method, target, token=error.token, host=target if method == "CONNECT" else "api.example.com")
        answer = await provoke(gateway, books, error, method, octets)
    check(answer, error, method)
    assert "GET" in (answer.header("allow") or "")


@pytest.mark.parametrize(
    "octets",
    [
        b"GET / HTTP/1.1\r\n\r\n",
        b"GET / HTTP/1.1\nHost: a\n\n",
        b"GET /\r\n\r\n",
        b"BREW / HTTP/1.1\r\nHost: a\r\n\r\n",
        b"get / HTTP/1.1\r\nHost: a\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
        b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    ],
)
async def test_malformed_octets(gateway: Gateway, up: Origin, octets: bytes) -> None:
    """What is not a request, or asks for what no parser knows, is 400, in the same shape, and closes the connection."""
    error = Error(400, None)
    async with balanced(gateway, up) as books:
        answer = await provoke(gateway, books, error, "GET", octets)
    check(answer, error, "GET")
    assert (answer.header("connection") or "").lower() == "close"
    assert up.seen == []


async def test_body_too_large(gateway: Gateway, up: Origin) -> None:
    """A declared length over the bound is 413, and the upstream sees nothing."""
    error = Error(413, token("plenty"))
    async with balanced(gateway, up) as books:
        octets = request("POST", token=error.token, body=b"x" * 2000)
        check(await provoke(gateway, books, error, "POST", octets), error, "POST")
    assert [seen.method for seen in up.seen if seen.method == "POST"] == []


@pytest.mark.parametrize(
    ("accept", "media"),
    [
        (None, "application/problem+json"),
        ("*/*", "application/problem+json"),
        ("nonsense;;;q=x", "application/problem+json"),
        ("application/json", "application/problem+json"),
        ("text/html,application/xhtml+xml,*/*;q=0.8", "text/html"),
        ("text/markdown", "text/markdown"),
    ],
)
async def test_accept_chooses_the_form(gateway: Gateway, up: Origin, accept: str | None, media: str) -> None:
    """People who ask for a page get one; everybody else gets the problem."""
    error = ERRORS["zero quota"]
    fields = [("Accept", accept)] if accept is not None else []
    async with balanced(gateway, up) as books:
        answer = await provoke(gateway, books, error, "GET", request(token=error.token, fields=fields))
    assert answer.status == 429
    assert (answer.header("content-type") or "").split(";")[0] == media
    assert len(answer.body) == int(answer.header("content-length") or 0) > 0
