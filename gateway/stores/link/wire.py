"""One connection to one server: commands out, each reply to whoever asked for it.

Rules
1. Replies come in the order of the commands, so what waits is a queue, and every reply takes exactly one from its
   front, also where nobody wants it any more. A connection on which that may not hold is never used again.
2. Whoever waits is told once: by its reply, or that the connection is gone.
3. A server that has said nothing for `stall` seconds while somebody waits is given up, and the connection with it.
4. What waits is bounded; the bound is the sender's to respect (`full`).

    made --greet()--> greeted --...--> dropped (by us, by the peer, by silence, by octets that are no reply)
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from typing import Protocol, cast

from gateway.stores.link.faults import ErrorReply, StoreFault, of_reply
from gateway.stores.link.resp import Parser, ProtocolError, encode
from gateway.stores.link.tally import Tally

__all__ = ["MOST_OUTSTANDING", "Step", "Taker", "Wire", "once_read"]

#: Commands that may wait for their replies on one connection.
MOST_OUTSTANDING = 1_000


def once_read(loop: asyncio.AbstractEventLoop, callback: Callable[..., object], *args: object) -> None:
    """Call back once what has arrived by now has been read.

    A loop busy within one read finds timers due whose replies lie in another socket, and uvloop runs timers first. A
    slow gateway must not take a store for one.
    """
    loop.call_soon(loop.call_soon, callback, *args)


class Taker(Protocol):
    """Who waits for a reply."""

    def replied(self, reply: object) -> None:
        """Take the reply: int, bytes, None, a list of these, or an `ErrorReply`."""
        ...

    def lost(self, fault: StoreFault) -> None:
        """Learn that the connection is gone; whether the command has run is not known."""
        ...


class Step:
    """A taker that hands on whatever comes, reply or fault, to one function."""

    __slots__ = ("_done",)

    def __init__(self, done: Callable[[object], None]) -> None:
        self._done = done

    def replied(self, reply: object) -> None:
        """Hand it on."""
        self._done(reply)

    def lost(self, fault: StoreFault) -> None:
        """Hand it on."""
        self._done(fault)


class Wire(asyncio.Protocol):
    """A connection. `born` is the loop time at which it was made, `fault` why it is closed, None while it is not.

    `scripts` are the digests of those that have been sent on it.
    """

    __slots__ = ("_heard", "_loop", "_lost", "_parser", "_pending", "_stall", "_tally", "_timer", "_transport", "born",
                 "fault", "scripts")  # fmt: skip

    def __init__(self, tally: Tally, stall: float, lost: Callable[[Wire, StoreFault], None]) -> None:
        self._loop = asyncio.get_running_loop()
        self._tally = tally
        self._stall = stall
        self._lost = lost
        self._parser = Parser()
        #: Who waits, the longest first, and since when.
        self._pending: deque[tuple[float, Taker]] = deque()
        self._heard = self.born = self._loop.time()
        self._timer: asyncio.TimerHandle | None = None
        self._transport: asyncio.Transport | None = None
        self.fault: StoreFault | None = None
        self.scripts: set[bytes] = set()

    @property
    def closed(self) -> bool:
        """True once it is of no use any more."""
        return self.fault is not None

    @property
    def outstanding(self) -> int:
        """Commands that wait for their replies."""
        return len(self._pending)

    @property
    def full(self) -> bool:
        """True if no more may wait."""
        return len(self._pending) >= MOST_OUTSTANDING

    def send(self, command: bytes, taker: Taker) -> None:
        """Send an encoded command, whose reply is the taker's."""
        if self._transport is None or self.fault is not None:
            taker.lost(self.fault or StoreFault("down", "the connection is not made yet"))
            return
        now = self._loop.time()
        self._pending.append((now, taker))
        self._tally.commands += 1
        if self._timer is None:
            self._timer = self._loop.call_at(now + self._stall, self._listen)
        self._transport.write(command)

    def request(self, words: Sequence[bytes]) -> asyncio.Future[object]:
        """Send a command and return what its reply will be, or the fault that the connection was lost with."""
        future: asyncio.Future[object] = self._loop.create_future()
        self.send(encode(words), Step(lambda reply: None if future.done() else future.set_result(reply)))
        return future

    def drop(self, fault: StoreFault) -> None:
        """Close at once; everybody who waits learns of it, then the owner. Calling it twice does nothing."""
        if self.fault is not None:
            return
        self.fault = fault
        if self._timer is not None:
            self._timer.cancel()
        if self._transport is not None:
            self._transport.abort()
        pending, self._pending = self._pending, deque()
        for _, taker in pending:
            self._guarded(taker.lost, fault)
        self._lost(self, fault)

    # What asyncio calls

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin."""
        self._transport = cast("asyncio.Transport", transport)
        if self.closed:
            self._transport.abort()

    def data_received(self, data: bytes) -> None:
        """Hand every complete reply to the one who has waited longest."""
        self._heard = self._loop.time()
        try:
            replies = self._parser.feed(data)
        except ProtocolError as error:
            self.drop(StoreFault("protocol", f"the store sent what is no reply: {error}"))
            return
        for reply in replies:
            if self.closed:
                return
            if not self._pending:
                self.drop(_unasked(reply))
                return
            self._guarded(self._pending.popleft()[1].replied, reply)

    def connection_lost(self, exc: Exception | None) -> None:
        """End."""
        self.drop(StoreFault("reset", "the connection to the store was lost"))

    def _listen(self) -> None:
        once_read(self._loop, self._listened)

    def _listened(self) -> None:
        """Give up on a peer that keeps us waiting in silence."""
        self._timer = None
        if not self._pending or self.fault is not None:
            return
        at = max(self._pending[0][0], self._heard) + self._stall
        if at > self._loop.time():
            self._timer = self._loop.call_at(at, self._listen)
        else:
            self.drop(StoreFault("timeout", "the store holds the connection and says nothing"))

    def _guarded(self, function: Callable[[object], None] | Callable[[StoreFault], None], what: object) -> None:
        """Call back; a callback that fails is a bug of its owner, and must not cost the others their replies."""
        try:
            cast("Callable[[object], None]", function)(what)
        except Exception as error:  # noqa: BLE001 - whatever it is, it is reported
            self._loop.call_exception_handler({"message": "a callback of the store's link failed", "exception": error})


def _unasked(reply: object) -> StoreFault:
    """Return what it means that a reply came which nobody waits for; a full server says so before it is asked."""
    if isinstance(reply, ErrorReply):
        return of_reply(reply)
    return StoreFault("protocol", "the store sent a reply that nobody had asked for")
