"""Requests that wait for a shared store: whatever they are, they go on as if they had not, or leave nothing behind."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.wire.caller import Caller, request
from tests.wire.faults import FaultProxy
from tests.wire.gateway import Gateway, running, tenants, token
from tests.wire.ledger import balanced
from tests.wire.load import at_once
from tests.wire.origin import Origin, serving
from tests.wire.redis import RedisServer
from tests.wire.waiting import until

__all__: list[str] = []

_UPGRADE = [
    ("Connection", "Upgrade"), ("Upgrade", "websocket"), ("Sec-WebSocket-Version", "13"),
    ("Sec-WebSocket-Key", "dGhlIHNhbXBsZSBub25jZQ=="),
]  # fmt: skip


@pytest.fixture(scope="module")
def up() -> Iterator[Origin]:
    """Run one upstream for the module."""
    with serving() as origin:
        yield origin


@pytest.fixture(scope="module")
def proxy(redis_process: RedisServer) -> Iterator[FaultProxy]:
    """Stand between the gateway and its store."""
    redis_process.clear()
    with FaultProxy(redis_process.address) as found:
        yield found


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory, up: Origin, proxy: FaultProxy) -> Iterator[Gateway]:
    """Run a gateway that waits for its store for as long as it takes."""
    config = {
        "store": {"url": proxy.url, "deadline": "5s"},
        "backstop": {"quota": "100000/s"},
        "tenants": tenants("empty", "cold", "body", "behind", "socket", "leaves", "full", quota="1/h burst 2"),
    }
    with running(tmp_path_factory.mktemp("waits"), up, config) as found:
        yield found


@pytest.fixture
def slow(proxy: FaultProxy) -> Iterator[None]:
    """Have every answer of the store take 60 ms."""
    proxy.delay(0.03)
    yield
    proxy.heal()


def waits(gateway: Gateway) -> float:
    """Return how many requests waited so far."""
    return gateway.metrics().sum("evenhand_store_wait_seconds_count")


async def test_requests_of_every_kind_wait_and_go_on(gateway: Gateway, up: Origin, slow: None) -> None:
    """A plain one, one with a body, and one behind another on its connection: each is answered, in order."""
    before = waits(gateway)
    async with balanced(gateway, up) as books, await Caller.connect(gateway.address) as caller:
        posted = request("POST", "/posted", token=token("body"), body=b"x" * 5000)
        behind = [request(target=f"/{number}", token=token("behind")) for number in range(3)]
        await caller.send(request(token=token("cold")) + posted + b"".join(behind))
        found = [await caller.response(method) for method in ("GET", "POST", "GET", "GET", "GET")]
        books.sent("cold")
        books.sent("body")
        books.sent("behind", 3)
    assert [answer.status for answer in found] == [200, 200, 200, 200, 429]
    (seen,) = [one for one in up.seen if one.target == b"/posted"]
    assert seen.body == b"x" * 5000
    assert waits(gateway) - before >= 3


async def test_handshake_waits_and_is_decided(gateway: Gateway, up: Origin, slow: None) -> None:
    """A WebSocket over its limit is refused in HTTP, and another goes on to the upstream."""
    async with balanced(gateway, up) as books:
        await at_once(gateway.address, [request(token=token("full"))] * 2)
        shake = [request(target="/socket", token=token(name), fields=_UPGRADE) for name in ("full", "socket")]
        refused, passed = [(await at_once(gateway.address, [one])).statuses for one in shake]
        books.sent("full", 3)
        books.sent("socket")
    assert refused == {429: 1}
    # The scripted upstream speaks no WebSocket: its answer is passed on.
    assert passed == {200: 1}
    assert [one.target for one in up.seen].count(b"/socket") == 1


async def test_who_leaves_while_waiting_is_counted_and_charged_nothing(
    gateway: Gateway, up: Origin, proxy: FaultProxy
) -> None:
    """It is aborted, under the tenant that its credential proves; what was leased for it is there for the next."""
    async with balanced(gateway, up) as books:
        await at_once(gateway.address, [request(token=token("empty"))] * 3)
        before = waits(gateway)
        caller = await Caller.connect(gateway.address)
        proxy.freeze()
        # The first is decided here and now, so when it is answered the second waits.
        await caller.send(request(token=token("empty")) + request(token=token("leaves")))
        assert (await caller.response()).status == 429
        caller.reset()
        await until(lambda: waits(gateway) > before, "who left is noted")
        proxy.heal()
        tally = await at_once(gateway.address, [request(token=token("leaves"))] * 3)
        books.sent("empty", 4)
        books.sent("leaves", 4)
    assert tally.statuses == {200: 2, 429: 1}
    row = gateway.row("leaves")
    assert row is not None
    assert row["aborted"] == 1
