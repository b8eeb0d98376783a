"""The callers, against a real origin over real sockets."""

from __future__ import annotations

import asyncio
from pathlib import Path

from gateway.demo.drive import Answer, Drive, Line, measure
from gateway.demo.origin import UNMETERED
from gateway.demo.processes import Children, free_ports
from gateway.demo.tenants import BACKFILL, night

__all__: list[str] = []


async def test_light_callers_get_through_and_a_backfill_drowns_an_origin(tmp_path: Path) -> None:
    """Alone they all get through at once; with nothing in between, the backfill takes the whole origin from them."""
    with Children(tmp_path) as children:
        port, tell = children.origin()
        cast = night(100)
        tell(cast.origin)
        assert await measure(port, UNMETERED, seconds=0.1) > 100
        drive = Drive(cast, port)
        drive.start_light()
        await asyncio.sleep(1.0)
        calm = drive.restart_counts()
        drive.start_backfill()
        await asyncio.sleep(2.0)
        night_counts = drive.tallies
        drive.stop()
        children.check()
    light = [calm[tenant.id] for tenant in cast.light]
    assert sum(tally.through for tally in light) > 3
    assert sum(tally.gave_up + tally.failed for tally in light) == 0
    assert night_counts[BACKFILL].attempts > 500
    assert sum(tally.failed for tally in night_counts.values()) > 100


async def test_a_refusal_is_told_from_a_failure() -> None:
    """By the field that names the limit; a connection that ends is nobody's answer, and is opened again."""
    answers = iter(
        (
            b"HTTP/1.1 429 Too Many Requests\r\nevenhand-REFUSED: key\r\nContent-Length: 2\r\n\r\n{}",
            b"",
            b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n",
            b"not http",
        )
    )

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while await reader.readuntil(b"\r\n\r\n"):
            text = next(answers)
            writer.write(text)
            if not text:
                break
        writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    line = Line(server.sockets[0].getsockname()[1])
    assert await line.get("/") == Answer(429, "key", b"{}")
    assert await line.get("/") == Answer()
    assert await line.get("/") == Answer(200, "", b"ok")
    assert await line.get("/") == Answer()
    line.close()
    server.close()


async def test_nobody_listening_is_no_answer() -> None:
    """A refused connection answers like a lost one."""
    line = Line(free_ports(1)[0])
    assert await line.get("/") == Answer()
    line.close()
