"""Heads of the admin listener are bounded while they are received."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator

import pytest
from uvicorn.server import ServerState

from gateway.listener.plain import MAX_FIELDS, MAX_HEAD, Plain
from gateway.listener.server import configured

__all__: list[str] = []

GET = b"GET / HTTP/1.1\r\nHost: a\r\n"
POST = b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n"


@contextlib.asynccontextmanager
async def serving() -> AsyncIterator[tuple[int, list[int]]]:
    """Serve an app that answers with the length of the body; yield the port, and how many fields each head had."""
    heads: list[int] = []

    async def app(scope, receive, send):  # type: ignore[no-untyped-def] # noqa: ANN001, ANN202 - an application
        heads.append(len(scope["headers"]))
        length, more = 0, True
        while more:
            message = await receive()
            if message["type"] == "http.disconnect":
                return
            length, more = length + len(message.get("body", b"")), message.get("more_body", False)
        body = b"%d" % length
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"%d" % len(body))]})
        await send({"type": "http.response.body", "body": body})

    config = configured(app, Plain)
    config.load()
    state = ServerState()
    loop = asyncio.get_running_loop()
    server = await loop.create_server(lambda: Plain(config, state, {}), "127.0.0.1")
    async with server:
        yield server.sockets[0].getsockname()[1], heads
        for connection in list(state.connections):
            connection.transport.abort()


async def talk(port: int, *parts: bytes) -> bytes:
    """Send, and return what is answered until the end."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    answer = b""
    with contextlib.suppress(ConnectionError):
        for part in parts:
            writer.write(part)
            await writer.drain()
            await asyncio.sleep(0)
    with contextlib.suppress(ConnectionError):
        while octets := await asyncio.wait_for(reader.read(65_536), 30):
            answer += octets
    writer.close()
    return answer


CLOSE = b"Connection: close\r\n"

TOO_LARGE = {
    "one field": (GET + b"X: " + b"a" * 200_000 + b"\r\n\r\n",),
    "one field without an end": (GET + b"X: ", b"a" * 40_000),
    "many fields": (GET + b"a: b\r\n" * 5000 + b"\r\n",),
    "one field too many": (GET + b"a: b\r\n" * MAX_FIELDS + b"\r\n",),
    "the target": (b"GET /" + b"a" * 100_000,),
    "the second head": (GET + b"\r\n", GET + b"X: " + b"a" * 40_000),
}


@pytest.mark.parametrize("parts", TOO_LARGE.values(), ids=TOO_LARGE)
async def test_a_large_head_is_431_and_the_end(parts: tuple[bytes, ...]) -> None:
    """In octets or in fields, whole or not, and none of it reaches the app."""
    async with serving() as (port, heads):
        answer = await talk(port, *parts)
        assert heads in ([], [1])
        assert answer == b"" or b"431 Request Header Fields Too Large" in answer


@pytest.mark.parametrize("trailers", [b"a: b\r\n" * 5000, b"a: " + b"b" * 100_000])
async def test_trailers_are_bounded_too(trailers: bytes) -> None:
    """They come after the app was called, and end the connection."""
    async with serving() as (port, _):
        answer = await talk(port, POST, b"3\r\nabc\r\n0\r\n", trailers)
        assert b"200 OK" not in answer


async def test_what_is_within_bounds_is_served() -> None:
    """To the last field; a long body is no head, and a trailer no field of the request."""
    async with serving() as (port, heads):
        fields = b"a: %b\r\n" % (b"b" * 200)
        answer = await talk(port, GET + fields * (MAX_FIELDS - 2) + CLOSE + b"\r\n")
        assert answer.startswith(b"HTTP/1.1 200"), answer
        assert heads == [MAX_FIELDS]
        long = b"POST / HTTP/1.1\r\nHost: a\r\n" + CLOSE + b"Content-Length: %d\r\n\r\n" % (4 * MAX_HEAD)
        assert (await talk(port, long, b"x" * (4 * MAX_HEAD))).endswith(b"%d" % (4 * MAX_HEAD))
        chunked = POST.replace(b"\r\n\r\n", b"\r\n" + CLOSE + b"\r\n")
        assert (await talk(port, chunked, b"3\r\nabc\r\n0\r\nt: u\r\n\r\n")).endswith(b"3")
        assert heads[1:] == [3, 3]


async def test_many_requests_on_one_connection_do_not_add_up() -> None:
    """The bound is of one head."""
    async with serving() as (port, heads):
        field = b"X: " + b"a" * 3000 + b"\r\n"
        await talk(port, *[GET + field + b"\r\n"] * 20, GET + CLOSE + b"\r\n")
        assert len(heads) == 21
