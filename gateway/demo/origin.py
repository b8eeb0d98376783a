"""An origin with a known capacity: the service that the demo puts behind the gateway.

Rules
1. The model knows no clock and no socket: time is an argument.
2. It behaves as services do. Below its capacity an answer takes its base time; above it, answers wait for those before
   them; what would wait longer than its patience fails, and failing is not free, so that it then does even less.
3. It lives exactly as long as the pipe from its parent, whatever happens to the parent.
"""

from __future__ import annotations

import asyncio
import sys
from typing import cast

import httptools
import uvloop

from gateway.clock import Clock
from policies.units import SECOND, Micros

__all__ = ["UNMETERED", "Capacity", "main"]

#: A path that costs nothing, to measure the machine by.
UNMETERED = "/-/unmetered"

_BODY = b'{"hello":"from the origin"}\n'
_SERVED = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%b" % (len(_BODY), _BODY)
_FAILED = b"HTTP/1.1 503 Service Unavailable\r\nContent-Type: text/plain\r\nContent-Length: 11\r\n\r\noverloaded\n"


class Capacity:
    """How long the answer to each request takes, given those before it."""

    #: What failing costs, as a part of answering: connections, queues and logs are work too.
    FAILURE = 0.1

    __slots__ = ("_base_us", "_free_at", "_patience_us", "per_second")

    def __init__(self, per_second: float, base_us: Micros = 8_000, patience_us: Micros = 400_000) -> None:
        self.per_second = per_second
        self._base_us = base_us
        self._patience_us = patience_us
        self._free_at = 0.0

    def offer(self, now: Micros) -> Micros | None:
        """Return how many microseconds the answer to a request of `now` takes, or None if it fails."""
        slot_us = SECOND / self.per_second
        starts = max(self._free_at, now)
        if starts - now > self._patience_us:
            self._free_at = min(starts + slot_us * self.FAILURE, now + 2.0 * self._patience_us)
            return None
        self._free_at = starts + slot_us
        return int(starts - now) + self._base_us


class _Connection(asyncio.Protocol):
    """One connection. Callers of the demo wait for each answer before they ask again."""

    def __init__(self, capacity: Capacity, clock: Clock) -> None:
        self._capacity = capacity
        self._clock = clock
        self._parser = httptools.HttpRequestParser(self)
        self._transport: asyncio.Transport | None = None
        self._target = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)  # uvloop's are, without saying so

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None

    def data_received(self, data: bytes) -> None:
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserError:
            if self._transport is not None:
                self._transport.close()

    def on_message_begin(self) -> None:
        self._target = b""

    def on_url(self, url: bytes) -> None:
        self._target += url

    def on_message_complete(self) -> None:
        if self._target == UNMETERED.encode():
            self._write(_SERVED)
            return
        takes_us = self._capacity.offer(self._clock.now())
        if takes_us is None:
            self._write(_FAILED)
        else:
            asyncio.get_running_loop().call_later(takes_us / SECOND, self._write, _SERVED)

    def _write(self, answer: bytes) -> None:
        if self._transport is not None:
            self._transport.write(answer)


async def _obey(orders: asyncio.StreamReader, capacity: Capacity) -> None:
    """Take a capacity a line until the other end is gone."""
    while line := await orders.readline():
        capacity.per_second = float(line)


async def _serve() -> None:
    capacity, clock = Capacity(1.0), Clock()
    loop = asyncio.get_running_loop()
    server = await loop.create_server(lambda: _Connection(capacity, clock), "127.0.0.1", 0, backlog=1024)
    print(server.sockets[0].getsockname()[1], flush=True)
    orders = asyncio.StreamReader()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(orders), sys.stdin)
    await _obey(orders, capacity)


def main() -> int:
    """Serve on a free loopback port, say which on stdout, read capacities from stdin, and end when that ends."""
    uvloop.run(_serve())
    return 0


if __name__ == "__main__":
    sys.exit(main())
