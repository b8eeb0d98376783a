"""Making a connection. The border where errors of sockets, resolvers and TLS become a `Failure`."""

from __future__ import annotations

import asyncio
import errno
import ssl
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from gateway.proxy.addresses import Addresses, Peer
from gateway.proxy.connection import Connection
from gateway.proxy.failure import Failure, FailureKind

__all__ = ["Dialler", "NotConnectedError", "tls_context"]


#: What the system's word for a connection that cannot be made means; callers are told it, so it names no place.
_NO_CONNECTION = {
    errno.ECONNREFUSED: "the upstream refused the connection",
    errno.ENOENT: "the upstream's socket is not there",
    errno.EHOSTUNREACH: "the upstream is unreachable",
    errno.ENETUNREACH: "the upstream is unreachable",
    errno.EACCES: "the gateway is not allowed to connect to the upstream",
    errno.EPERM: "the gateway is not allowed to connect to the upstream",
}


class NotConnectedError(Exception):
    """There is no connection, and why."""

    def __init__(self, failure: Failure) -> None:
        super().__init__(failure.detail)
        self.failure = failure


def tls_context(ca_file: Path | None) -> ssl.SSLContext:
    """Return what verifies an https upstream: its certificate, its name, TLS 1.2 or newer.

    With `ca_file` only the authorities in it are trusted, as with nginx's proxy_ssl_trusted_certificate.
    """
    context = ssl.create_default_context(cafile=ca_file)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.set_alpn_protocols(["http/1.1"])
    return context


@dataclass(frozen=True, slots=True)
class Dialler:
    """Makes connections to the peers of one upstream; `make` returns the protocol of a new one."""

    addresses: Addresses
    make: Callable[[Peer], Connection]
    context: ssl.SSLContext | None
    loop: asyncio.AbstractEventLoop

    async def connect(self, until: float, first: Peer | None) -> Connection:
        """Try `first` and then the other peers, each with an even part of the time left until `until` (loop time).

        Raises NotConnectedError with the last failure; cancelled, it leaves no socket behind.
        """
        addresses, clock = self.addresses, self.loop.time
        failure = await self._resolved(until)
        tried: list[Peer] = []
        while (peer := first or addresses.choose(clock(), tried)) is not None:
            first = None
            share = (until - clock()) / max(len(addresses.peers) - len(tried), 1)
            tried.append(peer)
            found = await self._try(peer, clock() + share)
            if isinstance(found, Connection):
                peer.succeeded()
                return found
            failure = found
            peer.failed(clock())
            addresses.refresh(clock(), failed=True)
        raise NotConnectedError(failure)

    async def _resolved(self, until: float) -> Failure:
        """Wait for the peers; return what it means if there are none."""
        try:
            async with asyncio.timeout_at(until):
                await self.addresses.ready()
        except TimeoutError:
            return _too_slow("")
        return Failure(FailureKind.DNS, "the upstream's name does not resolve")

    async def _try(self, peer: Peer, until: float) -> Connection | Failure:
        peer.load += 1
        try:
            async with asyncio.timeout_at(until):
                return await self._dial(peer)
        except ssl.SSLError as error:
            return _tls(peer, error.reason or "the handshake failed")
        except TimeoutError:  # ours, or what the kernel says of a peer that never answers
            return _too_slow(peer.name)
        except OSError as error:
            if peer.url.tls and isinstance(error, ConnectionAbortedError | ConnectionResetError):
                return _tls(peer, "the connection was closed")
            why = _NO_CONNECTION.get(error.errno or 0, "no connection to the upstream could be made")
            return Failure(FailureKind.REFUSED, why, peer.name)
        finally:
            peer.load -= 1

    async def _dial(self, peer: Peer) -> Connection:
        loop, url = self.loop, peer.url
        if url.unix:
            return (await loop.create_unix_connection(lambda: self.make(peer), url.unix))[1]
        context, name = (self.context, url.host) if url.tls else (None, None)
        return (
            await loop.create_connection(
                lambda: self.make(peer), peer.host, peer.port, ssl=context, server_hostname=name
            )
        )[1]


def _tls(peer: Peer, reason: str) -> Failure:
    return Failure(FailureKind.TLS, f"the TLS handshake with the upstream failed: {reason}", peer.name)


def _too_slow(address: str) -> Failure:
    return Failure(FailureKind.CONNECT_TIMEOUT, "the upstream took longer than connect_timeout to connect", address)
