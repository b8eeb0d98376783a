"""Accepting in plain text: who comes is known, and nobody waits long at the door because those inside are busy.

Rules
1. Connections are accepted here and not by the loop, whatever loop it is: what accept(2) says of whose one is can not
   be asked later, when it may have been reset (`peer`).
2. libuv accepts one connection in a turn of its loop. Under load a turn takes tens of milliseconds, and of a thousand
   who connect at once the last would come in after many seconds. Here `AT_ONCE` are accepted in a turn.
3. When files run out, accepting rests for a second, as asyncio's own does.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable
from functools import partial
from typing import Any, Final, cast

from gateway.listener.sockets import BACKLOG, readied
from gateway.proxy.peer import named

__all__ = ["AT_ONCE", "REST_SECONDS", "Accepting", "Named"]

#: Connections accepted before others have their turn.
AT_ONCE: Final = 64
#: Seconds of rest after an accept that failed.
REST_SECONDS = 1.0


class Named(asyncio.Protocol):
    """A protocol that is told its peer before its connection is made; "" until then."""

    peer = ""


class Accepting:
    """The accepting of one socket; `make` makes a protocol. `busy` is how many connections have yet to be made."""

    def __init__(self, listener: socket.socket, make: Callable[[], asyncio.Protocol]) -> None:
        self._listener = listener
        self._make = make
        self._loop = asyncio.get_running_loop()
        self._tasks: set[asyncio.Task[Any]] = set()
        self._resting: asyncio.TimerHandle | None = None
        listener.setblocking(False)
        listener.listen(BACKLOG)
        self._open()

    @property
    def busy(self) -> int:
        """How many have been accepted, and are no connections yet."""
        return len(self._tasks)

    def take(self, connection: socket.socket, peer: str) -> None:
        """Make a connection of `peer`'s."""
        self._begin(self._join(connection, peer))

    def close(self) -> None:
        """Accept no more; what is being made goes on."""
        self._loop.remove_reader(self._listener.fileno())
        if self._resting is not None:
            self._resting.cancel()

    async def wait_closed(self) -> None:
        """Wait until all that were accepted are connections."""
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def _begin(self, making: Any) -> asyncio.Task[None]:
        task: asyncio.Task[None] = self._loop.create_task(making)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    def _open(self) -> None:
        self._resting = None
        self._loop.add_reader(self._listener.fileno(), self._accept)

    def _accept(self) -> None:
        for _ in range(AT_ONCE):
            try:
                connection, name = self._listener.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as error:
                self._loop.call_exception_handler({"message": "accepting rests", "exception": error})
                self._loop.remove_reader(self._listener.fileno())
                self._resting = self._loop.call_later(REST_SECONDS, self._open)
                return
            self.take(readied(connection), named(connection, name))

    async def _join(self, connection: socket.socket, peer: str) -> None:
        try:
            await self._loop.connect_accepted_socket(partial(self._named, peer), connection)
        except OSError:
            connection.close()  # whoever connected has gone again

    def _named(self, peer: str) -> asyncio.Protocol:
        protocol = cast("Named", self._make())
        protocol.peer = peer
        return protocol
