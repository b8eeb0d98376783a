"""A WebSocket through the app, the lane in front of it or not, with `websockets` as caller and as upstream."""

from __future__ import annotations

import asyncio
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from websockets.asyncio.server import ServerConnection
from websockets.http11 import Request, Response
from websockets.typing import Subprotocol

from gateway.pipeline import Pipeline
from tests.gateway.proxy.house import B
from tests.gateway.proxy.peers import HANDSHAKE, JSON, UPGRADE, T, both, closed, denied, opening
from tests.gateway.proxy.reach import until
from tests.gateway.proxy.shells import Shell, behind, every_shell
from tests.wire.caller import Caller, call, request

__all__: list[str] = []


@every_shell
async def test_frames_pass_both_ways(tmp_path: Path, shell: Shell) -> None:
    """Text and octets, long and short, arrive as they were sent; one request is counted, as served."""
    async with both(tmp_path, shell) as (gateway, peer):
        async with opening(gateway, "/live%2Fa?b=c&d") as caller:
            for message in ("grüße", b"\x00\xff", "", b"", "x" * 900_000):
                await caller.send(message)
                assert await caller.recv() == message
            assert gateway.pipeline.in_flight == 1
            assert gateway.books.settled == []
            assert caller.response is not None
            assert caller.response.headers["ratelimit"].startswith('"key"')
        await gateway.settled(1)
        assert gateway.books.ends == [("served", 101, "")]
        assert gateway.books.settled[0].sent
    assert [seen.path for seen in peer.seen] == ["/live%2Fa?b=c&d"]
    headers = peer.seen[0].headers
    assert headers["evenhand-tenant"] == "acme"
    assert headers["x-forwarded-for"] == "127.0.0.1"
    assert "authorization" not in headers
    assert len(headers.get_all("sec-websocket-key")) == len(headers.get_all("host")) == 1
    assert headers["host"] == peer.address.removeprefix("http://")


@every_shell
async def test_subprotocol_is_the_upstreams_choice(tmp_path: Path, shell: Shell) -> None:
    """What the caller offers is offered, and what the upstream chose is told."""
    async with both(tmp_path, shell) as (gateway, peer):

        def choose(connection: ServerConnection, asked: Request) -> None:
            connection.protocol.available_subprotocols = [Subprotocol("b")]

        peer.answer = choose
        async with opening(gateway, subprotocols=["a", "b"]) as caller:
            assert caller.subprotocol == "b"


@pytest.mark.parametrize(("code", "reason"), [(1000, ""), (1001, "bye"), (3000, "mine"), (4999, "é" * 20)])
@every_shell
async def test_closes_pass_both_ways(tmp_path: Path, shell: Shell, code: int, reason: str) -> None:
    """Code and reason of whoever closes reach the other side."""
    async with both(tmp_path, shell) as (gateway, peer):
        caller = await opening(gateway)
        await caller.close(code, reason)
        await until(lambda: bool(peer.closes))
        assert peer.closes == [(code, reason)]

        async def hang_up(connection: ServerConnection) -> None:
            await connection.send("last")
            await connection.close(code, reason)

        peer.play = hang_up
        caller = await opening(gateway)
        assert await caller.recv() == "last"
        assert await closed(caller) == (code, reason)
        await gateway.settled(2)
        assert [end[:2] for end in gateway.books.ends] == [("served", 101)] * 2


@every_shell
async def test_refusals_come_before_the_upgrade(tmp_path: Path, shell: Shell) -> None:
    """A spent key is 429 with its limit, a bad credential 401, and the upstream sees neither."""
    async with both(tmp_path, shell, quota="1/h burst 1") as (gateway, peer):
        async with opening(gateway):
            pass
        refused = await denied(gateway)
        assert (refused.status_code, refused.headers["evenhand-refused"]) == (429, "key")
        assert refused.headers["content-type"] == JSON
        assert (await denied(gateway, token="evh_pat_wrong")).status_code == 401
        await gateway.settled(3)
        assert sorted(gateway.books.ends) == [("refused", 429, "key"), ("rejected", 401, ""), ("served", 101, "")]
    assert len(peer.seen) == 1


@every_shell
async def test_tenant_has_so_many_open(tmp_path: Path, shell: Shell) -> None:
    """One more than `max_per_tenant` is 429, costs nothing, and another tenant is not concerned."""
    async with both(tmp_path, shell, websocket="max_per_tenant = 2") as (gateway, peer):
        first, second = await opening(gateway), await opening(gateway)
        refused = await denied(gateway)
        assert (refused.status_code, refused.headers["evenhand-refused"]) == (429, "concurrency")
        async with opening(gateway, token=B.token):
            assert gateway.sockets.open == 3
        await first.close()
        await until(lambda: gateway.sockets.open == 1)
        async with opening(gateway):
            pass
        await second.close()
        await gateway.settled(5)
        assert ("refused", 429, "concurrency") in gateway.books.ends
    assert len(peer.seen) == 4


