"""One response takes its turn of the loop, however small its chunks are and however much of it has come."""

from __future__ import annotations

import asyncio
from typing import cast

import pytest

from gateway.proxy.connection import WORK, Connection
from tests.gateway.proxy.reach import Told, ask, on_both_loops, reaching, until
from tests.wire.origin import Origin, serving
from tests.wire.script import Answer

HEAD = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n"
TINY = b"1\r\nx\r\n"
PLAIN = b"10000\r\n" + b"x" * 65_536 + b"\r\n"
END = b"0\r\n\r\n"


def begun(origin: Origin) -> None:
    """Have the upstream send the head of a response and no more."""
    origin.on("/", Answer(raw=HEAD, ending="hang"))


async def carried(told: Told) -> Connection:
    """Return the connection that carries a call whose response has begun."""
    await until(lambda: told.status == 200)
    assert told.call is not None
    return cast("Connection", told.call.carrier)


@pytest.mark.parametrize(("octets", "body", "most"), [(TINY * 10_000, 10_000, 1), (PLAIN, 65_536, 30)])
@on_both_loops
async def test_reading_rests_and_goes_on(octets: bytes, body: int, most: int) -> None:
    """After about `WORK` nothing is read until others had their turn; everything arrives, in few pieces (rule 6)."""
    with serving() as origin:
        begun(origin)
        async with reaching(origin) as upstream:
            told = ask(upstream)
            connection = await carried(told)
            reads = turns = 0
            while not connection._resting:
                connection.data_received(octets)
                reads += 1
                assert reads <= most
            connection.data_received(octets + END)
            assert len(told.body) < (reads + 1) * body
            while not told.over.is_set():
                seen = len(told.body)
                await asyncio.sleep(0)
                turns += 1
                assert len(told.body) - seen <= max(4 * WORK, 4096 * WORK + 65_536 if body > 10_000 else 0)
            assert told.complete
            assert bytes(told.body) == b"x" * ((reads + 1) * body)
            assert turns
            assert told.chunks <= 64 * (reads + 1)
            assert connection._transport.is_reading()
            assert not connection.closing


@pytest.mark.parametrize("ending", ["pause", "eof", "lost", "cancel", "beyond"])
@on_both_loops
async def test_what_waits_is_not_lost(ending: str) -> None:
    """A pause, a cancel or the end of the connection finds what waits: it is told in order, or nobody is told."""
    with serving() as origin:
        begun(origin)
        async with reaching(origin) as upstream:
            told = ask(upstream)
            call, connection = told.call, await carried(told)
            assert call is not None
            connection.data_received(TINY * 10_000)
            assert connection._resting
            if ending == "pause":
                call.pause()
                seen = len(told.body)
                for _ in range(5):
                    await asyncio.sleep(0)
                assert len(told.body) == seen
                connection.data_received(END)
                call.resume()
            elif ending == "eof":
                connection.eof_received()
            elif ending == "lost":
                connection._transport.abort()
            elif ending == "cancel":
                told.silent = True
                call.cancel()
                await asyncio.sleep(0)
                return
            else:
                connection.data_received(END + b"x")
            await told.end()
            assert told.kind == {"eof": "truncated", "lost": "truncated"}.get(ending, "done")
            assert len(told.body) == 10_000
            assert connection.closing == (ending != "pause")
