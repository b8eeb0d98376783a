"""Case 113: a WebSocket is authenticated, charged once, and holds its place until it is closed."""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
from collections import Counter
from collections.abc import Iterator

import jwt
import pytest
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.sync.server import ServerConnection, serve

from tests.wire.gateway import Gateway, running, tenant, token
from tests.wire.ledger import balanced
from tests.wire.waiting import until

__all__: list[str] = []

SECRET = "s" * 32


class Peer:
    """An upstream that says everything again, and keeps a record of whose handshakes arrived."""

    def __init__(self) -> None:
        self.address = ""
        self._tenants: list[str] = []

    def by_tenant(self) -> Counter[str]:
        """Return how many came of each tenant."""
        return Counter(self._tenants)

    def forget(self) -> None:
        """Drop the record."""
        self._tenants = []

    def echo(self, connection: ServerConnection) -> None:
        """Serve one."""
        assert connection.request is not None
        self._tenants.append(connection.request.headers["Evenhand-Tenant"])
        with contextlib.suppress(ConnectionClosed):
            for message in connection:
                connection.send(message)


@pytest.fixture(scope="module")
def peer() -> Iterator[Peer]:
    """Run it."""
    one = Peer()
    with serve(one.echo, "127.0.0.1", 0) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        one.address = f"http://127.0.0.1:{server.socket.getsockname()[1]}"
        yield one
        server.shutdown()
        thread.join()


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory, peer: Peer) -> Iterator[Gateway]:
    """Run a gateway: A may hold 10, C has 10 a second, and pages come from one origin."""
    issuer = {"issuer": "id.test", "audience": "api", "algorithms": ["HS256"], "secret": SECRET}
    config = {
        "auth": {"anonymous": False, "jwt": [{**issuer, "tenant_claim": "tenant", "key_claim": "sub"}]},
        "backstop": {"quota": "1000/s burst 1000"},
        "websocket": {"origins": ["https://app.example.com"]},
        "tenants": [
            tenant("a", quota="1000/s burst 1000", concurrency=10),
            tenant("c", quota="10/s burst 20"),
            {"id": "j", "credentials": [{"id": "w", "quota": "100/s"}]},
        ],
    }
    with running(tmp_path_factory.mktemp("gateway"), peer.address, config) as one:
        yield one


async def opened(gateway: Gateway, credential: str | None, **more: str) -> ClientConnection | int:
    """Return an open WebSocket, or the status that refused it."""
    fields = {"Authorization": f"Bearer {credential}"} if credential else {}
    try:
        return await connect(f"ws://{gateway.address}/live", additional_headers=fields, proxy=None, **more)  # type: ignore[arg-type] # origin
    except InvalidStatus as refusal:
        return refusal.response.status_code


async def test_a_hundred_at_once(gateway: Gateway, peer: Peer) -> None:
    """At most ten are open, the others are 429 in HTTP, and every kind of close gives its seat back."""
    async with balanced(gateway, peer) as books:
        for ending in ("close", "abort", "half"):
            found = await asyncio.gather(*(opened(gateway, token("a")) for _ in range(100)))
            books.sent("a", 100)
            held = [one for one in found if isinstance(one, ClientConnection)]
            assert [one for one in found if isinstance(one, int)] == [429] * 90
            assert len(held) == 10
            assert gateway.metrics().sum("evenhand_in_flight") == 10
            for one in held:
                await one.send("hello")
                assert await one.recv() == "hello"
                match ending:
                    case "close":
                        await one.close(4000, "mine")
                    case "abort":
                        one.transport.abort()
                    case _:
                        one.transport.close()
            await until(lambda: gateway.metrics().sum("evenhand_in_flight") == 0, "seats free")
    row = gateway.row("a") or {}
    assert (row["served"], row["refused"]) == (30, {"concurrency": 270})


async def test_rate_of_opening_is_the_keys(gateway: Gateway, peer: Peer) -> None:
    """Opening and closing 50 times a second gets the key's rate, no more."""
    async with balanced(gateway, peer) as books:
        opens, tries, started = 0, 0, time.monotonic()
        while time.monotonic() - started < 2.0 or tries < 40:
            tries += 1
            one = await opened(gateway, token("c"))
            books.sent("c")
            if isinstance(one, ClientConnection):
                opens += 1
                await one.close()
            await asyncio.sleep(0.02)
    elapsed = time.monotonic() - started
    assert 20 <= opens <= 20 + 10 * elapsed + 1


async def test_who_may_not(gateway: Gateway, peer: Peer) -> None:
    """No credential and an expired one are 401, a page of another origin 403: before the upgrade, and counted."""
    claims = {"iss": "id.test", "aud": "api", "tenant": "j", "sub": "w"}
    expired = jwt.encode({**claims, "exp": int(time.time()) - 60}, SECRET)
    async with balanced(gateway, peer) as books:
        assert await opened(gateway, None) == 401
        assert await opened(gateway, expired) == 401
        assert await opened(gateway, token("c") + "x") == 401
        await asyncio.sleep(0.3)
        assert await opened(gateway, token("c"), origin="https://evil.example") == 403
        books.rejected(4)
        one = await opened(gateway, token("c"), origin="https://app.example.com")
        assert isinstance(one, ClientConnection)
        await one.close()
        books.sent("c")


async def test_token_that_expires_while_open(gateway: Gateway, peer: Peer) -> None:
    """1008 when it expires, and the next handshake is 401."""
    claims = {"iss": "id.test", "aud": "api", "tenant": "j", "sub": "w", "exp": int(time.time()) + 4}
    credential = jwt.encode(claims, SECRET)
    async with balanced(gateway, peer) as books:
        one = await opened(gateway, credential)
        books.sent("j")
        assert isinstance(one, ClientConnection)
        await one.send("hello")
        assert await one.recv() == "hello"
        async with asyncio.timeout(30):
            await one.wait_closed()
        assert one.close_code == 1008
    await until(lambda: (gateway.row("j") or {}).get("served") == 1, "settled")

    def ended() -> list[str]:
        return [line["ended"] for line in gateway.log_lines() if line.get("tenant") == "j"]

    await until(lambda: ended() == ["expired"], "logged")
