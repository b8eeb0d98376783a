"""Accepting under TLS: a connection counts for its address from its first moment on, handshake or not.

    accepted --enter--> too many: closed, counted | shaking hands --made--> the guard's | failed, late: counted out

Rules
1. asyncio tells a protocol of its connection only when hands are shaken. So the socket is accepted here, its place
   taken (`Guard.enter`), and the loop's own TLS goes on from there.
2. Whoever never gets a connection out of it gives its place back.
3. When files run out, accepting rests for a second, as asyncio's own does.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
from collections.abc import Callable
from typing import cast

from gateway.listener.sockets import BACKLOG
from gateway.proxy.guard import Guard
from gateway.proxy.peer import named

__all__ = ["Handshakes"]

#: Connections accepted before others have their turn.
_AT_ONCE = 100
#: Seconds of rest after an accept that failed.
_REST_SECONDS = 1.0


class Handshakes:
    """The accepting of one socket. `shaking` is how many connections are in their handshake."""

    def __init__(
        self, listener: socket.socket, make: Callable[[], Guard], context: ssl.SSLContext, timeout: float, last: float
    ) -> None:
        self._listener, self._make, self._context = listener, make, context
        self._timeout, self._last = timeout, last
        self._loop = asyncio.get_running_loop()
        self._tasks: set[asyncio.Task[None]] = set()
        self._resting: asyncio.TimerHandle | None = None
        listener.setblocking(False)
        listener.listen(BACKLOG)
        self._open()

    @property
    def shaking(self) -> int:
        """How many are in their handshake."""
        return len(self._tasks)

    def take(self, connection: socket.socket, peer: str) -> None:
        """Begin a handshake with whoever connected, unless its address has enough."""
        guard = self._make()
        if not guard.enter(peer):
            guard.post.turned_away(guard.peer)
            guard.post.leave(guard)
            connection.close()
            return
        task = self._loop.create_task(self._shake(guard, connection))
        guard.break_off = task.cancel
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def close(self) -> None:
        """Accept no more; handshakes under way go on."""
        self._loop.remove_reader(self._listener.fileno())
        if self._resting is not None:
            self._resting.cancel()

    async def wait_closed(self) -> None:
        """Break off what is still shaking hands."""
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _open(self) -> None:
        self._resting = None
        self._loop.add_reader(self._listener.fileno(), self._accept)

    def _accept(self) -> None:
        for _ in range(_AT_ONCE):
            try:
                connection, name = self._listener.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as error:
                self._loop.call_exception_handler({"message": "accepting rests", "exception": error})
                self._loop.remove_reader(self._listener.fileno())
                self._resting = self._loop.call_later(_REST_SECONDS, self._open)
                return
            self.take(connection, named(connection, name))

    async def _shake(self, guard: Guard, connection: socket.socket) -> None:
        connection.setblocking(False)
        if connection.family != socket.AF_UNIX:
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        # What it fails by is the caller's affair: no TLS, no time, no more there.
        with contextlib.suppress(OSError, asyncio.CancelledError):
            try:
                await self._loop.connect_accepted_socket(
                    lambda: cast("asyncio.Protocol", guard),
                    connection,
                    ssl=self._context,
                    ssl_handshake_timeout=self._timeout,
                    ssl_shutdown_timeout=self._last,
                )
            finally:
                if cast("object", guard.transport) is None:  # as connections begin: it was never made
                    guard.post.leave(guard)
                    connection.close()
