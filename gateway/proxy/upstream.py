"""A service behind us, from one section of gateway.toml: its addresses, its pool of connections, the calls made to it.

This is the whole interface for the exchange; what it is made of, from the wire up: `response` parses, `connection` owns
a socket, `addresses` knows where, `dial` gets there, `pool` shares, `call` is the handle of one request.
"""

from __future__ import annotations

import asyncio
import math
from dataclasses import dataclass

from gateway.config.sections import UpstreamSection
from gateway.proxy.addresses import Addresses
from gateway.proxy.call import Call, Caller, Headers, Receiver
from gateway.proxy.dial import tls_context
from gateway.proxy.failure import Failure, FailureKind
from gateway.proxy.leg import Place
from gateway.proxy.pool import Limits, Pool
from policies.charge import Memo, ShareCharge
from policies.units import SECOND, Micros

__all__ = ["AddressStats", "Call", "Failure", "FailureKind", "Headers", "Receiver", "Stats", "Upstream"]


@dataclass(frozen=True, slots=True)
class AddressStats:
    """One peer now: connections idle, calls outstanding, and whether it is out after failures to connect."""

    idle: int
    active: int
    out: bool


@dataclass(frozen=True, slots=True)
class Stats:
    """An upstream now: connections idle, active and being made, calls in line; `repeated` counts since the start."""

    idle: int
    active: int
    connecting: int
    waiting: int
    repeated: int
    by_address: dict[str, AddressStats]


class Upstream(Caller):
    """Made and used on one loop, which is the running one unless given."""

    __slots__ = ("_connect", "_context", "_first_byte", "_loop", "_pool", "_total", "name")

    def __init__(self, name: str, section: UpstreamSection, loop: asyncio.AbstractEventLoop | None = None) -> None:
        self.name = name
        self._loop = loop or asyncio.get_running_loop()
        self._connect = _seconds(section.connect_timeout)
        self._first_byte = _seconds(section.first_byte_timeout)
        self._total = _seconds(section.total_timeout)
        limits = Limits(
            connections=section.max_connections,
            seats=min(section.concurrency or section.max_connections, section.max_connections),
            connect_timeout=self._connect,
            idle_timeout=_seconds(section.idle_timeout),
            keepalive_timeout=_seconds(section.keepalive_timeout),
            retry_budget=section.retry_budget,
        )
        tls = any(url.tls for url in section.addresses)
        self._context = tls_context(section.ca_file or None) if tls else None
        self._pool = Pool(limits, Addresses(section.addresses, self._loop), self._context, self._loop)

    def call(  # noqa: PLR0913 - a request line, its fields and its framing
        self,
        method: bytes,
        target: bytes,
        fields: bytes,
        length: int | None,
        receiver: Receiver,
        *,
        idempotent: bool,
        host: bytes | None = None,
        body: bytes = b"",
        first_byte_timeout_us: Micros | None = None,
        share: ShareCharge | None = None,
        memo: Memo | None = None,
    ) -> Call:
        """Send a request as soon as a connection is there, and its response to `receiver`.

        `target` is the origin-form target after `strip_prefix`; the path of the chosen address is prefixed here.
        `fields` are lines of end-to-end fields only, as they are written: Host, Connection, Content-Length and
        Transfer-Encoding are written here. `host` is the Host field, None for the authority of the chosen address.
        `length` is the size of the body, 0 for none, None for a chunked one. `body` is what of it is already there (one
        write with the head). `idempotent` allows one repetition on a new connection if a kept one turns out closed. The
        time-out replaces `[upstream] first_byte_timeout`, for a route that has its own: it runs from the head being
        written, and again from every piece of the request body, until the response head is complete. `share` says whose
        seat it takes and at which weight (`seats`); all calls without one are of one tenant. `memo` is that of the plan
        whose share it is, to find the tenant's seats by.
        """
        first_byte = self._first_byte if first_byte_timeout_us is None else _seconds(first_byte_timeout_us)
        total_at = self._loop.time() + self._total if self._total != math.inf else math.inf
        call = Call(self._pool, receiver, method, target, fields, host, length, idempotent, first_byte, total_at)
        if body:
            call.write(body)
        self._pool.submit(call, share, memo)
        return call

    async def place(self) -> Place | None:
        """Return where to connect to for what is no call, None if the name does not resolve in time.

        Such a connection is nobody's but the caller's: no limit of the pool counts it.
        """
        addresses = self._pool.addresses
        try:
            async with asyncio.timeout(self._connect):
                await addresses.ready()
        except TimeoutError:
            return None
        peer = addresses.choose(self._loop.time())
        if peer is None:
            return None
        url = peer.url
        return Place(
            peer.host,
            peer.port,
            url.unix,
            peer.prefix,
            peer.authority,
            self._context if url.tls else None,
            url.host if url.tls else None,
            self._connect,
            self._first_byte,
        )

    def stats(self) -> Stats:
        """Return what there is now."""
        pool = self._pool
        now = self._loop.time()
        active = sum(connection.call is not None for connection in pool.connections)
        return Stats(
            idle=len(pool.connections) - active,
            active=active,
            connecting=pool.connecting,
            waiting=pool.waiting,
            repeated=pool.repeated,
            by_address={
                each.name: AddressStats(len(each.idle), each.load, each.out_until > now)
                for each in pool.addresses.peers
            },
        )

    def close(self) -> None:
        """Take no new calls and close what is idle; what runs or waits comes to its own end (a reload, a drain)."""
        self._pool.close()

    def abort(self) -> None:
        """End every call now, with `closed`."""
        self._pool.abort()

    async def wait_closed(self) -> None:
        """After `close` or `abort`: wait until the last socket is closed."""
        await self._pool.wait_closed()


def _seconds(duration: Micros) -> float:
    """Return a configured duration in seconds of loop time; 0 is none."""
    return duration / SECOND if duration else math.inf
