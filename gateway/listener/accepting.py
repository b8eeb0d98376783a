"""Accepting in plain text: nobody waits long at the door because those inside are busy.

Rules
1. libuv accepts one connection in a turn of its loop. Under load a turn takes tens of milliseconds, and of a thousand
   who connect at once the last would come in after many seconds. So what waits behind a connection that the loop has
   accepted is accepted too, `AT_ONCE` in a turn.
2. Whoever is accepted here is whom accept(2) named: its socket may not know any more (`peer`).
3. What that fails by, files that run out among it, is met again by the loop, which knows what to do then (`shortage`).
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable
from functools import partial
from itertools import islice
from typing import Any, Final, cast

from gateway.listener.sockets import pending

__all__ = ["AT_ONCE", "Accepting", "Named", "named_as"]

#: Connections accepted before others have their turn.
AT_ONCE: Final = 64


class Named(asyncio.Protocol):
    """A protocol that is told its peer before its connection is made; "" until then."""

    peer = ""


def named_as(make: Callable[[], asyncio.Protocol], peer: str) -> asyncio.Protocol:
    """Return the protocol of a connection of which accept(2) said that it is `peer`'s."""
    protocol = cast("Named", make())
    protocol.peer = peer
    return protocol


class Accepting:
    """The accepting of one socket; `make` makes a protocol."""

    __slots__ = ("_asked", "_listener", "_loop", "_make", "_tasks")

    def __init__(self, listener: socket.socket, make: Callable[[], asyncio.Protocol]) -> None:
        self._listener = listener
        self._make = make
        self._loop = asyncio.get_running_loop()
        self._tasks: set[asyncio.Task[Any]] = set()
        self._asked = False

    def made(self) -> asyncio.Protocol:
        """Return the protocol of a connection that the loop has accepted, and look for others soon."""
        if not self._asked:
            self._asked = True
            self._loop.call_soon(self._more)
        return self._make()

    def _more(self) -> None:
        self._asked = False
        for connection, peer in islice(pending(self._listener), AT_ONCE):
            make = partial(named_as, self._make, peer)
            task = self._loop.create_task(self._loop.connect_accepted_socket(make, connection))
            self._tasks.add(task)
            task.add_done_callback(self._over)

    def _over(self, task: asyncio.Task[Any]) -> None:
        self._tasks.discard(task)
        if not task.cancelled():
            task.exception()  # seen: whoever connected has gone again
