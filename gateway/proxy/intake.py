"""What one connection has received and nobody has taken yet: octets go on in slices, and reading rests in between.

Rules
1. Nothing is taken while anything bars it: whoever is to take it is busy, or cannot write what it would be answered.
2. Of what is many small pieces, little is taken at a time; then others have their turn of the loop.
3. While something waits here, or something bars, nothing is read.
4. Whoever takes nothing of what waits to be written to it, for `STALL_SECONDS`, is cut off.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

__all__ = ["STALL_SECONDS", "Governed", "Intake", "with_one_pong"]

#: How long a peer may take nothing of what waits for it (the guard's `STALL_US`).
STALL_SECONDS = 60.0

#: Octets taken at a time, at least and at most, and how large a piece is that nobody minds.
_LEAST, _MOST = 1024, 64 * 1024
_SMALL = 64
_TURN, _WRITING = "turn", "writing"

_PONG = b"\x8a"


class Intake:
    """`take` works octets off and returns how many pieces they were."""

    __slots__ = ("_barred", "_held", "_loop", "_size", "_take", "_timer", "_transport", "_untaken")

    def __init__(self, loop: asyncio.AbstractEventLoop, take: Callable[[bytes], int]) -> None:
        self._loop = loop
        self._take = take
        self._transport: asyncio.Transport | None = None
        self._barred: set[str] = set()
        self._held = b""
        self._size = _LEAST
        self._timer: asyncio.TimerHandle | None = None
        self._untaken = 0

    def attach(self, transport: asyncio.Transport) -> None:
        """Begin to govern the reading of `transport`."""
        self._transport = transport

    def feed(self, data: bytes) -> None:
        """Take what was received, or keep it for later."""
        if self._barred:
            self._held += data
        else:
            self._work(data)

    def flush(self) -> None:
        """Take all that waits: nothing comes behind it."""
        data, self._held = self._held, b""
        if data:
            self._take(data)

    def bar(self, why: str) -> None:
        """Take and read nothing, until `unbar`."""
        self._barred.add(why)
        if self._transport is not None and not self._transport.is_closing():
            self._transport.pause_reading()

    def unbar(self, why: str) -> None:
        """Go on, if nothing else bars it."""
        if why in self._barred:
            self._barred.discard(why)
            if not self._barred:
                # Not now: whoever calls may be in the middle of a piece, and others wait.
                self._barred.add(_TURN)
                self._loop.call_soon(self._go_on)

    def choke(self) -> None:
        """Note that the peer does not take what is written to it."""
        self.bar(_WRITING)
        self._watch()

    def unchoke(self) -> None:
        """Note that it has caught up."""
        self.leave()
        self.unbar(_WRITING)

    def leave(self) -> None:
        """Watch no longer."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _watch(self) -> None:
        transport = self._transport
        if transport is None:
            return
        untaken = transport.get_write_buffer_size()
        if self._timer is not None and untaken == self._untaken:
            self._timer = None
            transport.abort()
            return
        self._untaken = untaken
        self._timer = self._loop.call_later(STALL_SECONDS, self._watch)

    def _work(self, data: bytes) -> None:
        at, end, pieces = 0, len(data), 0
        while at < end and not self._barred and pieces * _SMALL < _LEAST:
            slice_ = data[at : at + self._size] if at or end > self._size else data
            at += len(slice_)
            pieces = self._take(slice_)
            dense = pieces * _SMALL > len(slice_)
            self._size = _LEAST if dense else min(4 * self._size, _MOST)
        self._held = data[at:] + self._held
        if self._held or pieces * _SMALL >= _LEAST:
            self.bar(_TURN)
            self._loop.call_soon(self._go_on)

    def _go_on(self) -> None:
        self._barred.discard(_TURN)
        if self._barred or self._transport is None or self._transport.is_closing():
            return
        data, self._held = self._held, b""
        if data:
            self._work(data)
        if not self._barred:
            self._transport.resume_reading()


class Governed(asyncio.Protocol):
    """Goes before a protocol class that reads, and gives it octets by way of an intake.

    Whoever is made of it sets `_intake` to one that takes by `_take`, and counts pieces in `_pieces` as they are read.
    """

    _intake: Intake
    _pieces = 0

    def data_received(self, data: bytes) -> None:
        """Take frames, in turns."""
        self._intake.feed(data)

    def _take(self, data: bytes) -> int:
        self._pieces = 0
        super().data_received(data)
        return self._pieces

    def eof_received(self) -> None:
        """Take what is left."""
        self._intake.flush()
        super().eof_received()

    def pause_writing(self) -> None:
        """Read nothing either: answers to what is read would only wait."""
        super().pause_writing()
        self._intake.choke()

    def resume_writing(self) -> None:
        """Read on."""
        super().resume_writing()
        self._intake.unchoke()


def with_one_pong(writes: Sequence[bytes]) -> list[bytes]:
    """Return frames to be written, of pongs only the last, and that first (RFC 6455 section 5.5.3)."""
    pongs = [one for one in writes if one[:1] == _PONG]
    return pongs[-1:] + [one for one in writes if one[:1] != _PONG]
