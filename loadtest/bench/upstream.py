"""What one call to an upstream costs: our pool beside aiohttp's client and httpx, in CPU time of the calling process.

Rules
1. Everyone makes the same calls, 64 in flight, on the same kind of loop, to one origin in a process of its own; every
   contestant runs in a fresh process. Only processor time is read, so a busy machine changes little.
2. Contestants take turns over the rounds, and the median of each is kept. Ratios are the result; microseconds are the
   machine's.

Run `python -m loadtest.bench.upstream`; `--calls` and `--rounds` make it longer.
"""

from __future__ import annotations

import argparse
import asyncio
import statistics
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from typing import IO, cast

import uvloop

from gateway.config.sections import UpstreamSection
from gateway.proxy.answer import lines
from gateway.proxy.upstream import Failure, Headers, Receiver, Upstream

__all__ = ["main", "measure"]

IN_FLIGHT = 64
_BODY = b'{"id": 42, "name": "example", "tags": ["a", "b", "c"]}'
_RESPONSE = (
    b"HTTP/1.1 200 OK\r\nDate: Tue, 05 Aug 2025 10:00:00 GMT\r\nServer: origin\r\nContent-Type: application/json\r\n"
    b"Cache-Control: no-cache\r\nVary: Accept\r\nContent-Length: %d\r\n\r\n%b" % (len(_BODY), _BODY)
)
_HEADERS = (
    ("accept", "application/json"),
    ("user-agent", "client/1.0"),
    ("accept-encoding", "identity"),
    ("x-forwarded-for", "192.0.2.1"),
    ("x-forwarded-host", "api.example.com"),
    ("x-forwarded-proto", "https"),
    ("via", "1.1 evenhand"),
    ("x-request-id", "01J4ZQ0000000000000000ABCD"),
    ("evenhand-tenant", "acme"),
    ("evenhand-credential", "ci"),
    ("evenhand-class", "interactive"),
)
_LOOPS = {"uvloop": uvloop.new_event_loop, "asyncio": asyncio.new_event_loop}

#: Makes one call; raises if it was not answered with the whole body.
Caller = Callable[[], Awaitable[None]]


