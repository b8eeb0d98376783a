"""Everything at once, at random, and then nothing is left: no socket, slot, seat, waiter, task or half-told call."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import random
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from gateway.proxy.call import Call
from gateway.proxy.connection import Connection
from gateway.proxy.response import Response
from gateway.proxy.upstream import Upstream
from tests.gateway.proxy.reach import Told, ask, get, on_both_loops, reaching, until
from tests.wire.origin import Origin, Seen, serving
from tests.wire.script import Answer, Ending

_CHUNKED = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + b"a\r\n0123456789\r\n" * 20 + b"0\r\n\r\n"
_LENGTH = b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n" + b"0123456789" * 100


def _answer(dice: random.Random) -> Answer:
    """Return an answer: 5 % reset, 5 % cut, the others whole, in all framings and at all paces."""
    whole = dice.choice((_CHUNKED, _LENGTH))
    fate = dice.random()
    if fate < 0.1:
        ending: Ending = "reset" if fate < 0.05 else "close"
        return Answer(raw=whole, cut=dice.randrange(len(whole)), ending=ending)
    delay = dice.choice((0, 0, 0, 0.001, 0.005))
    if fate < 0.15:
        return Answer(body=b"to the end", framing="close", ending="close", delay=delay)
    if fate < 0.2:
        return Answer(status=dice.choice((204, 304, 500)), interim=((103, ()),), delay=delay)
    return Answer(raw=whole, delay=delay)


class _Checks(Told):
    """Says at the end whether the body was what the origin meant to send."""

    def whole(self, method: str) -> bool:
        wanted = (b"0123456789" * 20, b"0123456789" * 100, b"to the end", b"ok", b"")
        return bytes(self.body) in wanted and (bool(self.body) or method == "HEAD" or self.status in {204, 304})


async def _one(upstream: Upstream, dice: random.Random, number: int) -> str:
    """Make a call of any kind and leave it at a random moment in one case of ten; return how it ended."""
    method = dice.choice(("GET", "GET", "GET", "POST", "PUT", "HEAD"))
    length = {"GET": 0, "HEAD": 0}.get(method, dice.choice((None, 2000)))
    told = _Checks()
    ask(upstream, method, f"/{number}", length=length, body=b"" if length == 0 else b"b" * 1000, told=told)
    assert told.call is not None
    leaves = dice.random() < 0.1
    if length != 0:
        await asyncio.sleep(dice.choice((0, 0, 0.001)))
        if not told.over.is_set():
            told.call.write(b"c" * 1000)
            told.call.finish()
    if dice.random() < 0.1:
        told.call.pause()
        await asyncio.sleep(0.002)
        told.call.resume()
    if leaves:
        await asyncio.sleep(dice.choice((0, 0.0003, 0.001, 0.004, 0.02)))
        if not told.over.is_set():
            told.silent = True
            told.call.cancel()
            return "cancelled"
    await told.end(60.0)
    assert told.kind != "done" or told.whole(method), (method, told.status, bytes(told.body))
    return told.kind


def _sockets() -> int:
    """Return how many sockets this process has open."""
    links = []
    for fd in Path("/proc/self/fd").iterdir():
        with contextlib.suppress(FileNotFoundError):
            links.append(str(fd.readlink()))
    return sum(link.startswith("socket:") for link in links)


@pytest.mark.soak
@on_both_loops
async def test_storm_leaves_nothing_behind(soak: bool) -> None:
    """5,000 calls (200,000 under --soak) on 32 connections; every one ends once, whole or broken, never in between."""
    count = 200_000 if soak else 5_000
    dice = random.Random(3)
    before = _sockets()
    with serving(Origin()) as origin:

        def script(_: Seen) -> Answer:
            return _answer(dice)

        origin.on("/", script)
        ends: Counter[str] = Counter()
        async with reaching(origin, max_connections=32, connect_timeout="30s") as upstream:
            numbers = iter(range(count))

            async def lane() -> None:
                for number in numbers:
                    ends[await _one(upstream, random.Random(number), number)] += 1

            await asyncio.gather(*(lane() for _ in range(64)))
            stats = upstream.stats()
            assert (stats.active, stats.connecting, stats.waiting) == (0, 0, 0)
            await until(lambda: origin.open == upstream.stats().idle)
            origin.on("/", Answer())
            for told in [ask(upstream) for _ in range(32)]:
                assert (await told.end()).kind == "done"
            if soak:
                origin.forget()
        assert ends.total() == count
        assert set(ends) <= {"done", "cancelled", "reset", "truncated"}
        assert ends["done"] > count * 0.7
        assert ends["cancelled"] > count * 0.02
        assert ends["truncated"] > count * 0.02
    await until(lambda: _sockets() <= before)


@on_both_loops
async def test_what_ended_is_freed_without_a_collection() -> None:
    """Calls, responses and connections form no cycles: memory does not wait for the garbage collector."""
    with serving() as origin:
        origin.then(Answer(), Answer(raw=_LENGTH, cut=100, ending="close"), Answer(raw=b"nonsense"))
        async with reaching(origin) as upstream:
            gc.collect()
            gc.disable()
            try:
                for _ in range(6):
                    await get(upstream)
                left = ask(upstream, "POST", length=10)
                assert left.call is not None
                left.silent = True
                left.call.cancel()
                upstream.close()
                await upstream.wait_closed()
                await asyncio.sleep(0.01)
                left.call = None
                alive = [each for each in gc.get_objects() if isinstance(each, Call | Connection | Response)]
            finally:
                gc.enable()
            assert [type(each).__name__ for each in alive] == []


def _growth(start: int) -> float:
    return (psutil.Process().memory_info().rss - start) / 2**20


@pytest.mark.soak
@on_both_loops
async def test_case_091_bodies_stream(soak: bool) -> None:
    """64 MB each way (2 GB under --soak) with a slow reader at either end: memory stays far below the body."""
    size = 2**31 if soak else 2**26
    piece = b"p" * 2**18

    def pieces() -> Iterator[bytes]:
        for _ in range(size // len(piece)):
            yield piece

    class Slow(Told):
        """Reads in fits and starts, and keeps nothing."""

        read = 0

        def on_data(self, chunk: bytes) -> None:
            self.read += len(chunk)
            if self.read // 2**23 != (self.read - len(chunk)) // 2**23:
                assert self.call is not None
                self.call.pause()
                asyncio.get_running_loop().call_later(0.005, self.call.resume)

    with serving() as origin:
        origin.on("/down", Answer(body=pieces, framing="chunked"))
        origin.on("/close", Answer(body=pieces, framing="close", ending="close"))
        async with reaching(origin) as upstream:
            await get(upstream)
            start = psutil.Process().memory_info().rss
            for target in ("/down", "/close"):
                down = Slow()
                await ask(upstream, target=target, told=down).end(600)
                assert (down.kind, down.read) == ("done", size)
            assert _growth(start) < 40
            origin.read_gap = 0.0005
            up = ask(upstream, "POST", length=size)
            assert up.call is not None
            for chunk in pieces():
                while up.writable and not up.writable[-1]:
                    await asyncio.sleep(0.0005)
                up.call.write(chunk)
            await up.end(600)
            assert _growth(start) < 40
        assert origin.seen[-1].length == size
