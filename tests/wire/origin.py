"""UP: a scripted upstream on a real socket. It records every octet that reaches it and answers as it was told.

Rules
1. It runs in a thread of its own, so that a busy test neither delays it nor is delayed by it; records are only ever
   appended to by that thread and may be read at any time. Whoever looks at them sees all that had arrived by then. What
   is still on its way, or may not have been sent yet, is to be waited for.
2. What it cannot read strictly is a fault of its connection; `faults` must be empty unless a test expects them.
3. Times are `time.monotonic()`.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import socket
import ssl
import struct
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeAlias

from tests.wire.message import Data, End, Fields, Head, WireError, requests
from tests.wire.script import Answer

__all__ = ["Connection", "Origin", "Seen", "serving"]

#: Octets of one connection, and of one body, that are kept; more are only counted and digested.
KEPT = 4 << 20


@dataclass(slots=True)
class Seen:
    """A request as it arrived. `digest` is the SHA-256 of the whole body, `ended` is None until it was complete."""

    method: str
    target: bytes
    version: bytes
    fields: Fields
    raw: bytes
    connection: Connection
    started: float
    ended: float | None = None
    body: bytearray = field(default_factory=bytearray)
    length: int = 0
    trailers: Fields = field(default_factory=list)
    digest: hashlib._Hash = field(default_factory=hashlib.sha256)

    def all(self, name: str) -> list[str]:
        """Return the values of every field line called `name`."""
        return [value.decode("latin-1") for key, value in self.fields if key.lower() == name.lower().encode()]

    def header(self, name: str) -> str | None:
        """Return the only value of `name`, None without one; fail if there are several."""
        values = self.all(name)
        assert len(values) <= 1, f"{name} arrived {len(values)} times"
        return values[0] if values else None


@dataclass(slots=True, eq=False)
class Connection:
    """One connection: `closed` is who ended it and how: `eof`, `reset` (both by the peer) or `ours`."""

    opened: float
    raw: bytearray = field(default_factory=bytearray)
    seen: list[Seen] = field(default_factory=list)
    faults: list[str] = field(default_factory=list)
    eof: float | None = None
    closed: str | None = None
    closed_at: float | None = None


Script: TypeAlias = Answer | Callable[[Seen], Answer]


class Origin:
    """The upstream. `on` scripts a prefix of targets, `then` the very next answers; everything else is 200 `ok`."""

    def __init__(self, *, tls: ssl.SSLContext | None = None, unix: Path | None = None, port: int = 0) -> None:
        self._connections: list[Connection] = []
        self._seen: list[Seen] = []
        self.idle_close: float | None = None
        self.read_gap = 0.0
        self._scripts: dict[bytes, Script] = {}
        self._queue: deque[Script] = deque()
        self.released = asyncio.Event()
        self._tls, self._unix, self._port = tls, unix, port
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="origin", daemon=True)
        self._server: asyncio.Server | None = None
        self.peers: set[_Peer] = set()

    # What tests do

    @property
    def address(self) -> str:
        """Where it listens, as `[upstream] url` wants it."""
        if self._unix is not None:
            return f"unix:{self._unix}"
        return f"http{'s' if self._tls else ''}://127.0.0.1:{self._port}"

    @property
    def seen(self) -> list[Seen]:
        """Requests, in the order in which their heads were complete."""
        self._catch_up()
        return self._seen

    @property
    def connections(self) -> list[Connection]:
        """Connections, in the order in which they were made."""
        self._catch_up()
        return self._connections

    @property
    def open(self) -> int:
        """Connections that stand now."""
        return sum(connection.closed is None for connection in self.connections)

    @property
    def faults(self) -> list[str]:
        """What could not be read strictly, on any connection."""
        return [fault for connection in self.connections for fault in connection.faults]

    def on(self, prefix: str, script: Script) -> None:
        """Answer targets that start with `prefix` by `script`; the longest prefix wins."""
        self._scripts[prefix.encode()] = script

    def then(self, *scripts: Script) -> None:
        """Answer the next requests, whatever they are, by `scripts` in this order."""
        self._queue.extend(scripts)

    def hold(self) -> None:
        """Keep answers back that are `held`, from now on; as at the start."""
        self.released = asyncio.Event()

    def release(self) -> None:
        """Give the answers that were held, and those to come."""
        self._loop.call_soon_threadsafe(self.released.set)

    def forget(self) -> None:
        """Drop records and scripts; connections that stand stay, and are recorded on."""
        self._connections = [connection for connection in self.connections if connection.closed is None]
        for connection in self._connections:
            connection.seen, connection.faults, connection.raw = [], [], bytearray()
        self._seen, self._scripts, self._queue = [], {}, deque()
        self.idle_close, self.read_gap = None, 0.0
        self.hold()

    def by_tenant(self) -> Counter[str]:
        """Return how many requests arrived of each tenant, by the gateway's own header."""
        return Counter(seen.header("evenhand-tenant") or "" for seen in self.seen)

    def cut_all(self) -> None:
        """Reset every connection that stands."""

        def cut() -> None:
            for peer in list(self.peers):
                peer.reset()

        self._loop.call_soon_threadsafe(cut)

    # Life

    def start(self) -> None:
        """Listen."""
        self._thread.start()
        asyncio.run_coroutine_threadsafe(self._listen(), self._loop).result(30)

    def stop(self) -> None:
        """Stop listening and cut what stands."""
        asyncio.run_coroutine_threadsafe(self._close(), self._loop).result(30)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(30)
        self._loop.close()

    def script(self, seen: Seen) -> Answer:
        """Return the answer to `seen`."""
        fits = [prefix for prefix in self._scripts if seen.target.startswith(prefix)]
        script: Script = Answer()
        if self._queue:
            script = self._queue.popleft()
        elif fits:
            script = self._scripts[max(fits, key=len)]
        return script if isinstance(script, Answer) else script(seen)

    def _catch_up(self) -> None:
        """Let the thread read what has arrived."""
        if self._loop.is_running() and threading.current_thread() is not self._thread:
            asyncio.run_coroutine_threadsafe(_turns(), self._loop).result(30)

    async def _listen(self) -> None:
        def make() -> _Peer:
            return _Peer(self)

        if self._unix is not None:
            self._server = await self._loop.create_unix_server(make, str(self._unix))
            return
        self._server = await self._loop.create_server(make, "127.0.0.1", self._port, ssl=self._tls, backlog=1024)
        self._port = self._server.sockets[0].getsockname()[1]

    async def _close(self) -> None:
        assert self._server is not None
        self._server.close()
        for peer in list(self.peers):
            peer.reset()
        pending = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
        for task in pending:
            task.cancel()
        await asyncio.gather(*pending, return_exceptions=True)
        await asyncio.sleep(0)


