"""How a WebSocket through the lane ends: what it heard last, how a side went, and a stop of the gateway."""

from __future__ import annotations

import asyncio
import contextlib
import time
from pathlib import Path

from websockets.asyncio.server import ServerConnection
from websockets.exceptions import ConnectionClosed

from gateway.proxy.upgrade import Socket
from tests.gateway.proxy.peers import both, closed, opening
from tests.gateway.proxy.reach import on_both_loops, until
from tests.wire.waiting import SLACK

__all__: list[str] = []


@on_both_loops
async def test_vanished_sides(tmp_path: Path) -> None:
    """A caller that vanished leaves 1001 behind, an upstream that vanished 1014."""
    async with both(tmp_path) as (gateway, peer):
        caller = await opening(gateway)
        caller.transport.abort()
        await until(lambda: bool(peer.closes))
        assert peer.closes == [(1001, "")]

        async def vanish(connection: ServerConnection) -> None:
            connection.transport.abort()

        peer.play = vanish
        assert await closed(await opening(gateway)) == (1014, "")
        await gateway.settled(2)


@on_both_loops
async def test_times(tmp_path: Path) -> None:
    """Silence ends it after `idle_timeout`, though there are pings; `max_lifetime` ends it whatever is said."""
    async with both(tmp_path, websocket='idle_timeout = "1s"\nmax_lifetime = "3s"') as (gateway, peer):
        quiet, pinging = await opening(gateway), await opening(gateway, ping_interval=0.2)
        started = time.monotonic()
        assert await closed(quiet) == (1001, "nothing came for idle_timeout")
        assert time.monotonic() - started < 2 + SLACK
        assert await closed(pinging) == (1001, "nothing came for idle_timeout")
        talking = await opening(gateway)
        with contextlib.suppress(ConnectionClosed):
            while True:
                await talking.send("a")
                await talking.recv()
                await asyncio.sleep(0.1)
        assert await closed(talking) == (1001, "open for max_lifetime")
        await gateway.settled(3)
        assert [one.notes["ended"] for one in gateway.books.settled] == ["idle", "idle", "lifetime"]
        await until(lambda: len(peer.closes) == 3)
        assert {code for code, _ in peer.closes} == {1001}


@on_both_loops
async def test_stop_ends_a_websocket(tmp_path: Path) -> None:
    """A drain lets it be; the end of the drain closes both legs with 1012."""
    async with both(tmp_path) as (gateway, peer):
        caller = await opening(gateway)
        (one,) = gateway.server.server_state.connections
        assert isinstance(one, Socket)
        one.shutdown()
        await caller.send("still here")
        assert await caller.recv() == "still here"
        assert one.stop()
        assert await closed(caller) == (1012, "the gateway is stopping")
        await gateway.settled(1)
        assert gateway.books.settled[0].notes == {"ended": "drain"}
        await until(lambda: bool(peer.closes))
        assert peer.closes == [(1012, "the gateway is stopping")]
