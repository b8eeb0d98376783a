"""Making a connection. The border where errors of sockets, resolvers and TLS become a `Failure`."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable
from pathlib import Path

from gateway.proxy.addresses import Addresses, Peer
from gateway.proxy.connection import Connection
from gateway.proxy.failure import Failure, FailureKind

__all__ = ["NotConnectedError", "connect", "tls_context"]


class NotConnectedError(Exception):
    """There is no connection to this peer, and why."""

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


async def connect(
    addresses: Addresses,
    make: Callable[[Peer], Connection],
    context: ssl.SSLContext | None,
    loop: asyncio.AbstractEventLoop,
    until: float,
    first: Peer | None,
) -> Connection:
    """Try `first` and then the other peers, each with an even part of the time left until `until`.

    Raises NotConnectedError with the last failure; cancelled, it leaves no socket behind.
    """
    failure = Failure(FailureKind.DNS, "the upstream's name does not resolve")
    tried: list[Peer] = []
    try:
        async with asyncio.timeout_at(until):
            await addresses.ready()
    except TimeoutError:
        failure = _too_slow("")
    while (peer := first or addresses.choose(loop.time(), tried)) is not None:
        first = None
        now = loop.time()
        share = (until - now) / max(len(addresses.peers) - len(tried), 1)
        tried.append(peer)
        peer.load += 1
        try:
            async with asyncio.timeout_at(now + share):
                connection = await _dial(peer, make, context, loop)
        except NotConnectedError as error:
            failure = error.failure
        except TimeoutError:
            failure = _too_slow(peer.name)
        else:
            peer.succeeded()
            return connection
        finally:
            peer.load -= 1
        peer.failed(loop.time())
        addresses.refresh(loop.time(), failed=True)
    raise NotConnectedError(failure)


async def _dial(
    peer: Peer, make: Callable[[Peer], Connection], context: ssl.SSLContext | None, loop: asyncio.AbstractEventLoop
) -> Connection:
    try:
        if peer.url.unix:
            _, connection = await loop.create_unix_connection(lambda: make(peer), peer.url.unix)
        elif peer.url.tls:
            _, connection = await loop.create_connection(
                lambda: make(peer), peer.host, peer.port, ssl=context, server_hostname=peer.url.host
            )
        else:
            _, connection = await loop.create_connection(lambda: make(peer), peer.host, peer.port)
    except ssl.SSLError as error:
        raise NotConnectedError(_tls(peer, error.reason or "the handshake failed")) from error
    except TimeoutError:
        raise  # an OSError too; also what the kernel says of a peer that never answers
    except OSError as error:
        if peer.url.tls and isinstance(error, ConnectionAbortedError | ConnectionResetError):
            raise NotConnectedError(_tls(peer, "the connection was closed")) from error
        raise NotConnectedError(Failure(FailureKind.REFUSED, "no connection to the upstream", peer.name)) from error
    return connection


def _tls(peer: Peer, reason: str) -> Failure:
    return Failure(FailureKind.TLS, f"the TLS handshake with the upstream failed: {reason}", peer.name)


def _too_slow(address: str) -> Failure:
    return Failure(FailureKind.CONNECT_TIMEOUT, "the upstream took longer than connect_timeout to connect", address)
