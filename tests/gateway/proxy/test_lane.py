"""The lane: a refusal is one write, a body waits where there is somewhere to go, and what closes says so."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.gateway.proxy.house import A
from tests.gateway.proxy.reach import on_both_loops, until
from tests.gateway.proxy.wired import connections, wired
from tests.wire.caller import Caller, request
from tests.wire.origin import Origin, serving
from tests.wire.script import Answer

__all__: list[str] = []

T = A.token
PLENTY = "100000/s burst 100000"
POST = f"POST /post HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer {T}\r\n"


@pytest.fixture
def origin() -> Iterator[Origin]:
    """Run the scripted upstream."""
    with serving() as up:
        yield up


@on_both_loops
async def test_refusal_is_one_write(tmp_path: Path, origin: Origin) -> None:
    """Head and problem in the same piece, while the octets that asked are being handled."""
    async with wired(tmp_path, origin, quota="1/h burst 1") as gateway, await Caller.connect(gateway.address) as caller:
        await caller.send(request(token=T))
        await caller.response()
        (one,) = connections(gateway)
        pieces: list[bytes] = []
        write = one.transport.write

        class Counted:
            def __getattr__(self, name: str) -> object:
                return getattr(transport, name)

            def write(self, octets: bytes) -> None:
                pieces.append(octets)
                write(octets)

        transport, one.transport = one.transport, Counted()  # type: ignore[assignment] # a transport all the same
        await caller.send(request(token=T))
        assert (await caller.response()).status == 429
        assert len(pieces) == 1
        one.transport = transport


@on_both_loops
async def test_100_is_sent_once_and_only_if_it_is_waited_for(tmp_path: Path, origin: Origin) -> None:
    """Once the request head is with the upstream; not to a body that has come, nor to HTTP/1.0."""
    expecting = POST + "Expect: 100-continue\r\nContent-Length: 5\r\n\r\n"
    async with wired(tmp_path, origin, quota=PLENTY) as gateway:
        async with await Caller.connect(gateway.address) as caller:
            await caller.send(expecting.encode())
            await until(lambda: bytes(caller.raw) == b"HTTP/1.1 100 Continue\r\n\r\n")
            # What was sent to the upstream first may be read there a moment later.
            await until(lambda: len(origin.seen) == 1)
            await caller.send(b"hello")
            assert len((await caller.response()).interim) == 1
            await caller.send(expecting.encode() + b"hello")
            assert (await caller.response()).interim == []
        async with await Caller.connect(gateway.address) as caller:
            await caller.send(expecting.replace("HTTP/1.1", "HTTP/1.0").encode())
            await asyncio.sleep(0.1)
            assert caller.raw == b""
            await caller.send(b"hello")
            assert (await caller.response()).status == 200


@on_both_loops
async def test_fault_in_a_body_ends_its_request(tmp_path: Path, origin: Origin) -> None:
    """400 where nothing was answered yet; a response that has begun is broken off, its status as it was."""
    chunked = (POST + "Transfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n").encode()
    async with wired(tmp_path, origin, quota=PLENTY) as gateway:
        async with await Caller.connect(gateway.address) as caller:
            await caller.send(chunked)
            await until(lambda: len(origin.seen) == 1)
            await caller.send(b"nonsense")
            answer = await caller.response()
            assert (answer.status, answer.header("connection")) == (400, "close")
        origin.then(Answer(early=True, body=lambda: iter([b"x"] * 100), framing="chunked", gap=0.05))
        async with await Caller.connect(gateway.address) as caller:
            await caller.send(chunked)
            await caller.head()
            await caller.send(b"nonsense")
            answer = await caller.response()
            assert (answer.status, answer.complete) == (200, False)
        await gateway.settled(2)
    assert [end[:2] for end in gateway.books.ends] == [("rejected", 400), ("rejected", 200)]
    assert [seen.ended for seen in origin.seen] == [None, None]


@on_both_loops
async def test_early_answer_to_a_long_body_closes(tmp_path: Path, origin: Origin) -> None:
    """The response says so when its head is written, since nobody wants to read the rest."""
    origin.on("/post", Answer(413, early=True))
    async with wired(tmp_path, origin, quota=PLENTY) as gateway, await Caller.connect(gateway.address) as caller:
        await caller.send((POST + "Content-Length: 50000000\r\n\r\n").encode() + b"x" * 100)
        answer = await caller.response()
        assert (answer.status, answer.header("connection")) == (413, "close")
        await caller.until_closed()