class _Answers(asyncio.Protocol):
    """The origin: one canned response for every request head."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        self._tail = b""

    def data_received(self, data: bytes) -> None:
        data = self._tail + data
        self._tail = data[-3:]
        count = data.count(b"\r\n\r\n")
        if count:
            self._tail = data[data.rindex(b"\r\n\r\n") + 4 :]
            self._transport.write(_RESPONSE * count)


class _Waiting(Receiver):
    """A receiver that wakes its caller when the body is there."""

    __slots__ = ("body", "future", "status")

    def __init__(self, future: asyncio.Future[None]) -> None:
        self.future = future
        self.body = b""

    def on_sent(self) -> None:
        """Nothing to note."""

    def on_interim(self, status: int, headers: Headers) -> None:
        """Nothing to note."""

    def on_response(self, status: int, headers: Headers, body: bytes = b"") -> None:
        """Keep the status."""
        self.status, self.body = status, body

    def on_data(self, chunk: bytes) -> None:
        """Keep the body."""
        self.body += chunk

    def on_done(self) -> None:
        """Wake the caller."""
        self.future.set_result(None)

    def on_failed(self, failure: Failure) -> None:
        """Fail the caller."""
        self.future.set_exception(RuntimeError(failure.detail))

    def on_writable(self, ready: bool) -> None:
        """Nothing to hold back."""


def _require(status: int, body: bytes) -> None:
    if status != 200 or body != _BODY:
        raise RuntimeError(f"status {status} with {len(body)} octets")


async def _ours(address: str, stack: AsyncExitStack) -> Caller:
    upstream = Upstream("bench", UpstreamSection.model_validate({"url": address}))
    stack.callback(upstream.abort)
    loop = asyncio.get_running_loop()
    fields = lines([(name.encode(), value.encode()) for name, value in _HEADERS])

    async def call() -> None:
        receiver = _Waiting(loop.create_future())
        upstream.call(b"GET", b"/v1/things?page=2", fields, 0, receiver, idempotent=True)
        await receiver.future
        _require(receiver.status, receiver.body)

    return call


async def _aiohttp(address: str, stack: AsyncExitStack) -> Caller:
    import aiohttp  # noqa: PLC0415 - a contestant loads only itself

    connector = aiohttp.TCPConnector(limit=512)
    session = await stack.enter_async_context(aiohttp.ClientSession(connector=connector, auto_decompress=False))
    headers = dict(_HEADERS)

    async def call() -> None:
        async with session.get(f"{address}/v1/things?page=2", headers=headers) as response:
            _require(response.status, await response.read())

    return call


async def _httpx(address: str, stack: AsyncExitStack) -> Caller:
    import httpx  # noqa: PLC0415 - a contestant loads only itself

    limits = httpx.Limits(max_connections=512, max_keepalive_connections=512)
    client = await stack.enter_async_context(httpx.AsyncClient(limits=limits))

    async def call() -> None:
        response = await client.get(f"{address}/v1/things?page=2", headers=_HEADERS)
        _require(response.status_code, response.content)

    return call


_CONTESTANTS = {"pool": _ours, "aiohttp": _aiohttp, "httpx": _httpx}


async def _drive(name: str, address: str, calls: int) -> float:
    """Return CPU microseconds a call."""
    async with AsyncExitStack() as stack:
        call = await _CONTESTANTS[name](address, stack)

        async def work(count: int) -> None:
            for _ in range(count):
                await call()

        await asyncio.gather(*(work(10) for _ in range(IN_FLIGHT)))
        each = max(calls // IN_FLIGHT, 1)
        before = time.process_time()
        await asyncio.gather(*(work(each) for _ in range(IN_FLIGHT)))
        return (time.process_time() - before) / (each * IN_FLIGHT) * 1e6


async def _serve() -> None:
    server = await asyncio.get_running_loop().create_server(_Answers, "127.0.0.1", 0, backlog=1024)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()


def _child(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "loadtest.bench.upstream", *arguments]


def measure(loop: str, calls: int, rounds: int) -> dict[str, float]:
    """Return the median CPU microseconds a call of every contestant on `loop` (uvloop or asyncio)."""
    found: dict[str, list[float]] = {name: [] for name in _CONTESTANTS}
    with subprocess.Popen(_child("--origin"), stdout=subprocess.PIPE, text=True) as origin:
        try:
            port = cast("IO[str]", origin.stdout).readline().strip()
            address = f"http://127.0.0.1:{port}"
            for _ in range(rounds):
                for name, figures in found.items():
                    share = calls if name != "httpx" else max(calls // 20, IN_FLIGHT)
                    command = _child("--contestant", name, "--loop", loop, "--address", address, "--calls", str(share))
                    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=300)
                    figures.append(float(done.stdout))
        finally:
            origin.terminate()
    return {name: statistics.median(figures) for name, figures in found.items()}


def main() -> None:
    """Print the table, or play one part in it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--calls", type=int, default=20_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--loop", choices=sorted(_LOOPS), default="uvloop")
    parser.add_argument("--address", help=argparse.SUPPRESS)
    parser.add_argument("--contestant", choices=sorted(_CONTESTANTS), help=argparse.SUPPRESS)
    parser.add_argument("--origin", action="store_true", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.origin or given.contestant:
        with asyncio.Runner(loop_factory=_LOOPS[given.loop]) as runner:
            if given.origin:
                runner.run(_serve())
            else:
                print(runner.run(_drive(given.contestant, given.address, given.calls)))
        return
    for loop in _LOOPS:
        figures = measure(loop, given.calls, given.rounds)
        for name, cost in figures.items():
            print(f"{loop:8} {name:8} {cost:8.1f} us a call  {cost / figures['pool']:6.1f} x the pool", flush=True)


if __name__ == "__main__":
    main()
