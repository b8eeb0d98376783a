"""The callers of the demo, over real sockets: keep-alive connections on one loop, no task per call.

Rules
1. A call is what a person waits for; an attempt is one request. A call ends when it is admitted or at its deadline; the
   attempts in between come straight back. Both are counted here, on the caller's side of the wire.
2. One connection carries one request at a time, and is opened again if it was lost.
3. The driver must cost less than what it measures: callbacks and one parser per connection.
"""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import cast

import httptools

from gateway.demo.tenants import RETRY_US, Night, Tenant
from policies.units import SECOND

__all__ = ["Answer", "Drive", "Line", "Tally", "measure"]


@dataclass(slots=True)
class Answer:
    """What came back: status 0 if nothing did; `limit` is the value of Evenhand-Refused."""

    status: int = 0
    limit: str = ""
    body: bytes = b""


@dataclass(slots=True)
class Tally:
    """What one tenant saw. `through` and `gave_up` count calls, all others attempts."""

    through: int = 0
    gave_up: int = 0
    attempts: int = 0
    failed: int = 0
    refused: Counter[str] = field(default_factory=Counter)

    @property
    def calls(self) -> int:
        """Calls that have ended."""
        return self.through + self.gave_up


class Line(asyncio.Protocol):
    """One connection to 127.0.0.1."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._transport: asyncio.Transport | None = None
        self._parser = httptools.HttpResponseParser(self)
        self._answer = Answer()
        self._waiting: Callable[[Answer], None] | None = None
        self._opening: asyncio.Task[None] | None = None

    def ask(self, request: bytes, done: Callable[[Answer], None]) -> None:
        """Send `request`; `done` is called once, with what came back."""
        self._waiting = done
        self._answer = Answer()
        if self._transport is not None:
            self._transport.write(request)
        else:
            self._opening = asyncio.get_running_loop().create_task(self._open(request))

    async def get(self, path: str, timeout_seconds: float = 2.0) -> Answer:
        """Ask for `path` and wait for the answer."""
        done: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()

        def answered(answer: Answer) -> None:
            if not done.done():
                done.set_result(answer)

        self.ask(f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1:{self._port}\r\n\r\n".encode(), answered)
        return await asyncio.wait_for(done, timeout_seconds)

    def close(self) -> None:
        """Let go of the connection; nobody is called any more."""
        self._waiting = None
        if self._opening is not None:
            self._opening.cancel()
        if self._transport is not None:
            self._transport.abort()

    async def _open(self, request: bytes) -> None:
        try:
            await asyncio.get_running_loop().create_connection(lambda: self, "127.0.0.1", self._port)
        except OSError:
            self._end()
            return
        if self._transport is not None:
            self._transport.write(request)

    def _end(self) -> None:
        done, self._waiting = self._waiting, None
        if done is not None:
            done(self._answer)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep the transport."""
        self._transport = cast("asyncio.Transport", transport)  # uvloop's are, without saying so
        self._parser = httptools.HttpResponseParser(self)

    def connection_lost(self, exc: Exception | None) -> None:
        """Tell whoever waits that nothing came."""
        self._transport = None
        self._answer = Answer()
        self._end()

    def data_received(self, data: bytes) -> None:
        """Feed the parser."""
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserError:
            if self._transport is not None:
                self._transport.abort()

    def on_header(self, name: bytes, value: bytes) -> None:
        """Take note of who refused."""
        if name.lower() == b"evenhand-refused":
            self._answer.limit = value.decode("ascii")

    def on_body(self, body: bytes) -> None:
        """Keep the body."""
        self._answer.body += body

    def on_message_complete(self) -> None:
        """Hand the answer over."""
        self._answer.status = self._parser.get_status_code()
        self._end()


