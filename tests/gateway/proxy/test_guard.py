"""One connection of the guard: deadlines, the order of answers, half-closes, back-pressure and the ways out."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from gateway.proxy import guard
from gateway.proxy.guard import AHEAD
from policies.units import SECOND
from tests.gateway.proxy.house import A
from tests.gateway.proxy.reach import on_both_loops, until
from tests.gateway.proxy.wired import connections, wired
from tests.wire.caller import Caller, request
from tests.wire.origin import Origin, serving
from tests.wire.script import HANG, Answer
from tests.wire.waiting import SLACK

T = A.token
PLENTY = "100000/s burst 100000"
GOOD = request(target="/good", token=T)
POST = f"POST /post HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer {T}\r\n"
#: A deadline short enough for a test; it is met within a quarter of a second.
SOON = SECOND // 4


@pytest.fixture
def origin() -> Iterator[Origin]:
    """Run the scripted upstream."""
    with serving() as up:
        yield up


# Deadlines


@on_both_loops
async def test_head_has_its_time(tmp_path: Path, origin: Origin) -> None:
    """A head that is not complete in time is 408; octets that trickle do not help (rule 1)."""
    async with wired(tmp_path, origin, limits={"header_timeout_us": SOON}) as gateway:
        async with await Caller.connect(gateway.address) as caller:
            sending = asyncio.create_task(caller.send(GOOD, split=1, gap=0.05))
            assert (await caller.response()).status == 408
            assert await caller.until_closed() == "eof"
            await sending
        assert gateway.rejections == [(408, "request-timeout")]


@on_both_loops
async def test_connection_that_never_speaks_is_closed_in_silence(tmp_path: Path, origin: Origin) -> None:
    """It has `header_timeout` from its start, and no answer to nothing."""
    async with wired(tmp_path, origin, limits={"header_timeout_us": SOON}) as gateway:
        async with await Caller.connect(gateway.address) as caller:
            assert await caller.until_closed(8) == "eof"
            assert caller.raw == b""
        assert gateway.rejections == []


@on_both_loops
async def test_idle_connection_has_its_own_time(tmp_path: Path, origin: Origin) -> None:
    """After an answer it is `keepalive_timeout`, and a request under way has none."""
    origin.on("/slow", Answer(delay=0.8))
    limits = {"header_timeout_us": SOON, "keepalive_timeout_us": SOON, "body_timeout_us": SOON}
    async with wired(tmp_path, origin, limits=limits) as gateway, await Caller.connect(gateway.address) as caller:
        await caller.send(request(target="/slow", token=T))
        assert (await caller.response()).status == 200
        assert await caller.until_closed(8) == "eof"
    assert len(origin.seen) == 1


@on_both_loops
async def test_body_must_move(tmp_path: Path, origin: Origin) -> None:
    """16 KiB within each `body_timeout`: a trickle is 408 though octets come, a brisk body is not."""
    async with wired(tmp_path, origin, limits={"body_timeout_us": 4 * SOON}) as gateway:
        async with await Caller.connect(gateway.address) as caller:
            await caller.send((POST + "Content-Length: 100000\r\n\r\n").encode())
            sending = asyncio.create_task(caller.send(b"x" * 100, split=1, gap=0.05))
            assert (await caller.response()).status == 408
            await caller.until_closed()
            await sending
        async with await Caller.connect(gateway.address) as caller:
            await caller.send((POST + "Content-Length: 131072\r\n\r\n").encode())
            await caller.send(b"x" * 131072, split=16384, gap=0.15)
            assert (await caller.response()).status == 200
        assert gateway.books.ends == [("rejected", 408, ""), ("served", 200, "")]
    assert origin.seen[1].length == 131072


@on_both_loops
async def test_time_stands_still_while_nothing_is_read(tmp_path: Path, origin: Origin) -> None:
    """A body that the upstream does not take is not the caller's delay."""
    origin.read_gap = 0.05
    limits = {"body_timeout_us": SOON}
    async with wired(tmp_path, origin, limits=limits) as gateway, await Caller.connect(gateway.address) as caller:
        await caller.send((POST + "Content-Length: 3000000\r\n\r\n").encode() + b"x" * 3_000_000)
        assert (await caller.response()).status == 200
    assert origin.seen[0].length == 3_000_000


