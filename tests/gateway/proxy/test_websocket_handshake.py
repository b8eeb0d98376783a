"""Handshakes of WebSockets: malformed ones, those behind other requests, large ones, and ours that fail."""

from __future__ import annotations

from pathlib import Path

import pytest
from websockets.asyncio.server import ServerConnection
from websockets.http11 import Request, Response

from gateway.proxy import websocket
from tests.gateway.proxy.peers import HANDSHAKE, UPGRADE, T, both, denied, opening
from tests.gateway.proxy.reach import on_both_loops, until
from tests.wire.caller import Caller, call, request

__all__: list[str] = []

MALFORMED = [
    [("Connection", "Upgrade"), ("Upgrade", "websocket")],
    [*UPGRADE[:2], ("Sec-WebSocket-Version", "8"), UPGRADE[3]],
    [*UPGRADE[:3], ("Sec-WebSocket-Key", "short")],
    [*UPGRADE, UPGRADE[3]],
    [*UPGRADE, ("Content-Length", "5")],
    [UPGRADE[0], ("Upgrade", "websocket, h2c"), *UPGRADE[2:]],
    [*UPGRADE, ("Sec-WebSocket-Protocol", "a b")],
]


@pytest.mark.parametrize("fields", MALFORMED)
@on_both_loops
async def test_malformed_handshakes(tmp_path: Path, fields: list[tuple[str, str]]) -> None:
    """What is no handshake of RFC 6455 is 400, counted, and closes; the upstream sees nothing."""
    async with both(tmp_path) as (gateway, peer), await Caller.connect(gateway.address) as caller:
        await caller.send(request(token=T, fields=fields) + b"hello")
        answer = await caller.response()
        assert (answer.status, answer.header("connection")) == (400, "close")
        assert len(gateway.books.settled) == 1
        assert peer.seen == []


@on_both_loops
async def test_handshake_behind_a_request_and_frames_behind_it(tmp_path: Path) -> None:
    """A pipelined handshake waits its turn, and what came behind it is its first frames."""
    frame = b"\x82\x83\x00\x00\x00\x00abc"
    async with both(tmp_path) as (gateway, peer):

        def answer(connection: ServerConnection, asked: Request) -> Response | None:
            return None if asked.path == "/live?x" else connection.respond(200, "plain\n")

        peer.answer = answer
        async with await Caller.connect(gateway.address) as caller:
            await caller.send(request(target="/plain", token=T) + HANDSHAKE + frame)
            assert (await caller.response()).body == b"plain\n"
            await until(lambda: b"\x82\x03abc" in caller.raw)
        await gateway.settled(2)
    assert [seen.path for seen in peer.seen] == ["/plain", "/live?x"]


@on_both_loops
async def test_long_fields_of_a_handshake(tmp_path: Path) -> None:
    """Its head is bounded as any other, and not by what the WebSocket library reads of a line."""
    async with both(tmp_path) as (gateway, peer):
        async with opening(gateway, fields={"X-Long": "x" * 7900}) as caller:
            await caller.send("a")
            assert await caller.recv() == "a"
        octets = request(token=T, fields=[*UPGRADE, ("X-Long", "x" * 40_000)])
        assert (await call(gateway.address, octets)).status == 431
    assert len(peer.seen) == 1


@pytest.mark.interpreted
@on_both_loops
async def test_bug_is_one_problem(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What cannot be served is 500, settled, and gives its place back."""

    async def broken(*_: object) -> None:
        raise RuntimeError("broken")

    monkeypatch.setattr(websocket._Bridge, "run", broken)
    async with both(tmp_path) as (gateway, _):
        assert (await denied(gateway)).status_code == 500
        assert gateway.books.ends == [("upstream_error", 500, "")]


@on_both_loops
async def test_who_sent_what_is_no_handshake_is_known(tmp_path: Path) -> None:
    """Its head was read, so the books have all that it says but the query."""
    broken = [("Connection", "upgrade"), ("Upgrade", "websocket"), ("X-Forwarded-For", "203.0.113.9")]
    async with both(tmp_path, server='trusted_proxies = ["127.0.0.1"]') as (gateway, _):
        assert (await call(gateway.address, request(target="/ws?x", token=T, fields=broken))).status == 400
        [decision] = gateway.books.settled
        assert (decision.facts.address, decision.facts.method, decision.facts.path) == ("203.0.113.9", "GET", "/ws")
