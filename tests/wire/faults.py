"""FP: a proxy in front of a server, which can be made to fail in every way that networks and servers do.

Rules
1. It runs on a thread and a loop of its own, so that it can stand before a gateway process and within an async test.
2. Every fault is a method, takes effect at once, and is undone by `heal`.
3. What it saw is counted: `attempts` to connect, `open` connections.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
import struct
import threading
import time
from collections.abc import Callable, Coroutine
from typing import Any, Self

__all__ = ["FaultProxy", "replies_in"]

#: Takes a reply of the server and returns what is sent instead.
Rewrite = Callable[[bytes], bytes]

#: SO_LINGER on, for 0 s: closing resets.
_RESET = struct.pack("ii", 1, 0)


def replies_in(buffer: bytes) -> tuple[list[bytes], bytes]:
    """Cut RESP2 into whole replies and what is left over; shares no code with ours."""
    whole: list[bytes] = []
    start = 0
    while (end := _end(buffer, start)) is not None:
        whole.append(buffer[start:end])
        start = end
    return whole, buffer[start:]


def _end(buffer: bytes, start: int) -> int | None:
    line = buffer.find(b"\r\n", start)
    if line < 0:
        return None
    after = line + 2
    if buffer[start : start + 1] == b"$":
        size = int(buffer[start + 1 : line])
        after += size + 2 if size >= 0 else 0
        return after if after <= len(buffer) else None
    if buffer[start : start + 1] == b"*":
        at: int | None = after
        for _ in range(int(buffer[start + 1 : line])):
            at = _end(buffer, at) if at is not None else None
        return at
    return after


class _Pair:
    """One connection and its other half."""

    def __init__(self, proxy: FaultProxy, front: asyncio.StreamWriter, back: asyncio.StreamWriter) -> None:
        self.proxy = proxy
        self.front = front
        self.back = back
        self.rewrite: Rewrite | None = None
        self.left: int | None = None
        #: What has lost octets passes nothing on any more: TCP delivers all or nothing.
        self.dead = False
        self._kept = b""

    def changed(self, data: bytes) -> bytes:
        """Return what the caller gets of what the server sent."""
        rewrite = self.rewrite or self.proxy.rewriting
        if rewrite is None and not self._kept:
            return data
        whole, self._kept = replies_in(self._kept + data)
        return b"".join(map(rewrite, whole)) if rewrite else b"".join(whole)

    def close(self, *, reset: bool = False) -> None:
        """Close both halves."""
        for writer in (self.front, self.back):
            if reset:
                found = writer.get_extra_info("socket")
                with contextlib.suppress(OSError):
                    found.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
                writer.transport.abort()
            else:
                writer.close()


class FaultProxy:
    """In front of `target`, host and port; `context` has it speak TLS to callers. Use it with `with`."""

    def __init__(self, target: tuple[str, int], context: ssl.SSLContext | None = None) -> None:
        self.target = target
        self.attempts: list[float] = []
        self.rewriting: Rewrite | None = None
        self.port = 0
        self._context = context
        self._pairs: set[_Pair] = set()
        self._server: asyncio.Server | None = None
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._delay = 0.0
        self._swallow = False
        self._greeting = b""
        self._most: int | None = None
        self._flowing = asyncio.Event()
        self._flowing.set()

    @property
    def address(self) -> tuple[str, int]:
        """Where it listens, also while it is down."""
        return "127.0.0.1", self.port

    @property
    def url(self) -> str:
        """What `[store] url` says of it."""
        return f"{'rediss' if self._context else 'redis'}://127.0.0.1:{self.port}"

    @property
    def open(self) -> int:
        """Connections open now."""
        return len(self._pairs)

    # Faults

    def down(self) -> None:
        """Refuse, and reset what is open."""
        self._do(self._close())

    def freeze(self) -> None:
        """Accept, and pass nothing on; what comes is passed on after `heal`."""
        self._do(self._set_flowing(flowing=False))

    def swallow(self) -> None:
        """Accept, and throw away what comes; connections that it met stay dead, as when a firewall forgets them."""
        self._swallow = True

    def delay(self, seconds: float) -> None:
        """Pass everything on that much later, each way."""
        self._delay = seconds

    def reset(self) -> None:
        """Reset what is open; new connections are served."""
        self._do(self._reset())

    def cut(self, octets: int) -> None:
        """Close each open connection once so many more octets of replies have passed."""
        self._do(self._each("left", octets))

    def rewrite(self, change: Rewrite | None, *, fresh: bool = True) -> None:
        """Have `change` make every reply; not on connections made from now on if not `fresh`."""
        if fresh:
            self.rewriting = change
        else:
            self._do(self._each("rewrite", change))

    def greet(self, words: bytes) -> None:
        """Say that to whoever connects, and close."""
        self._greeting = words

    def accept_at_most(self, per_second: int) -> None:
        """Reset whoever connects beyond so many in a second."""
        self._most = per_second

    def heal(self) -> None:
        """Undo every fault, and listen."""
        self.rewriting, self._delay, self._swallow, self._greeting, self._most = None, 0.0, False, b"", None
        self._do(self._heal())

    # Its loop

    def _do(self, work: Coroutine[Any, Any, None]) -> None:
        asyncio.run_coroutine_threadsafe(work, self._loop).result(30.0)

    async def _each(self, name: str, value: object) -> None:
        for pair in self._pairs:
            setattr(pair, name, value)

    async def _set_flowing(self, *, flowing: bool) -> None:
        if flowing:
            self._flowing.set()
        else:
            self._flowing.clear()

    async def _heal(self) -> None:
        self._flowing.set()
        await self._each("rewrite", None)
        await self._each("left", None)
        if self._server is None:
            self._server = await asyncio.start_server(
                self._accept, "127.0.0.1", self.port, ssl=self._context, backlog=1024
            )
            self.port = self._server.sockets[0].getsockname()[1]

    async def _close(self) -> None:
        if self._server is not None:
            self._server.close()
            self._server = None
        await self._reset()

    async def _reset(self) -> None:
        for pair in list(self._pairs):
            pair.close(reset=True)

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        now = time.monotonic()
        self.attempts.append(now)
        recent = sum(at > now - 1.0 for at in self.attempts)
        if self._greeting or (self._most is not None and recent > self._most):
            writer.write(self._greeting)
            writer.close()
            return
        try:
            back_reader, back = await asyncio.open_connection(*self.target)
        except OSError:
            writer.transport.abort()
            return
        pair = _Pair(self, writer, back)
        self._pairs.add(pair)
        try:
            # asyncio reports a handler that was cancelled; this one is, when the proxy ends.
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.gather(self._pump(pair, reader, back, front=False), self._pump(pair, back_reader, writer))
        finally:
            self._pairs.discard(pair)
            pair.close()

    async def _pump(
        self, pair: _Pair, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, *, front: bool = True
    ) -> None:
        """Pass on what comes, as late as it should be, in order; end the other direction with this one."""
        due: asyncio.Queue[tuple[float, bytes]] = asyncio.Queue()
        passing = asyncio.ensure_future(self._pass_on(pair, due, writer, front=front))
        with contextlib.suppress(OSError):
            while data := await reader.read(65_536):
                due.put_nowait((time.monotonic() + self._delay, data))
        due.put_nowait((time.monotonic() + self._delay, b""))
        await passing
        pair.close()

    async def _pass_on(
        self, pair: _Pair, due: asyncio.Queue[tuple[float, bytes]], writer: asyncio.StreamWriter, *, front: bool
    ) -> None:
        while True:
            at, data = await due.get()
            if at > time.monotonic():
                await asyncio.sleep(at - time.monotonic())
            if data:
                await self._flowing.wait()
            if not data or writer.is_closing():
                return
            if self._swallow or pair.dead:
                pair.dead = True
                continue
            if front:
                data = pair.changed(data)
                if pair.left is not None:
                    data, pair.left = data[: pair.left], pair.left - len(data)
            writer.write(data)
            if front and pair.left is not None and pair.left <= 0:
                pair.close()
                return

    def __enter__(self) -> Self:
        self._thread.start()
        self.heal()
        return self

    def __exit__(self, *_: object) -> None:
        self._do(self._close())
        self._do(self._idle())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    async def _idle(self) -> None:
        """Let connections end."""
        self._flowing.set()
        others = asyncio.all_tasks() - {asyncio.current_task()}
        for task in others:
            task.cancel()
        await asyncio.gather(*others, return_exceptions=True)