@pytest.mark.interpreted
@on_both_loops
async def test_caller_that_takes_nothing_is_gone(
    tmp_path: Path, origin: Origin, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A large answer that nobody reads ends after a while, and with it the upstream call."""
    monkeypatch.setattr(guard, "STALL_US", SOON)
    origin.on("/", Answer(body=lambda: iter([b"x" * 65536] * 400), framing="chunked"))
    async with wired(tmp_path, origin) as gateway:
        async with await Caller.connect(gateway.address) as caller:
            caller.pause()
            await caller.send(GOOD)
            await gateway.settled(1)
            caller.resume()
            assert not (await caller.response()).complete
        await until(lambda: origin.open == 0)


# Order


@on_both_loops
async def test_reading_pauses_when_enough_waits(tmp_path: Path, origin: Origin) -> None:
    """Beyond `AHEAD` requests, or a flight of body, the caller is not read, and all is answered in the end."""
    origin.on("/slow", Answer(held=True))
    async with wired(tmp_path, origin, quota=PLENTY) as gateway, await Caller.connect(gateway.address) as caller:
        await caller.send(request(target="/slow", token=T))
        for _ in range(AHEAD + 4):
            await caller.send(request("POST", "/", token=T, body=b"x" * 10_000))
            await asyncio.sleep(0.002)
        (one,) = connections(gateway)
        await until(lambda: one.read_paused)
        origin.release()
        assert [(await caller.response()).status for _ in range(AHEAD + 5)] == [200] * (AHEAD + 5)
        assert not one.read_paused


@on_both_loops
async def test_answers_that_nobody_takes_stop_the_next_request(tmp_path: Path, origin: Origin) -> None:
    """Refusals of pipelined requests do not pile up in memory: reading and answering wait for the caller."""
    count, quota = 4_000, "1/h burst 1"
    async with wired(tmp_path, origin, quota=quota) as gateway, await Caller.connect(gateway.address) as caller:
        await until(lambda: bool(connections(gateway)))
        (one,) = connections(gateway)
        # Or the kernel would take megabytes for us.
        one.transport.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 65_536)
        caller.transport.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 65_536)
        caller.pause()
        sending = asyncio.create_task(caller.send(request(token=T) * count, split=4000))
        await until(lambda: one.write_paused and one.read_paused, 60)
        await asyncio.sleep(0.1)
        assert one.transport.get_write_buffer_size() < 200_000
        assert len(gateway.books.settled) < count
        caller.resume()
        for _ in range(count):
            assert (await caller.response()).complete
        await sending


# Half-closes


@on_both_loops
async def test_half_close_still_gets_every_answer(tmp_path: Path, origin: Origin) -> None:
    """A caller that ends its side is answered, pipelined requests included, and then closed (rule 4)."""
    origin.on("/good", Answer(delay=0.1))
    async with wired(tmp_path, origin, quota=PLENTY) as gateway, await Caller.connect(gateway.address) as caller:
        await caller.send(GOOD * 3)
        caller.half_close()
        assert [(await caller.response()).status for _ in range(3)] == [200] * 3
        assert await caller.until_closed() == "eof"


@on_both_loops
async def test_half_close_of_http_1_0_gets_no_interim(tmp_path: Path, origin: Origin) -> None:
    """RFC 9110 section 15.2: a client of HTTP/1.0 is never sent a 1xx."""
    origin.on("/good", Answer(delay=0.1))
    async with wired(tmp_path, origin) as gateway, await Caller.connect(gateway.address) as caller:
        await caller.send(GOOD.replace(b"HTTP/1.1", b"HTTP/1.0", 1))
        caller.half_close()
        answer = await caller.response()
        assert (answer.status, answer.interim) == (200, [])
        assert b" 100 " not in caller.raw


@on_both_loops
async def test_half_close_inside_a_head_is_answered(tmp_path: Path, origin: Origin) -> None:
    """Half a head is 400, behind the answers still owed."""
    origin.on("/good", Answer(delay=0.1))
    async with wired(tmp_path, origin, quota=PLENTY) as gateway, await Caller.connect(gateway.address) as caller:
        await caller.send(GOOD)
        await until(lambda: len(origin.seen) == 1)
        await caller.send(GOOD[:20])
        caller.half_close()
        assert [(await caller.response()).status for _ in range(2)] == [200, 400]
        assert await caller.until_closed() == "eof"


@on_both_loops
async def test_half_close_inside_a_body(tmp_path: Path, origin: Origin) -> None:
    """The request being received is over; one before it still gets its answer, and then the fault is told."""
    origin.on("/good", Answer(delay=0.2))
    cut = (POST + "Content-Length: 10\r\n\r\n123").encode()
    async with wired(tmp_path, origin, quota=PLENTY) as gateway:
        async with await Caller.connect(gateway.address) as caller:
            await caller.send(cut)
            await until(lambda: len(origin.seen) == 1)
            caller.half_close()
            await caller.until_closed()
        await gateway.settled(1)
        assert gateway.books.ends == [("aborted", 0, "")]
        async with await Caller.connect(gateway.address) as caller:
            await caller.send(GOOD)
            await until(lambda: len(origin.seen) == 2)
            await caller.send(cut)
            caller.half_close()
            assert [(await caller.response()).status for _ in range(2)] == [200, 400]
            assert await caller.until_closed() == "eof"
        assert [end[0] for end in gateway.books.ends] == ["aborted", "served", "rejected"]


# The caller leaves


@pytest.mark.parametrize("how", ["close", "reset"])
@on_both_loops
async def test_caller_that_left_frees_everything(tmp_path: Path, origin: Origin, how: str) -> None:
    """The upstream call of a caller that left is cancelled within a second (rule 6)."""
    origin.on("/", HANG)
    async with wired(tmp_path, origin, quota=PLENTY) as gateway:
        caller = await Caller.connect(gateway.address)
        await caller.send(GOOD * 2)
        await until(lambda: len(origin.seen) == 1)
        getattr(caller, how)()
        await until(lambda: origin.open == 0, 1.0 + SLACK)
        # The request behind it was never begun.
        assert gateway.books.ends == [("aborted", 0, "")]


@on_both_loops
async def test_reset_is_noticed_while_nothing_is_read(tmp_path: Path, origin: Origin) -> None:
    """A caller whose body waits, and who is not read, can still be seen to leave."""
    origin.read_gap = 30.0
    async with wired(tmp_path, origin) as gateway:
        caller = await Caller.connect(gateway.address)
        await caller.send((POST + "Content-Length: 60000000\r\n\r\n").encode())
        sending = asyncio.create_task(caller.send(b"x" * 30_000_000, split=100_000))
        await until(lambda: len(origin.seen) == 1)
        (one,) = connections(gateway)
        await until(lambda: one.read_paused)
        caller.reset()
        await gateway.settled(1, within=2.0 + SLACK)
        assert gateway.books.ends == [("aborted", 0, "")]
        sending.cancel()