async def _turns() -> None:
    """Return when what had arrived was read: accepting, making a transport, reading and closing take a turn each."""
    for _ in range(8):
        await asyncio.sleep(0)


@contextlib.contextmanager
def serving(origin: Origin | None = None) -> Iterator[Origin]:
    """Run `origin`, a plain one if None, for the length of a `with`."""
    up = origin or Origin()
    up.start()
    try:
        yield up
    finally:
        up.stop()


class _Peer(asyncio.Protocol):
    """One connection to the upstream: reads requests, plays their answers in order."""

    def __init__(self, origin: Origin) -> None:
        self._origin = origin
        self._framer = requests()
        self._answers: deque[tuple[Seen, Answer]] = deque()
        self._player: asyncio.Task[None] | None = None
        self._idle: asyncio.TimerHandle | None = None
        self._writable = asyncio.Event()
        self._ours = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        self._record = Connection(time.monotonic())
        self._origin._connections.append(self._record)
        self._origin.peers.add(self)
        self._writable.set()

    def data_received(self, data: bytes) -> None:
        if self._idle is not None:
            self._idle.cancel()
        if len(self._record.raw) < KEPT:
            self._record.raw += data
        try:
            for event in self._framer.feed(data):
                self._event(event)
        except WireError as error:
            self._record.faults.append(str(error))
            self._close()
            return
        if self._origin.read_gap:
            self._transport.pause_reading()
            asyncio.get_running_loop().call_later(self._origin.read_gap, self._resume)

    def eof_received(self) -> bool:
        self._record.eof = time.monotonic()
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        self._record.closed = "ours" if self._ours else "eof" if exc is None else "reset"
        self._record.closed_at = time.monotonic()
        self._origin.peers.discard(self)
        self._writable.set()
        for handle in (self._player, self._idle):
            if handle is not None:
                handle.cancel()

    def pause_writing(self) -> None:
        self._writable.clear()

    def resume_writing(self) -> None:
        self._writable.set()

    @property
    def stuck(self) -> bool:
        """True while the peer does not read on."""
        return not self._writable.is_set()

    def reset(self) -> None:
        """End the connection by RST, dropping what was not sent."""
        self._ours = True
        sock = self._transport.get_extra_info("socket")
        # None of TLS that the peer has just ended.
        with contextlib.suppress(OSError, AttributeError):
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self._transport.abort()

    def _close(self) -> None:
        self._ours = True
        self._transport.close()

    def _resume(self) -> None:
        if not self._transport.is_closing():
            self._transport.resume_reading()

    def _event(self, event: Head | Data | End) -> None:
        if isinstance(event, Head):
            method, target, version = event.start.split(b" ", 2)
            now = time.monotonic()
            seen = Seen(method.decode(), target, version, event.fields, event.raw, self._record, now)
            self._record.seen.append(seen)
            self._origin._seen.append(seen)
            self._current, self._answer = seen, self._origin.script(seen)
            if self._answer.early:
                self._enqueue()
        elif isinstance(event, Data):
            self._current.length += len(event.octets)
            self._current.digest.update(event.octets)
            if len(self._current.body) < KEPT:
                self._current.body += event.octets
        else:
            self._current.trailers = event.trailers
            self._current.ended = time.monotonic()
            if not self._answer.early:
                self._enqueue()

    def _enqueue(self) -> None:
        if self._answer.immediate and self._player is None:
            self._transport.write(b"".join(octets for _, octets in self._answer.pieces(self._current.method)))
            self._rest()
            return
        self._answers.append((self._current, self._answer))
        if self._player is None:
            self._player = asyncio.get_running_loop().create_task(self._play())

    async def _play(self) -> None:
        while self._answers:
            seen, answer = self._answers.popleft()
            if answer.held:
                await self._origin.released.wait()
            for wait, octets in answer.pieces(seen.method):
                if wait:
                    await asyncio.sleep(wait)
                self._transport.write(octets)
                await self._writable.wait()
            if answer.ending == "keep":
                self._rest()
                continue
            await self._end(answer.ending)
            return
        self._player = None

    async def _end(self, ending: str) -> None:
        while self._transport.get_write_buffer_size() and not self._transport.is_closing():
            await asyncio.sleep(0.001)
        if ending == "reset":
            self.reset()
        elif ending == "close":
            self._close()

    def _rest(self) -> None:
        if self._origin.idle_close is not None:
            self._idle = asyncio.get_running_loop().call_later(self._origin.idle_close, self._close)
