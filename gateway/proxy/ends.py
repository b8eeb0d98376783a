"""Two ends of a connection that asyncio has no word for: one that the peer made and nobody was told of, and a reset.

Rules
1. Nothing here closes anything; who asks decides what follows.
"""

from __future__ import annotations

import asyncio
import contextlib
import select
import socket
import struct

__all__ = ["close_by_reset", "hung_up"]

#: On, and no seconds to wait: closing discards what was not sent, and says so by RST.
_AT_ONCE = struct.pack("ii", 1, 0)


def hung_up(transport: asyncio.Transport) -> bool:
    """Return whether the peer has reset the connection; a loop that does not read hears of it only by writing."""
    poll = select.poll()
    poll.register(transport.get_extra_info("socket").fileno(), 0)
    return bool(poll.poll(0))


def close_by_reset(transport: asyncio.Transport) -> None:
    """Let the connection end by RST once it is closed; nothing where there is no such end (a unix socket)."""
    with contextlib.suppress(OSError):
        transport.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _AT_ONCE)
