"""The lane: a request of the guard's goes straight into its exchange, without a task, a scope or a queue of messages.

Here a connection meets the house; what a request becomes is a `Passage`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

from gateway.ports import Rejection
from gateway.proxy.address import UNKNOWN
from gateway.proxy.answer import Answer, Asked
from gateway.proxy.crowd import Crowd
from gateway.proxy.front import Front
from gateway.proxy.guard import Guard, Limits, Post, Turn
from gateway.proxy.parse import Head
from gateway.proxy.passage import Passage
from gateway.proxy.upgrade import Socket, asks, malformed
from policies.request import RequestFacts

if TYPE_CHECKING:
    from uvicorn.config import Config
    from uvicorn.server import ServerState

__all__ = ["Door", "Lane", "lane"]

#: Counted, never answered.
_TOO_MANY = Rejection(0, "too-many-connections", "More connections than one address, or this process, may hold.")
_NOBODY = Rejection(0, "unknown-peer", "It was reset before it was accepted, and nobody knows whose it was.")


class Door:
    """Where a listener's requests come in; `front` may be replaced, a request keeps the one it began with."""

    __slots__ = ("front", "post")

    def __init__(self, front: Front, limits: Limits) -> None:
        self.front = front
        self.post = Post(limits, self._faulty, self._turned_away, Crowd(self._name, self._trusts))

    def _faulty(self, rejection: Rejection, peer: str) -> Answer:
        front = self.front
        request_id = front.new_id()
        front.pipeline.reject(RequestFacts("", "", self._name(peer)), rejection, request_id)
        answer = front.refuser.reject(rejection, request_id, Asked())
        answer.close = True
        return answer

    def _turned_away(self, peer: str) -> None:
        why = _TOO_MANY if peer else _NOBODY
        self.front.pipeline.reject(RequestFacts("", "", self._name(peer or UNKNOWN)), why, self.front.new_id())

    def _name(self, peer: str) -> str:
        return self.front.parser.name(peer)

    def _trusts(self, peer: str) -> bool:
        return self.front.parser.trusts(peer)


def lane(door: Door) -> Callable[..., Lane]:
    """Return what makes the connections of one listener, for uvicorn's `http`."""
    return partial(Lane, door)


class _HandOver(Turn):
    """The turn of a handshake: when it comes, the connection is no longer the guard's.

    Of everything else it takes no notice, as `Turn` does: it has no body and gets no 100, and it has not begun.
    """

    __slots__ = ("_guard", "_head", "held", "opaque")

    def __init__(self, guard: Guard, head: Head) -> None:
        self._guard = guard
        self._head = head
        self.held = 0
        self.opaque = True

    def begin(self) -> None:
        """Hand the connection over, with what came behind the head, be it the end."""
        guard = self._guard
        taker = Socket(guard, self._head)
        taker.take(guard.surrender())
        if guard.half_closed:  # which the loop told before there was a WebSocket to close by it
            taker.eof_received()
            guard.transport.close()


class Lane(Guard):
    """One connection."""

    def __init__(
        self,
        door: Door,
        config: Config,
        server_state: ServerState,
        app_state: dict[str, Any],
        _loop: asyncio.AbstractEventLoop | None = None,
    ) -> None:
        super().__init__(door.post, config, server_state, app_state, _loop)
        self.door = door

    def turn(self, head: Head, *, keep_alive: bool, upgrade: bool) -> Turn:
        """Return the passage of a request, or of a WebSocket handshake the handing over of the connection."""
        if not upgrade or not asks(head):
            return Passage(self, self.door.front, head, keep_alive=keep_alive)
        fault = malformed(head)
        if fault is None:
            return _HandOver(self, head)
        passage = Passage(self, self.door.front, head, keep_alive=False)
        passage.turn_back(fault)
        return passage
