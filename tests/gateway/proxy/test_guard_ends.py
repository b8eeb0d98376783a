"""How a connection of the guard ends: lingering, the cap of an address, a stop and a drain."""

from __future__ import annotations

import asyncio
import socket
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.gateway.proxy.house import A
from tests.gateway.proxy.peers import HANDSHAKE
from tests.gateway.proxy.reach import on_both_loops, until
from tests.gateway.proxy.wired import connections, wired
from tests.wire.caller import Caller, call, request
from tests.wire.origin import Origin, serving
from tests.wire.script import HANG, Answer
from tests.wire.waiting import SLACK

T = A.token
PLENTY = "100000/s burst 100000"
GOOD = request(target="/good", token=T)
POST = f"POST /post HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer {T}\r\n"


@pytest.fixture
def origin() -> Iterator[Origin]:
    """Run the scripted upstream."""
    with serving() as up:
        yield up


@on_both_loops
async def test_early_answer_is_not_lost_to_a_reset(tmp_path: Path, origin: Origin) -> None:
    """What still arrives after an answer that closes is discarded for 2 s, then the connection is cut (rule 2)."""
    octets = (POST + "Content-Length: 900000000000\r\n\r\n").encode()
    async with wired(tmp_path, origin) as gateway, await Caller.connect(gateway.address) as caller:
        await caller.send(octets)
        started = time.monotonic()
        sending = asyncio.create_task(caller.send(b"x" * 40_000_000, split=100_000))
        await asyncio.sleep(0.2)
        answer = await caller.response()
        assert (answer.status, answer.complete, answer.header("connection")) == (413, True, "close")
        await caller.until_closed()
        assert time.monotonic() - started < 4.5 + SLACK
        sending.cancel()
    assert origin.seen == []


@on_both_loops
async def test_answer_nobody_takes_does_not_hold_a_closed_connection(tmp_path: Path, origin: Origin) -> None:
    """After our last word a caller that takes nothing is cut."""
    origin.on("/", Answer(body=b"x" * 3_000_000))
    async with wired(tmp_path, origin) as gateway, await Caller.connect(gateway.address) as caller:
        caller.pause()
        await caller.send(request(token=T, fields=[("Connection", "close")]))
        await gateway.settled(1)
        await until(lambda: not connections(gateway))


@on_both_loops
async def test_what_arrives_behind_the_last_answer_is_not_kept(tmp_path: Path, origin: Origin) -> None:
    """Nor what had arrived before and was not read as requests any more."""
    origin.on("/held", Answer(held=True))
    async with wired(tmp_path, origin, quota=PLENTY) as gateway, await Caller.connect(gateway.address) as caller:
        await caller.send(request(target="/held", token=T) + GOOD * 1000)
        (one,) = connections(gateway)
        await until(lambda: bool(one._unfed) and len(origin.seen) == 1)
        gateway.door.post.draining = True
        origin.release()
        assert (await caller.response()).status == 200
        await caller.send(b"x" * 1_000_000)
        assert not one._unfed
        assert await caller.until_closed() == "eof"


@on_both_loops
async def test_a_handshake_and_the_end_take_nothing_from_what_came_before(tmp_path: Path, origin: Origin) -> None:
    """The connection is a WebSocket's once the answers before are given, and ends with it."""
    origin.on("/held", Answer(held=True))
    async with wired(tmp_path, origin) as gateway, await Caller.connect(gateway.address) as caller:
        await caller.send(request(target="/held", token=T) + HANDSHAKE)
        await until(lambda: len(origin.seen) == 1)
        caller.half_close()
        (one,) = connections(gateway)
        await until(lambda: one.half_closed or one.read_paused)
        origin.release()
        assert (await caller.response()).status == 200
        await caller.until_closed()
        await until(lambda: not gateway.door.post.connections)
        await gateway.settled(2)


@on_both_loops
async def test_sockets_of_one_address_are_counted(tmp_path: Path, origin: Origin) -> None:
    """One above the cap is closed unanswered and counted; closing one makes room; another address has its own."""
    async with wired(tmp_path, origin, quota=PLENTY, server="max_connections_per_address = 2") as gateway:
        first, second = [await Caller.connect(gateway.address) for _ in range(2)]
        for caller in (first, second):
            await caller.send(GOOD)
            assert (await caller.response()).status == 200
        third = await Caller.connect(gateway.address)
        await third.until_closed()
        assert third.raw == b""
        assert gateway.rejections == [(0, "too-many-connections")]
        assert (await call(gateway.address, GOOD, source="127.0.0.9")).status == 200
        first.close()
        await until(lambda: gateway.door.post.connections == {"127.0.0.1": 1})
        assert (await call(gateway.address, GOOD)).status == 200
        second.close()
        await until(lambda: gateway.door.post.connections == {})