@every_shell
async def test_pages_of_other_origins_are_refused(tmp_path: Path, shell: Shell) -> None:
    """An Origin that is not listed is 403; none at all is no browser."""
    async with both(tmp_path, shell, websocket='origins = ["https://app.example.com"]') as (gateway, peer):
        assert (await denied(gateway, origin="https://evil.example")).status_code == 403
        for origin in ("https://app.example.com", "HTTPS://APP.EXAMPLE.COM", None):
            async with opening(gateway, origin=origin):
                pass
        await gateway.settled(4)
        assert min(gateway.books.ends) == ("rejected", 403, "")
    assert len(peer.seen) == 3


@every_shell
async def test_what_the_upstream_answers_instead_is_passed_on(tmp_path: Path, shell: Shell) -> None:
    """Its status, fields and body reach the caller; nothing is followed."""
    async with both(tmp_path, shell) as (gateway, peer):

        def refuse(connection: ServerConnection, asked: Request) -> Response:
            status = int(asked.path.strip("/"))
            response = connection.respond(status, "no such thing\n")
            response.headers["X-Why"] = "because"
            response.headers["Location"] = "ws://127.0.0.1:1/"
            return response

        peer.answer = refuse
        for status in (404, 302, 503):
            response = await call(gateway.address, request(target=f"/{status}", token=T, fields=UPGRADE))
            assert (response.status, response.body) == (status, b"no such thing\n")
            assert response.header("x-why") == "because"
            assert response.header("evenhand-refused") is None
        await gateway.settled(3)
        assert gateway.books.ends == [("served", 404, ""), ("served", 302, ""), ("upstream_error", 503, "")]


@every_shell
async def test_upstream_that_cannot_be_reached(tmp_path: Path, shell: Shell) -> None:
    """Refused is 502, silent is 504, nonsense is 502; the charge is given back where nothing was sent."""

    async def silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        line = await reader.readline()
        if b"nonsense" in line:
            writer.write(b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: upgrade\r\n\r\n")
        await reader.read()
        writer.close()

    async with behind(shell, tmp_path, "http://127.0.0.1:9") as gateway:
        assert (await denied(gateway)).status_code == 502
        assert not gateway.books.settled[0].sent
    server = await asyncio.start_server(silent, "127.0.0.1", 0)
    url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    async with behind(shell, tmp_path, url, upstream=f'url = "{url}"\nfirst_byte_timeout = "300ms"') as gateway:
        assert (await denied(gateway)).status_code == 504
        assert (await denied(gateway, target="/nonsense")).status_code == 502
        assert [one.sent for one in gateway.books.settled] == [True, True]
        caller = await Caller.connect(gateway.address)
        await caller.send(HANDSHAKE)
        await asyncio.sleep(0.05)
        caller.close()
        await gateway.settled(3)
        assert gateway.books.ends[2] == ("aborted", 0, "")
    server.close()


@pytest.mark.interpreted
@every_shell
async def test_credential_that_expires_while_open(
    tmp_path: Path, shell: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A WebSocket does not outlive what admitted it."""
    decide = Pipeline.decide

    def soon(self: Pipeline, *args: Any, **more: Any) -> Any:
        decision = decide(self, *args, **more)
        decision.principal = replace(decision.principal, expires_us=time.time_ns() // 1000 + 400_000)
        return decision

    monkeypatch.setattr(Pipeline, "decide", soon)
    async with both(tmp_path, shell) as (gateway, _):
        assert await closed(await opening(gateway)) == (1008, "the credential has expired")
        await gateway.settled(1)
        assert gateway.books.settled[0].notes == {"ended": "expired"}


@every_shell
async def test_message_that_is_too_long(tmp_path: Path, shell: Shell) -> None:
    """1009 to whoever sent it, in either direction, fragments counted together."""
    async with both(tmp_path, shell, websocket='max_message = "1KiB"') as (gateway, peer):
        caller = await opening(gateway)
        await caller.send("x" * 1025)
        assert (await closed(caller))[0] == 1009

        async def shout(connection: ServerConnection) -> None:
            await connection.send(["x" * 600, "y" * 600])
            await connection.wait_closed()

        peer.play = shout
        assert (await closed(await opening(gateway)))[0] == 1009
        await gateway.settled(2)
        await until(lambda: len(peer.closes) == 2)
        assert peer.closes[1][0] == 1009


@every_shell
async def test_slow_side_holds_the_other_back(tmp_path: Path, shell: Shell) -> None:
    """What one side does not take is not read from the other, and all of it arrives."""
    count, got = 300, 0

    async def flood(connection: ServerConnection) -> None:
        for _ in range(count):
            await connection.send(b"x" * 65536)
        await connection.close()

    async with both(tmp_path, shell) as (gateway, peer):
        peer.play = flood
        async with opening(gateway, max_queue=2, max_size=None) as caller:
            await asyncio.sleep(0.3)
            (one,) = gateway.server.server_state.connections
            assert one.transport.get_write_buffer_size() < 1_000_000
            async for message in caller:
                got += len(message)
        assert got == count * 65536
