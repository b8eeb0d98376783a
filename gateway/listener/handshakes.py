"""Accepting under TLS: a connection counts for its address from its first moment on, handshake or not.

    accepted --enter--> too many: closed, counted | shaking hands --made--> the guard's | failed, late: counted out

Rules
1. asyncio tells a protocol of its connection only when hands are shaken. So the socket is accepted here, its place
   taken (`Guard.enter`), and the loop's own TLS goes on from there.
2. Whoever never gets a connection out of it gives its place back.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
from collections.abc import Callable
from typing import cast

from gateway.listener.accepting import Accepting
from gateway.proxy.guard import Guard

__all__ = ["Handshakes"]


class Handshakes(Accepting):
    """The accepting of one socket; `busy` is how many connections are in their handshake."""

    def __init__(
        self, listener: socket.socket, make: Callable[[], Guard], context: ssl.SSLContext, timeout: float, last: float
    ) -> None:
        super().__init__(listener, cast("Callable[[], asyncio.Protocol]", make))
        self._guard, self._context = make, context
        self._timeout, self._last = timeout, last

    def take(self, connection: socket.socket, peer: str) -> None:
        """Begin a handshake with whoever connected, unless its address has enough."""
        guard = self._guard()
        if not guard.enter(peer):
            guard.post.turned_away(guard.peer)
            guard.post.leave(guard)
            connection.close()
            return
        task = self._begin(self._shake(guard, connection))
        guard.break_off = task.cancel

    async def wait_closed(self) -> None:
        """Break off what is still shaking hands."""
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _shake(self, guard: Guard, connection: socket.socket) -> None:
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