class _Call:
    """One call of one tenant: attempts on one connection until it is through or its time is up."""

    __slots__ = ("_deadline", "_drive", "_ended", "_line", "_request", "_tally")

    def __init__(self, drive: Drive, tenant: Tenant, line: Line, ended: Callable[[Line], None]) -> None:
        loop = drive.loop
        self._drive = drive
        self._line = line
        self._ended = ended
        self._request = drive.requests[tenant.id]
        self._tally = tenant.id
        self._deadline = None if tenant.deadline_us is None else loop.time() + tenant.deadline_us / SECOND

    def attempt(self) -> None:
        """Send the request once."""
        if not self._drive.stopped:
            self._line.ask(self._request, self._answered)

    def _answered(self, answer: Answer) -> None:
        drive = self._drive
        if drive.stopped:
            return
        tally = drive.tallies[self._tally]
        tally.attempts += 1
        if 200 <= answer.status < 300:
            tally.through += 1
            self._ended(self._line)
            return
        if answer.limit:
            tally.refused[answer.limit] += 1
        else:
            tally.failed += 1
        back = drive.loop.time() + RETRY_US / SECOND * drive.random.uniform(0.5, 1.5)
        if self._deadline is None or back < self._deadline:
            drive.loop.call_at(back, self.attempt)
        else:
            drive.loop.call_at(self._deadline, self._give_up)

    def _give_up(self) -> None:
        if not self._drive.stopped:
            self._drive.tallies[self._tally].gave_up += 1
            self._ended(self._line)


class Drive:
    """All callers of one night, against one port."""

    def __init__(self, cast: Night, port: int, seed: int = 1) -> None:
        self.loop = asyncio.get_running_loop()
        self.random = random.Random(seed)
        self.stopped = False
        self.tallies = {tenant.id: Tally() for tenant in cast.tenants}
        self.requests = {
            tenant.id: f"GET /hello HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\n"
            f"Authorization: Bearer {tenant.token}\r\n\r\n".encode()
            for tenant in cast.tenants
        }
        self._cast = cast
        self._port = port
        self._lines: list[Line] = []
        self._idle: dict[str, list[Line]] = {tenant.id: [] for tenant in cast.tenants}

    def start_light(self) -> None:
        """Let the calls of the light tenants arrive."""
        for tenant in self._cast.light:
            self._arrive_later(tenant)

    def start_backfill(self) -> None:
        """Put all calls of the backfill in flight, spread over the first retry interval."""
        tenant = self._cast.backfill
        for _ in range(tenant.in_flight):
            line = self._line(tenant.id)
            self.loop.call_later(self.random.uniform(0, RETRY_US / SECOND), self._next_of_backfill, line)

    def restart_counts(self) -> dict[str, Tally]:
        """Begin to count anew, and return what was counted until now."""
        counted, self.tallies = self.tallies, {name: Tally() for name in self.tallies}
        return counted

    def stop(self) -> None:
        """End everything at once; calls that have not ended are not counted."""
        self.stopped = True
        for line in self._lines:
            line.close()

    def _next_of_backfill(self, line: Line) -> None:
        _Call(self, self._cast.backfill, line, self._next_of_backfill).attempt()

    def _arrive_later(self, tenant: Tenant) -> None:
        self.loop.call_later(self.random.expovariate(tenant.per_second), self._arrive, tenant)

    def _arrive(self, tenant: Tenant) -> None:
        if self.stopped:
            return
        self._arrive_later(tenant)
        idle = self._idle[tenant.id]
        _Call(self, tenant, self._line(tenant.id), idle.append).attempt()

    def _line(self, tenant: str) -> Line:
        idle = self._idle[tenant]
        if idle:
            return idle.pop()
        line = Line(self._port)
        self._lines.append(line)
        return line


async def measure(port: int, path: str, seconds: float = 0.3, lines: int = 16) -> float:
    """Return how many requests a second this machine exchanges with the origin, over `lines` connections."""
    loop = asyncio.get_running_loop()
    request = f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\n\r\n".encode()
    opened = [Line(port) for _ in range(lines)]
    count = 0

    def again(line: Line) -> Callable[[Answer], None]:
        def answered(_: Answer) -> None:
            nonlocal count
            count += 1
            line.ask(request, answered)

        return answered

    started = loop.time()
    for line in opened:
        line.ask(request, again(line))
    await asyncio.sleep(seconds)
    elapsed = loop.time() - started
    for line in opened:
        line.close()
    return count / elapsed