@on_both_loops
async def test_trusted_proxy_has_no_cap(tmp_path: Path, origin: Origin) -> None:
    """A proxy of our own speaks for many."""
    server = 'max_connections_per_address = 1\ntrusted_proxies = ["127.0.0.1/32"]'
    async with wired(tmp_path, origin, quota=PLENTY, server=server) as gateway:
        callers = [await Caller.connect(gateway.address) for _ in range(4)]
        for caller in callers:
            await caller.send(GOOD)
            assert (await caller.response()).status == 200
            caller.close()


@on_both_loops
async def test_stop_ends_what_is_under_way(tmp_path: Path, origin: Origin) -> None:
    """A request that waits is told, a stream is broken off, an idle connection closed; each is counted once."""
    origin.on("/wait", HANG)
    origin.on("/stream", Answer(body=lambda: iter([b"x"] * 1000), framing="chunked", gap=0.05))
    async with wired(tmp_path, origin, quota=PLENTY) as gateway:
        waiting, streaming, idle = [await Caller.connect(gateway.address) for _ in range(3)]
        await waiting.send(request(target="/wait", token=T))
        await streaming.send(request(target="/stream", token=T))
        await streaming.head()
        await until(lambda: len(origin.seen) == 2)
        gateway.door.post.draining = True
        stopped = [one.stop() for one in connections(gateway)]
        assert sorted(stopped) == [False, True, True]
        answer = await waiting.response()
        assert (answer.status, answer.header("connection")) == (503, "close")
        assert not (await streaming.response()).complete
        await idle.until_closed()
        assert sorted(gateway.books.ends) == [("served", 200, ""), ("upstream_error", 503, "")]
        assert [one.notes for one in gateway.books.settled] == [{"ended": "drain"}] * 2
        waiting.close()


@on_both_loops
async def test_drain_answers_and_closes(tmp_path: Path, origin: Origin) -> None:
    """Once draining, every answer says that it is the last, and idle connections end shortly."""
    origin.on("/good", Answer(delay=0.2))
    async with wired(tmp_path, origin, quota=PLENTY) as gateway:
        busy, idle = await Caller.connect(gateway.address), await Caller.connect(gateway.address)
        await busy.send(GOOD)
        await until(lambda: len(origin.seen) == 1)
        gateway.door.post.draining = True
        for one in connections(gateway):
            one.shutdown()
        # On its way when the server stopped.
        await idle.send(GOOD)
        for caller in (busy, idle):
            answer = await caller.response()
            assert (answer.status, answer.header("connection")) == (200, "close")
            caller.close()


@on_both_loops
async def test_room_is_made_by_who_waits(tmp_path: Path, origin: Origin) -> None:
    """At the cap of all: without a head, or between two requests; never one that is owed an answer, nor another's."""
    origin.on("/wait", HANG)
    async with wired(tmp_path, origin, quota=PLENTY, limits={"max_connections": 4}) as gateway:
        other = await Caller.connect(gateway.address, source="127.0.0.9")
        waiting, headless, idle = [await Caller.connect(gateway.address) for _ in range(3)]
        for caller in (other, idle):
            await caller.send(GOOD)
            assert (await caller.response()).status == 200
        await waiting.send(request(target="/wait", token=T))
        await headless.send(b"GET / HTTP/1.1\r\nHost: ")
        await until(lambda: len(origin.seen) == 3)
        for number in (7, 8):
            caller = await Caller.connect(gateway.address, source=f"127.0.0.{number}")
            await caller.send(GOOD)
            assert (await caller.response()).status == 200
        await headless.until_closed()
        await idle.until_closed()
        await other.send(GOOD)
        assert (await other.response()).status == 200
        assert gateway.door.post.connections == dict.fromkeys([f"127.0.0.{number}" for number in (9, 1, 7, 8)], 1)
        assert gateway.rejections == []
        waiting.close()


@on_both_loops
async def test_half_a_close_of_who_takes_nothing_ends(tmp_path: Path, origin: Origin) -> None:
    """Answers that nobody takes keep a half-closed connection for a while only, as they keep any other."""
    origin.on("/large", Answer(body=b"x" * 8000))
    large = request(target="/large", token=T)
    with socket.socket() as caller:
        caller.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2048)
        caller.setblocking(False)
        async with wired(tmp_path, origin, quota=PLENTY) as gateway:
            host, _, port = gateway.address.rpartition(":")
            await asyncio.get_running_loop().sock_connect(caller, (host, int(port)))
            await until(lambda: bool(connections(gateway)))
            (one,) = connections(gateway)
            asked = 0
            while not one.transport.get_write_buffer_size():
                caller.send(large)
                asked += 1
                await gateway.settled(asked)
            caller.shutdown(socket.SHUT_WR)
            await until(lambda: not connections(gateway))
