"""Who is at the other end of a connection: what accept(2) said, which a reset before that does not take away.

Rules
1. `unix` is the peer of a unix socket and of nothing else: an operator may trust it.
2. A loop that accepts without asking who came can only ask the socket, which does not know any more once the other end
   has reset it. Then there is no peer, and the connection is not served.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket

from gateway.proxy.address import UNIX

__all__ = ["named", "peer_of"]


def named(connection: socket.socket, name: object) -> str:
    """Return the peer of a connection, given what accept(2) called it; "" if that says nothing."""
    return UNIX if connection.family == socket.AF_UNIX else _host(name)


def peer_of(transport: asyncio.BaseTransport) -> str:
    """Return the peer of a connection that a loop has accepted; "" if nobody can tell."""
    connection: socket.socket | None = transport.get_extra_info("socket")
    name: object = transport.get_extra_info("peername")  # asyncio's own loop keeps what accept said
    if connection is None:
        return _host(name)
    with contextlib.suppress(OSError):
        name = connection.getpeername()
    return named(connection, name)


def _host(name: object) -> str:
    return str(name[0]) if isinstance(name, tuple) and name else ""
