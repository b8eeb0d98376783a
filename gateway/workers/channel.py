"""The pipe between a parent and one of its workers: messages of any length, both ways, over a socket pair.

Rules
1. A message is its length in four octets and its octets. Who reads it knows who wrote it: a parent writes pickles,
   which hold a configuration as it was checked; a worker, which reads what strangers send, writes JSON.
2. When one side is gone, the other hears of it at once. That is how a worker knows that its parent has died.
"""

from __future__ import annotations

import asyncio
import socket
import struct
from collections.abc import Callable
from typing import cast

__all__ = ["Channel", "read_first"]

_LENGTH = struct.Struct("!I")


class Channel(asyncio.Protocol):
    """One end on a loop. `heard` is given each message, `gone` is called once."""

    def __init__(self, heard: Callable[[bytes], None], gone: Callable[[], None]) -> None:
        self._heard = heard
        self._gone = gone
        self._rest = bytearray()
        self._transport: asyncio.Transport | None = None
        self._written = asyncio.Event()
        self._written.set()

    async def open(self, end: socket.socket) -> None:
        """Begin, over one end of a socket pair."""
        await asyncio.get_running_loop().create_unix_connection(lambda: self, sock=end)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin."""
        self._transport = cast("asyncio.Transport", transport)
        self._transport.set_write_buffer_limits(high=0)

    def data_received(self, data: bytes) -> None:
        """Take octets, and pass on each message that is whole."""
        rest = self._rest
        rest += data
        start = 0
        while len(rest) - start >= _LENGTH.size:
            (length,) = _LENGTH.unpack_from(rest, start)
            end = start + _LENGTH.size + length
            if len(rest) < end:
                break
            self._heard(bytes(rest[start + _LENGTH.size : end]))
            start = end
        del rest[:start]

    def pause_writing(self) -> None:
        """Note that something waits to be written."""
        self._written.clear()

    def resume_writing(self) -> None:
        """Note that nothing does."""
        self._written.set()

    def connection_lost(self, exc: Exception | None) -> None:
        """Tell that the other side is gone, or this one has closed."""
        self._written.set()
        self._transport = None
        self._gone()

    def send(self, message: bytes) -> None:
        """Send a message; to nobody if the other side is gone."""
        if self._transport is not None and not self._transport.is_closing():
            self._transport.write(_LENGTH.pack(len(message)) + message)

    @property
    def idle(self) -> bool:
        """True if everything sent so far has been taken by the system."""
        return self._written.is_set()

    async def flushed(self) -> None:
        """Wait until that is so."""
        await self._written.wait()

    def close(self) -> None:
        """End it."""
        if self._transport is not None:
            self._transport.close()


def read_first(end: socket.socket) -> bytes:
    """Return the first message, waiting for it, before there is a loop. Raises EOFError if there is none."""
    (length,) = _LENGTH.unpack(_exactly(end, _LENGTH.size))
    return _exactly(end, length)


def _exactly(end: socket.socket, size: int) -> bytes:
    found = bytearray()
    while len(found) < size:
        part = end.recv(size - len(found))
        if not part:
            raise EOFError
        found += part
    return bytes(found)
