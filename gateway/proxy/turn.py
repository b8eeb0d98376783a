"""A request of a connection as the guard sees it, and what all connections of a listener share.

The guard knows framing, bounds and deadlines. What a request becomes is the business of whoever makes the `Turn`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol

from gateway.ports import Rejection
from gateway.proxy.answer import Answer
from gateway.proxy.deadlines import Deadlines
from policies.units import Micros

__all__ = ["Limits", "Post", "Turn"]


@dataclass(frozen=True, slots=True)
class Limits:
    """What a caller may take of a connection; 0 connections per address is no cap."""

    max_header_bytes: int
    max_headers: int
    header_timeout_us: Micros
    body_timeout_us: Micros
    keepalive_timeout_us: Micros
    max_connections_per_address: int


@dataclass(slots=True)
class Post:
    """What all connections of a listener share.

    `faulty` counts a fault of the peer at an address and returns the answer; `turned_away` counts a socket above the
    cap; `trusts` says whether a peer is a proxy of our own, which has no cap. `connections` counts by address.
    """

    limits: Limits
    faulty: Callable[[Rejection, str], Answer]
    turned_away: Callable[[str], None]
    trusts: Callable[[str], bool]
    draining: bool = False
    connections: dict[str, int] = field(default_factory=dict)
    deadlines: Deadlines | None = None

    def enter(self, peer: str) -> bool:
        """Count a connection of `peer` in; False if its address has too many."""
        held = self.connections.get(peer, 0) + 1
        self.connections[peer] = held
        cap = self.limits.max_connections_per_address
        return not cap or held <= cap or self.trusts(peer)

    def leave(self, peer: str) -> None:
        """Count it out."""
        left = self.connections[peer] - 1
        if left:
            self.connections[peer] = left
        else:
            del self.connections[peer]


class Turn(Protocol):
    """One request of a connection, from its head to the end of its answer."""

    #: Octets of its body that wait; reading pauses while they are many.
    held: int
    #: Whether what follows the head is not HTTP, and is nobody's but this request's.
    opaque: bool

    def begin(self) -> None:
        """All octets received with the head have parsed, and earlier requests are answered."""
        ...

    def body(self, chunk: bytes) -> None:
        """Take the next octets of the body; may come before `begin`."""
        ...

    def body_end(self) -> None:
        """Note that the body is complete; may come before `begin`."""
        ...

    def turn_back(self, fault: Rejection) -> None:
        """Answer `fault`, or break off the answer: the rest of the body will not come."""
        ...

    def stop(self) -> None:
        """Answer that the server stops, or break off the answer."""
        ...

    def probe(self) -> None:
        """Write what any caller skips, if there is such a thing now: it shows whether the caller is gone."""
        ...

    def gone(self) -> None:
        """End it: the caller is gone."""
        ...

    def writable(self, ready: bool) -> None:
        """Note that the caller takes what is written, or does not for now."""
        ...
