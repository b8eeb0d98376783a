"""A request of a connection as the guard sees it, and what all connections of a listener share.

The guard knows framing, bounds and deadlines. What a request becomes is the business of whoever makes the `Turn`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass

from gateway.ports import Rejection
from gateway.proxy.answer import Answer
from gateway.proxy.crowd import Crowd, Guest
from gateway.proxy.deadlines import Deadlines
from gateway.proxy.rear import Rear
from policies.native import trait
from policies.units import Micros

__all__ = ["Limits", "Post", "Turn"]


@dataclass(frozen=True, slots=True)
class Limits:
    """What a caller may take of a connection; 0 connections, of an address or of all, is no cap."""

    max_header_bytes: int
    max_headers: int
    header_timeout_us: Micros
    body_timeout_us: Micros
    keepalive_timeout_us: Micros
    max_connections_per_address: int
    max_connections: int = 0


@dataclass(slots=True)
class Post:
    """What all connections of a listener share.

    `faulty` counts a fault of the peer at an address and returns the answer; `turned_away` counts a socket above a
    cap, or one of "", whom nobody knows; `crowd` has all of them.
    """

    limits: Limits
    faulty: Callable[[Rejection, str], Answer]
    turned_away: Callable[[str], None]
    crowd: Crowd
    draining: bool = False
    _deadlines: Deadlines | None = None
    _rear: Rear | None = None

    def on_loop(self, loop: asyncio.AbstractEventLoop) -> tuple[Deadlines, Rear]:
        """Return the deadlines and the rear of all of them, who run on one loop."""
        if self._deadlines is None or self._rear is None:
            self._deadlines, self._rear = Deadlines(loop), Rear(loop)
        return self._deadlines, self._rear

    @property
    def connections(self) -> dict[str, int]:
        """Connections by address."""
        return self.crowd.counts()

    def enter(self, guest: Guest, now: float) -> bool:
        """Count a connection in; False if there are too many, of its address or of all."""
        limits, crowd = self.limits, self.crowd
        crowd.most = limits.max_connections
        return crowd.enter(guest, limits.max_connections_per_address, now)

    def leave(self, guest: Guest) -> None:
        """Count it out."""
        self.crowd.leave(guest)


@trait
class Turn:
    """One request of a connection, from its head to the end of its answer. This one takes no notice of anything."""

    __slots__ = ()

    #: Octets of its body that wait; reading pauses while they are many.
    held: int
    #: Whether what follows the head is not HTTP, and is nobody's but this request's.
    opaque: bool

    def begin(self) -> None:
        """All octets received with the head have parsed, and earlier requests are answered."""

    def body(self, chunk: bytes) -> None:
        """Take the next octets of the body; may come before `begin`."""

    def body_end(self) -> None:
        """Note that the body is complete; may come before `begin`."""

    def turn_back(self, fault: Rejection) -> None:
        """Answer `fault`, or break off the answer: the rest of the body will not come."""

    def stop(self) -> None:
        """Answer that the server stops, or break off the answer."""

    def probe(self) -> None:
        """Write what any caller skips, if there is such a thing now: it shows whether the caller is gone."""

    def gone(self) -> None:
        """End it: the caller is gone."""

    def writable(self, ready: bool) -> None:
        """Note that the caller takes what is written, or does not for now."""
