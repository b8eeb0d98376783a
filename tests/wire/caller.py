"""CL: a caller that is only a socket. It sends any octets in any split, stops anywhere, and reads strictly.

Rules
1. A response that was cut short is never `complete`; one that never began has status 0.
2. The source address is free to choose within 127.0.0.0/8, so that one machine can be many callers.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import socket
import ssl
import struct
import time
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, Self, cast

from tests.wire.message import Data, End, Fields, Framer, Head, WireError, responses

__all__ = ["Caller", "Response", "call", "request"]


@dataclass(slots=True)
class Response:
    """What came back. `parts` are pieces of the body, each with its time; `fault` says why it is incomplete."""

    status: int = 0
    fields: Fields = field(default_factory=list)
    parts: list[tuple[float, bytes]] = field(default_factory=list)
    complete: bool = False
    interim: list[Head] = field(default_factory=list)
    started: float = 0.0
    ended: float = 0.0
    fault: str = ""

    @property
    def body(self) -> bytes:
        """The body, its framing removed."""
        return b"".join(octets for _, octets in self.parts)

    def all(self, name: str) -> list[str]:
        """Return the values of every field line called `name`."""
        return [value.decode("latin-1") for key, value in self.fields if key.lower() == name.lower().encode()]

    def header(self, name: str) -> str | None:
        """Return the only value of `name`, None without one; fail if there are several."""
        values = self.all(name)
        assert len(values) <= 1, f"{name} came {len(values)} times"
        return values[0] if values else None

    def json(self) -> Any:
        """Return the body as JSON."""
        return json.loads(self.body)


def request(
    method: str = "GET",
    target: str = "/",
    *,
    token: str | None = None,
    fields: Iterable[tuple[str, str]] = (),
    body: bytes | None = None,
    chunked: bool = False,
    host: str | None = "api.example.com",
) -> bytes:
    """Return the octets of a request; `token` goes into `Authorization: Bearer`, a body is framed by its length."""
    lines = [f"{method} {target} HTTP/1.1"]
    lines += [f"Host: {host}"] if host is not None else []
    lines += [f"Authorization: Bearer {token}"] if token is not None else []
    lines += [f"{name}: {value}" for name, value in fields]
    if chunked:
        lines.append("Transfer-Encoding: chunked")
        body = (b"%x\r\n%b\r\n" % (len(body), body) if body else b"") + b"0\r\n\r\n"
    elif body is not None:
        lines.append(f"Content-Length: {len(body)}")
    return "\r\n".join([*lines, "", ""]).encode("latin-1") + (body or b"")


class Caller(asyncio.Protocol):
    """One connection. `closed` is how the peer ended it: `eof` or `reset`; `raw` is all that came."""

    def __init__(self) -> None:
        self.raw = bytearray()
        self.closed: str | None = None
        self.closed_at: float | None = None
        self._inbox: deque[tuple[float, bytes]] = deque()
        self._news = asyncio.Event()
        self._writable = asyncio.Event()

    @classmethod
    async def connect(
        cls, address: str, *, source: str | None = None, tls: ssl.SSLContext | None = None, name: str | None = None
    ) -> Caller:
        """Connect to `host:port` or `unix:/path`, from `source`; `name` is the server name that TLS asks for."""
        loop = asyncio.get_running_loop()
        if address.startswith("unix:"):
            _, caller = await loop.create_unix_connection(cls, address.removeprefix("unix:"))
            return caller
        host, _, port = address.rpartition(":")
        local = (source, 0) if source else None
        _, caller = await loop.create_connection(
            cls, host.strip("[]"), int(port), local_addr=local, ssl=tls, server_hostname=name
        )
        return caller

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        self.close()
        await self.until_closed()

    # Sending

    async def send(self, octets: bytes, *, split: int | Iterable[int] = (), gap: float = 0.0) -> None:
        """Send `octets`, cut every `split` octets, or at those offsets, with `gap` seconds between the pieces."""
        offsets = range(split, len(octets), split) if isinstance(split, int) else split
        start = 0
        for stop in (*offsets, len(octets)):
            if self.transport.is_closing():
                return
            self.transport.write(octets[start:stop])
            start = stop
            await self._writable.wait()
            if stop < len(octets):
                # A pass of the loop at least, so that pieces leave as packets of their own.
                await asyncio.sleep(gap)

    async def send_and_reset(self, octets: bytes, at: int) -> None:
        """Send the first `at` octets, then reset."""
        await self.send(octets[:at])
        while self.transport.get_write_buffer_size():
            await asyncio.sleep(0.001)
        self.reset()

    def half_close(self) -> None:
        """End our direction only."""
        self.transport.write_eof()

    def reset(self) -> None:
        """End by RST, at once."""
        sock = self.transport.get_extra_info("socket")
        with contextlib.suppress(OSError):
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.transport.abort()

    def close(self) -> None:
        """End both directions, politely."""
        self.transport.close()

    def pause(self) -> None:
        """Stop reading: the peer meets back-pressure."""
        self.transport.pause_reading()

    def resume(self) -> None:
        """Read on."""
        self.transport.resume_reading()

    # Receiving

    async def response(self, method: str = "GET", within: float = 30.0) -> Response:
        """Return the next response, to a `method`; fail if it neither ends nor breaks `within` seconds."""
        found = Response()
        async with asyncio.timeout(within):
            await self._read(found, responses(method))
        return found

    async def head(self, method: str = "GET", within: float = 30.0) -> Response:
        """Return as soon as the head of the next response is there; `response` still returns all of it."""
        found, framer, looked = Response(), responses(method), 0
        async with asyncio.timeout(within):
            while not found.status and await self._arrives(looked):
                at, octets = self._inbox[looked]
                looked += 1
                _note(found, at, framer.feed(octets))
        return found

    async def until_closed(self, within: float = 30.0) -> str:
        """Wait for the end of the connection and return how it came."""
        async with asyncio.timeout(within):
            while self.closed is None:
                self._news.clear()
                await self._news.wait()
        return self.closed

    async def _read(self, found: Response, framer: Framer) -> None:
        """Read into `found` until it is complete, or broken, which `fault` then explains."""
        try:
            while not await self._step(found, framer, await self._next()):
                pass
        except WireError as error:
            found.fault = str(error)

    async def _step(self, found: Response, framer: Framer, item: tuple[float, bytes]) -> bool:
        """Put what arrived into `found`; return whether it is complete."""
        at, octets = item
        if not octets and self.closed == "reset":
            raise WireError("reset")
        events = framer.feed(octets) if octets else framer.eof()
        while events:
            if _note(found, at, events):
                if framer.rest:
                    self._inbox.appendleft((at, bytes(framer.rest)))
                return True
            events = framer.feed(b"")
        if not octets:
            raise WireError("closed before a response")
        return False

    async def _next(self) -> tuple[float, bytes]:
        """Return octets and their time of arrival; none at the end of the stream."""
        return self._inbox.popleft() if await self._arrives(0) else (self.closed_at or 0.0, b"")

    async def _arrives(self, beyond: int) -> bool:
        """Wait until more than `beyond` pieces lie unread; return False if the stream ended before."""
        while len(self._inbox) <= beyond:
            if self.closed is not None:
                return False
            self._news.clear()
            await self._news.wait()
        return True

    # asyncio's side

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's is one in all but its class.
        self.transport = cast("asyncio.Transport", transport)
        self._writable.set()

    def data_received(self, data: bytes) -> None:
        self.raw += data
        self._inbox.append((time.monotonic(), data))
        self._news.set()

    def eof_received(self) -> bool:
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        self.closed = "eof" if exc is None else "reset"
        self.closed_at = time.monotonic()
        self._news.set()
        self._writable.set()

    def pause_writing(self) -> None:
        self._writable.clear()

    def resume_writing(self) -> None:
        self._writable.set()


def _note(found: Response, at: float, events: list[Head | Data | End]) -> bool:
    """Put what arrived into `found`; return whether it is complete. Interim answers are messages before it."""
    for event in events:
        if isinstance(event, Head):
            status = int(event.start.split(b" ")[1])
            if status < 200 and status != 101:
                found.interim.append(event)
                continue
            found.status, found.fields, found.started = status, event.fields, at
        elif isinstance(event, Data):
            found.parts.append((at, event.octets))
        elif found.status:
            found.complete, found.ended = True, at
    return found.complete


async def call(
    address: str, octets: bytes, *, source: str | None = None, within: float = 30.0, method: str | None = None
) -> Response:
    """Send `octets` on a connection of their own and return the answer."""
    async with await Caller.connect(address, source=source) as caller:
        await caller.send(octets)
        return await caller.response(method or octets.split(b" ", 1)[0].decode("latin-1"), within)
