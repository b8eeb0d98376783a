"""Where an upstream lives: its configured addresses, the peers they resolve to, and which of them is next.

Rules
1. Every socket address is a peer of its own, as in Envoy's strict DNS and in nginx: load and failures are per peer.
2. Next is the peer with the fewest calls outstanding; ties take turns.
3. A peer that cannot be connected to is out for a time that doubles from 1 s to 30 s; one success forgives all. Being
   out is advice: when all are out, the one that returns first is tried.
4. Names are resolved off the hot path, again when connections fail and every 30 s; an answer that fails to come leaves
   the old one in force. Peers that the name no longer has are retired: they finish what they carry.
"""

from __future__ import annotations

import asyncio
import ipaddress
import math
import socket
from collections.abc import Collection, Sequence
from itertools import zip_longest
from typing import TYPE_CHECKING, Any

from gateway.config.addresses import UpstreamUrl

if TYPE_CHECKING:
    from gateway.proxy.connection import Connection

__all__ = ["Addresses", "Peer"]

#: Seconds an answer of the resolver is used; what nginx and Envoy do without a TTL lies between 5 and 30.
_FRESH = 30.0
#: Seconds between two questions however many connections fail.
_PATIENCE = 1.0
#: Peers of one name at most; a larger answer is cut.
_MOST = 64
_FIRST_EJECTION = 1.0
_LONGEST_EJECTION = 30.0


class Peer:
    """One socket address. `load` counts its calls in flight; `idle` its idle connections, the latest last."""

    __slots__ = (
        "authority", "failures", "host", "idle", "load", "name", "out_until", "port", "prefix", "retired", "url",
    )  # fmt: skip

    def __init__(self, url: UpstreamUrl, host: str, port: int) -> None:
        self.url = url
        self.host = host
        self.port = port
        self.prefix = url.path.rstrip("/").encode("ascii")
        self.authority = url.authority.encode("ascii")
        self.name = f"unix:{url.unix}" if url.unix else f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
        self.load = 0
        self.idle: list[Connection] = []
        self.failures = 0
        self.out_until = 0.0
        self.retired = False

    def succeeded(self) -> None:
        """Forgive: a connection was made."""
        self.failures = 0
        self.out_until = 0.0

    def failed(self, now: float) -> None:
        """No connection could be made: out for a while."""
        self.out_until = now + min(_FIRST_EJECTION * 2.0 ** min(self.failures, 10), _LONGEST_EJECTION)
        self.failures += 1


class _Name:
    """A name and the peers it last resolved to."""

    def __init__(self, url: UpstreamUrl) -> None:
        self.url = url
        self.peers: list[Peer] = []
        self.asked_at = -math.inf
        self.question: asyncio.Task[None] | None = None

    def answered(self, _question: asyncio.Task[None]) -> None:
        """Note that nobody is asked any more."""
        self.question = None

    def replace(self, hosts: Sequence[str]) -> None:
        """Take a new answer: known peers stay who they are, those that are gone carry nothing new."""
        known = {peer.host: peer for peer in self.peers}
        self.peers = [known.get(host) or Peer(self.url, host, self.url.port) for host in hosts]
        for host in known.keys() - set(hosts):
            peer = known[host]
            peer.retired = True
            for connection in list(peer.idle):
                connection.close()


class Addresses:
    """The peers of one upstream. `peers` is empty until a name has been resolved for the first time."""

    def __init__(self, urls: Sequence[UpstreamUrl], loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._lookup = loop.getaddrinfo
        self._fixed = [Peer(url, url.host, url.port) for url in urls if _is_literal(url)]
        self._names = [_Name(url) for url in urls if not _is_literal(url)]
        self._turn = 0
        self.peers = list(self._fixed)

    def choose(self, now: float, but: Collection[Peer] = ()) -> Peer | None:
        """Return the peer to try next, not one of `but`; None if there is no other."""
        peers = self.peers
        if len(peers) == 1 and not but:
            return peers[0]
        self._turn += 1
        turn = self._turn % max(len(peers), 1)
        candidates = [peer for peer in peers[turn:] + peers[:turn] if peer not in but]
        return min(candidates, key=lambda peer: _rank(peer, now), default=None)

    def refresh(self, now: float, *, failed: bool = False) -> None:
        """Ask the resolver again if it is time, without waiting for it."""
        for name in self._names:
            if name.question is None and now - name.asked_at >= (_PATIENCE if failed else _FRESH):
                self._ask(name)

    async def ready(self) -> None:
        """Wait until there is a peer, or every name has been asked for; one that does not resolve has no peers."""
        if self.peers:
            return
        waiting = {name.question or self._ask(name) for name in self._names}
        while waiting and not self.peers:
            _, waiting = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)

    def close(self) -> None:
        """Ask no more."""
        for name in self._names:
            if name.question is not None:
                name.question.cancel()

    def _ask(self, name: _Name) -> asyncio.Task[None]:
        name.asked_at = self._loop.time()
        name.question = question = self._loop.create_task(self._resolve(name))
        question.add_done_callback(name.answered)
        return question

    async def _resolve(self, name: _Name) -> None:
        try:
            found = await self._lookup(name.url.host, name.url.port, type=socket.SOCK_STREAM)
        except (OSError, UnicodeError):
            return
        if found:
            name.replace(_in_turns(found)[:_MOST])
            self.peers = self._fixed + [peer for each in self._names for peer in each.peers]


def _is_literal(url: UpstreamUrl) -> bool:
    if url.unix:
        return True
    try:
        ipaddress.ip_address(url.host)
    except ValueError:
        return False
    return True


def _rank(peer: Peer, now: float) -> tuple[float, int]:
    return (peer.out_until if peer.out_until > now else 0.0, peer.load)


def _in_turns(found: Sequence[tuple[Any, ...]]) -> list[str]:
    """Return the hosts of a resolver's answer, its order kept but for families taking turns (RFC 8305 section 4)."""
    hosts = list(dict.fromkeys(str(entry[4][0]) for entry in found))
    first = [host for host in hosts if (":" in host) == (":" in hosts[0])]
    second = [host for host in hosts if host not in first]
    return [host for pair in zip_longest(first, second) for host in pair if host is not None]
