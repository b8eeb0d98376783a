"""One WebSocket takes its turn of the loop and a bounded room, whatever its frames are, on either side of the house."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from websockets.asyncio.connection import Connection
from websockets.asyncio.server import ServerConnection

from gateway.proxy import intake
from gateway.proxy.upgrade import FRAGMENTS, Socket
from tests.gateway.proxy.peers import both, closed, opening
from tests.gateway.proxy.reach import on_both_loops, until
from tests.gateway.proxy.served import Served

MASK = b"\0\0\0\0"
PING, TINY, REST = b"\x89\x81" + MASK + b"p", b"\x82\x81" + MASK + b"x", b"\x00\x80" + MASK


def socket(gateway: Served) -> Socket:
    """Return the one that is open."""
    (one,) = (each for each in gateway.server.server_state.connections if isinstance(each, Socket))
    return one


def counting(connection: Connection) -> list[bytes]:
    """Return the pongs that `connection` hears."""
    heard: list[bytes] = []
    connection.acknowledge_pings = heard.append  # type: ignore[method-assign, assignment] # nothing else tells of a pong
    return heard


@on_both_loops
async def test_pings_that_come_together_have_one_answer(tmp_path: Path) -> None:
    """RFC 6455 section 5.5.3: the last of them is answered, the others need not be."""
    async with both(tmp_path) as (gateway, peer):
        pongs: list[list[bytes]] = []

        async def ping(connection: ServerConnection) -> None:
            pongs.append(counting(connection))
            connection.transport.write(b"\x89\x01p" * 300 + b"\x89\x01q")
            await peer.echo(connection)

        peer.play = ping
        async with opening(gateway) as caller:
            pongs.append(counting(caller))
            caller.transport.write(PING * 300 + PING[:-1] + b"q")
            await until(lambda: len(pongs) == 2 and all(heard and heard[-1] == b"q" for heard in pongs))
            assert all(len(heard) < 30 for heard in pongs)
            await caller.send("still there")
            assert await caller.recv() == "still there"


@on_both_loops
async def test_frames_take_turns(tmp_path: Path) -> None:
    """However many frames came, a few are taken at a time, and all arrive in their order."""
    async with both(tmp_path) as (gateway, _), opening(gateway) as caller:
        taking = socket(gateway)
        for _ in range(3):
            taking.data_received(TINY * 1_000)
        assert taking.queue.qsize() <= 1_024 // len(TINY) + 1
        assert not taking.transport.is_reading()
        for _ in range(3_000):
            assert await caller.recv() == b"x"
        await caller.send("last")
        assert await caller.recv() == "last"


@on_both_loops
async def test_nothing_is_read_while_nothing_is_taken(tmp_path: Path) -> None:
    """A caller that sends pings and reads no pong is not read on."""
    async with both(tmp_path) as (gateway, _), opening(gateway) as caller:
        pongs = counting(caller)
        taking = socket(gateway)
        taking.pause_writing()
        taking.data_received(PING)
        await asyncio.sleep(0.05)
        assert pongs == []
        taking.resume_writing()
        await until(lambda: pongs == [b"p"])


@on_both_loops
async def test_fragments_are_bounded(tmp_path: Path) -> None:
    """Empty fragments never reach `max_message`: more than `FRAGMENTS` of one message are 1009, from either side."""
    async with both(tmp_path) as (gateway, peer):
        caller = await opening(gateway)
        caller.transport.write(b"\x02\x80" + MASK + REST * (FRAGMENTS + 1))
        assert await closed(caller) == (1009, "too many fragments")

        async def flood(connection: ServerConnection) -> None:
            connection.transport.write(b"\x02\x00" + b"\x00\x00" * (FRAGMENTS + 1))
            await connection.wait_closed()

        peer.play = flood
        assert (await closed(await opening(gateway)))[0] == 1009


@on_both_loops
async def test_whoever_takes_nothing_is_cut(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A caller that takes nothing of what waits for it is gone; its upstream is told so."""
    monkeypatch.setattr(intake, "STALL_SECONDS", 0.2)
    async with both(tmp_path) as (gateway, peer):

        async def push(connection: ServerConnection) -> None:
            while True:
                await connection.send(b"x" * 100_000)

        peer.play = push
        caller = await opening(gateway)
        caller.transport.pause_reading()
        await until(lambda: bool(peer.closes))
        assert peer.closes == [(1001, "")]
        caller.transport.abort()
