"""Bodies on real sockets, in every shell: whole, streamed, refused, before their turn, and never more than fits."""

from __future__ import annotations

import asyncio
import hashlib
import random
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.gateway.proxy.house import A
from tests.gateway.proxy.reach import until
from tests.gateway.proxy.shells import Shell, behind, every_shell
from tests.wire.caller import Caller, call, request
from tests.wire.origin import Origin, serving
from tests.wire.script import Answer

__all__: list[str] = []

T = A.token
SMALL = 'max_body_bytes = "1MiB"'


@pytest.fixture
def origin() -> Iterator[Origin]:
    """Run the scripted upstream."""
    with serving() as up:
        yield up


@every_shell
async def test_bodies_both_ways(tmp_path: Path, origin: Origin, shell: Shell) -> None:
    """300 KB up and down, framed by length and in chunks, arrive whole; the connection is used again."""
    body = random.Random(1).randbytes(300_000)
    origin.on(
        "/chunked", Answer(body=lambda: [body[at : at + 9000] for at in range(0, 300_000, 9000)], framing="chunked")
    )
    origin.on("/length", Answer(body=body))
    async with behind(shell, tmp_path, origin) as gateway, await Caller.connect(gateway.address) as caller:
        for target in ("/chunked", "/length"):
            for chunked in (False, True):
                await caller.send(request("POST", target, token=T, body=body, chunked=chunked))
                answer = await caller.response("POST")
                assert answer.complete
                assert hashlib.sha256(answer.body).digest() == hashlib.sha256(body).digest()
                seen = origin.seen[-1]
                assert (seen.length, seen.digest.digest()) == (300_000, hashlib.sha256(body).digest())


@every_shell
async def test_body_that_comes_before_its_turn_waits(tmp_path: Path, origin: Origin, shell: Shell) -> None:
    """Whole or in part, known length or chunked, it arrives once the request does, in order."""
    origin.on("/slow", Answer(delay=0.1))
    async with behind(shell, tmp_path, origin) as gateway, await Caller.connect(gateway.address) as caller:
        await caller.send(request(target="/slow", token=T) + request("POST", "/1", token=T, body=b"a" * 1000))
        last = request("POST", "/2", token=T, body=b"b" * 1000, chunked=True)
        await caller.send(last[:-200])
        await asyncio.sleep(0.03)
        await caller.send(last[-200:])
        assert [(await caller.response()).status for _ in range(3)] == [200] * 3
    assert [bytes(seen.body) for seen in origin.seen] == [b"", b"a" * 1000, b"b" * 1000]


@every_shell
async def test_events_stream(tmp_path: Path, origin: Origin, shell: Shell) -> None:
    """The first event arrives before the second is made."""

    def events() -> Iterator[bytes]:
        yield b"data: 1\n\n"
        yield b"data: 2\n\n"

    fields = (("Content-Type", "text/event-stream"),)
    origin.on("/", Answer(fields=fields, body=events, framing="chunked", gap=0.15))
    async with behind(shell, tmp_path, origin) as gateway:
        answer = await call(gateway.address, request(token=T))
    (first, one), (second, two) = answer.parts
    assert (one, two) == (b"data: 1\n\n", b"data: 2\n\n")
    assert second - first > 0.1


@every_shell
async def test_case_115_too_large_by_announcement(tmp_path: Path, origin: Origin, shell: Shell) -> None:
    """413 before a body octet was read; the answer is not lost to a reset, and the connection ends."""
    async with behind(shell, tmp_path, origin, server=SMALL) as gateway:
        async with await Caller.connect(gateway.address) as caller:
            await caller.send(request("POST", token=T, fields=[("Content-Length", "10000000000")]) + b"x" * 500_000)
            answer = await caller.response("POST")
            assert (answer.status, answer.complete, answer.header("connection")) == (413, True, "close")
        assert gateway.books.ends == [("rejected", 413, "")]
    assert origin.seen == []


@every_shell
async def test_case_115_too_large_by_count(tmp_path: Path, origin: Origin, shell: Shell) -> None:
    """Chunked beyond the limit: 413, the upstream never gets a whole request."""
    async with behind(shell, tmp_path, origin, server=SMALL) as gateway:
        async with await Caller.connect(gateway.address) as caller:
            await caller.send(request("POST", token=T, fields=[("Transfer-Encoding", "chunked")]))
            for _ in range(40):
                await caller.send(b"8000\r\n" + b"x" * 0x8000 + b"\r\n")
            answer = await caller.response("POST")
            assert (answer.status, answer.header("connection")) == (413, "close")
        assert gateway.books.ends == [("rejected", 413, "")]
    assert all(seen.ended is None for seen in origin.seen)


@every_shell
async def test_small_unwanted_body_keeps_the_connection(tmp_path: Path, origin: Origin, shell: Shell) -> None:
    """A refused request with a flight of body at most costs no connection."""
    async with behind(shell, tmp_path, origin, quota="1/h burst 1") as gateway:
        async with await Caller.connect(gateway.address) as caller:
            await caller.send(request("POST", token=T, body=b"x" * 1000))
            assert (await caller.response()).status == 200
            octets = request("POST", token=T, body=b"GET / HTTP/1.1\r\nHost: a\r\n\r\n".ljust(1000))
            await caller.send(octets[:-1000])
            answer = await caller.response()
            assert (answer.status, answer.header("connection")) == (429, None)
            await caller.send(octets[-1000:])
            await caller.send(request(token=T))
            assert (await caller.response()).status == 429
        assert len(gateway.books.settled) == 3
    assert len(origin.seen) == 1


@every_shell
async def test_back_pressure_reaches_the_upstream(tmp_path: Path, origin: Origin, shell: Shell) -> None:
    """What a slow caller has not taken is not read either, for a pipelined answer too, and arrives whole."""
    made: list[int] = []

    def pieces() -> Iterator[bytes]:
        for number in range(300):
            made.append(number)
            yield b"x" * 65536

    origin.on("/", Answer(body=pieces, framing="chunked"))
    origin.on("/small", Answer(body=b"small"))
    async with behind(shell, tmp_path, origin) as gateway, await Caller.connect(gateway.address) as caller:
        caller.transport.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 65_536)
        caller.pause()
        await caller.send(request(token=T) + request(target="/small", token=T))
        await until(lambda: bool(made))
        await asyncio.sleep(0.2)
        assert len(made) < 300
        assert len(origin.seen) == 1
        caller.resume()
        answer = await caller.response()
        assert (answer.complete, len(answer.body)) == (True, 300 * 65536)
        assert (await caller.response()).body == b"small"


@every_shell
async def test_a_slow_upstream_holds_the_caller_back(tmp_path: Path, origin: Origin, shell: Shell) -> None:
    """What the upstream does not take of a body is not read from the caller, and all of it arrives."""
    origin.read_gap = 0.2
    octets = request("POST", token=T, fields=[("Content-Length", "20000000")])
    async with behind(shell, tmp_path, origin) as gateway, await Caller.connect(gateway.address) as caller:
        sending = asyncio.create_task(caller.send(octets + b"x" * 20_000_000))
        await asyncio.sleep(0.2)
        assert not sending.done()
        origin.read_gap = 0.0
        assert (await caller.response()).status == 200
        await sending
    assert origin.seen[0].length == 20_000_000
