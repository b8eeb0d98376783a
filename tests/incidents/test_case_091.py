"""Case 91: bodies stream; memory per request is bounded and independent of size."""

from __future__ import annotations

import asyncio
import hashlib
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Self

import pytest

from tests.wire.caller import Caller, call, request
from tests.wire.gateway import Gateway, running, tenants, token
from tests.wire.ledger import balanced
from tests.wire.origin import Origin
from tests.wire.script import Answer

__all__: list[str] = []

PIECE = bytes(range(256)) * 1024


def size_and_bound(soak: bool) -> tuple[int, int]:
    """Return the pieces of a body and what memory may grow by: 64 MB and 24 MB, under --soak 2 GB and 64 MB."""
    return (8192, 64 << 20) if soak else (256, 24 << 20)


class Watched:
    """The highest memory of a gateway while a `with` runs."""

    def __init__(self, gateway: Gateway) -> None:
        self._gateway, self._base, self.peak = gateway, gateway.memory(), 0

    async def __aenter__(self) -> Self:
        self._looking = asyncio.create_task(self._look())
        return self

    async def __aexit__(self, *_: object) -> None:
        self._looking.cancel()

    @property
    def grown(self) -> int:
        """Octets above what it had at the start."""
        return self.peak - self._base

    async def _look(self) -> None:
        while True:
            self.peak = max(self.peak, self._gateway.memory())
            await asyncio.sleep(0.01)


def announced(length: int | None) -> bytes:
    """Return the head of an upload of A's: `length` octets, or chunks."""
    field = ("Transfer-Encoding", "chunked") if length is None else ("Content-Length", str(length))
    return request("POST", "/up", token=token("a"), fields=[field])


@pytest.mark.soak
@pytest.mark.parametrize("framing", ["length", "chunked"])
async def test_upload_streams(tmp_path: Path, up: Origin, soak: bool, framing: str) -> None:
    """64 MB (2 GB) to an upstream that reads slowly: it has the first octet before the last one is sent."""
    pieces, most = size_and_bound(soak)
    up.read_gap = 0.004
    size, digest = pieces * len(PIECE), hashlib.sha256()
    config = {"server": {"max_body_bytes": "4GiB"}, "tenants": tenants("a")}
    with running(tmp_path, up, config) as gateway:
        async with balanced(gateway, up) as books, Watched(gateway) as watched:
            async with await Caller.connect(gateway.address) as caller:
                await caller.send(announced(size if framing == "length" else None))
                for _ in range(pieces):
                    digest.update(PIECE)
                    await caller.send(PIECE if framing == "length" else b"%x\r\n%b\r\n" % (len(PIECE), PIECE))
                sent = time.monotonic()
                await caller.send(b"" if framing == "length" else b"0\r\n\r\n")
                assert (await caller.response("POST", 60)).status == 200
            books.sent("a")
    (seen,) = up.seen
    assert (seen.length, seen.digest.digest()) == (size, digest.digest())
    assert seen.started < sent
    assert watched.grown < most


@pytest.mark.soak
@pytest.mark.parametrize("framing", ["length", "chunked"])
async def test_download_streams(tmp_path: Path, up: Origin, soak: bool, framing: str) -> None:
    """64 MB (2 GB) to a caller that reads in fits and starts: nothing is lost, and little is held."""
    pieces, most = size_and_bound(soak)

    def body() -> Iterator[bytes]:
        for _ in range(pieces):
            yield PIECE

    size = pieces * len(PIECE)
    length = Answer(body=body, framing="close", fields=(("Content-Length", str(size)),))
    up.on("/", length if framing == "length" else Answer(body=body, framing="chunked"))
    with running(tmp_path, up, {"tenants": tenants("a")}) as gateway:
        async with balanced(gateway, up) as books, Watched(gateway) as watched:
            async with await Caller.connect(gateway.address) as caller:
                await caller.send(request(token=token("a")))
                await caller.head()
                # Long enough for the whole body, or half a gigabyte of it, to pile up.
                caller.pause()
                await asyncio.sleep(1)
                caller.resume()
                reading = asyncio.create_task(caller.response(within=580))
                while not reading.done():
                    caller.pause()
                    await asyncio.sleep(0.002)
                    caller.resume()
                    await asyncio.sleep(0.005)
                answer = await reading
            books.sent("a")
    assert (answer.complete, len(answer.body)) == (True, size)
    assert watched.grown < most


@pytest.mark.soak
async def test_many_uploads_at_once(tmp_path: Path, up: Origin, soak: bool) -> None:
    """50 uploads of 4 MB (200 MB) to an upstream that reads slowly: less than 100 MB in all."""
    size = 800 * len(PIECE) if soak else 16 * len(PIECE)
    up.read_gap = 0.001
    config = {
        "server": {"max_body_bytes": "1GiB"},
        "tenants": tenants("a", quota="1000/s"),
        "backstop": {"quota": "1000/s"},
    }

    async def upload() -> None:
        async with await Caller.connect(gateway.address) as caller:
            await caller.send(announced(size))
            for _ in range(size // len(PIECE)):
                await caller.send(PIECE)
            assert (await caller.response("POST", 500)).status == 200

    with running(tmp_path, up, config) as gateway:
        async with balanced(gateway, up) as books, Watched(gateway) as watched:
            await asyncio.gather(*(upload() for _ in range(50)))
            books.sent("a", 50)
    assert {seen.length for seen in up.seen} == {size}
    assert watched.grown < 100 << 20


async def test_refused_upload_is_answered_without_its_body(tmp_path: Path, up: Origin) -> None:
    """200 MB are announced and never sent: the answer is there, says that the connection ends, and it does."""
    config = {"server": {"max_body_bytes": "1GiB"}, "tenants": tenants("a", quota="0/s")}
    with running(tmp_path, up, config) as gateway:
        async with balanced(gateway, up) as books:
            async with await Caller.connect(gateway.address) as caller:
                await caller.send(announced(200 << 20))
                answer = await caller.response("POST")
                assert await caller.until_closed() == "eof"
            books.sent("a")
            assert (answer.status, answer.header("connection")) == (429, "close")
            again = await call(gateway.address, announced(200 << 20) + PIECE * 4, method="POST")
            books.sent("a")
            assert again.status == 429
            assert again.header("connection") == "close"
    assert up.seen == []
