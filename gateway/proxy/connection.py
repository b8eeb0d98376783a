"""One socket to an upstream: requests out, responses in. It decides when it may carry another call.

    idle --carry--> asked --head--> answering --complete--> idle       if clean: rule 2
                      |                 |
                      +-----------------+-- fault, reset, time-out, cancel --> closed

Rules
1. A connection carries one call at a time; bytes that arrive while it carries none close it.
2. It is offered again only after a clean end: the response complete by its framing, keep-alive allowed, the request
   body written in full and out of our buffer, not one byte beyond the response.
3. A body without length or chunked coding ends where the peer says so (FIN, or close_notify under TLS: RFC 9112
   section 9.8). Every other end of a connection inside a response is a broken response.
4. The final head has one deadline from the request's last octet that moved on; interim heads do not put it off.
5. A connection closes by abort: everything worth reading has been read. close_notify would protect the reader of a
   request from truncation, and no request ends by it.
6. It works off no more than about `WORK` of a response at a time, however much has come; then others have their turn.
   While the call is paused nothing is worked off.
"""

from __future__ import annotations

import asyncio
import select
import ssl
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final, cast

from gateway.proxy.failure import Failure, FailureKind
from gateway.proxy.response import Response

if TYPE_CHECKING:
    from gateway.proxy.addresses import Peer
    from gateway.proxy.call import Call
    from gateway.proxy.pool import Pool

__all__ = ["WORK", "Connection"]

_NEVER: Final = float("inf")

#: Events of the parser and reads, and 4 KiB pieces of what was read, that are worked off before others have their turn.
WORK: Final = 256
#: Octets parsed at once: at first, where chunks are large, and where they are so small that their number is the work.
_SLICE: Final = 16 * 1024
_WIDE: Final = 64 * 1024
_DENSE: Final = 4 * 1024
#: How large those are on average.
_SMALL: Final = 64


class Connection(asyncio.Protocol):
    """A connection of a pool. `deadline` is loop time: of the call it carries, or of its idleness."""

    __slots__ = (
        "_choked", "_finished", "_home", "_loop", "_response", "_resting", "_reused", "_slice", "_spare", "_time",
        "_transport", "_unfed", "_work", "_write", "call", "deadline", "peer",
    )  # fmt: skip

    def __init__(self, home: Pool, peer: Peer, loop: asyncio.AbstractEventLoop) -> None:
        self._home = home
        self._loop = loop
        self.peer = peer
        self.call: Call | None = None
        self.deadline = _NEVER
        self._time = loop.time
        self._response: Response | None = None
        #: The response before, whose parser the next one can use.
        self._spare: Response | None = None
        self._reused = self._choked = self._finished = False
        #: Whether we do not read although the call may not be paused; what waits meanwhile; what was worked off.
        self._resting = False
        self._unfed = b""
        self._work = 0
        self._slice = _SLICE

    # What the pool asks

    @property
    def closing(self) -> bool:
        """True if it can carry nothing any more, whether or not the socket is closed yet."""
        return self._transport.is_closing()

    def readable(self) -> bool:
        """Return whether the kernel holds something for us: on an idle connection a close, or what must close it.

        Asked before a request that may not be repeated; the loop would hear of it only after the request was sent.
        """
        poll = select.poll()
        poll.register(self._transport.get_extra_info("socket").fileno(), select.POLLIN)
        return bool(poll.poll(0))

    def carry(self, call: Call, now: float) -> None:
        """Send `call`, with what of its body is already there, and read its response."""
        self.call = call
        self._response = None
        call.carrier = self
        head = call.head(self.peer.prefix, self.peer.authority)
        self._write(b"".join((head, *call.held)) if call.held else head)
        if not self._reused or not call.idempotent or call.retried:
            call.forget()
        self._reused = True
        self.deadline = min(now + call.first_byte, call.total_at)
        if not call.sent:
            call.sent = True
            call.receiver.on_sent()
        if not call.writable and not self._choked:
            call.tell(writable=True)
        if call.paused and self.call is call:
            self.pause()

    def expire(self, now: float) -> None:
        """Fail the call, or end the idleness: the deadline has passed."""
        call = self.call
        if call is None:
            self.close()
        elif now >= call.total_at:
            self.fail(FailureKind.TOTAL_TIMEOUT, "the upstream took longer than total_timeout")
        elif self._response is not None and self._response.status:
            self.fail(FailureKind.IDLE_TIMEOUT, "the upstream stopped in the middle of a response")
        else:
            self.fail(FailureKind.FIRST_BYTE_TIMEOUT, "the upstream did not begin to respond in time")

    def close(self) -> None:
        """Close the socket now; `lost` follows."""
        self.deadline = _NEVER
        self._transport.abort()

    def fail(self, kind: FailureKind, detail: str) -> None:
        """End the call that is carried, if any, and the connection with it."""
        call = self._detach()
        self.close()
        if call is not None:
            self._home.ended(self, call)
            call.close().on_failed(Failure(kind, detail, self.peer.name))

    # What the call asks

    def send(self, parts: Sequence[bytes]) -> None:
        """Write a piece of the request body."""
        transport = self._transport
        if transport.is_closing():
            return
        if len(parts) == 1:
            transport.write(parts[0])
        else:
            transport.writelines(parts)
        self._moved()

    def pause(self) -> None:
        """Stop reading; only the total time-out runs on."""
        self._transport.pause_reading()
        if self.call is not None:
            self.deadline = self.call.total_at

    def resume(self) -> None:
        """Read on, behind what waits."""
        if self._resting:
            self._loop.call_soon(self._go_on)
        else:
            self._transport.resume_reading()
        self._moved()

    def drop(self) -> None:
        """Close, because the call was cancelled: nobody reads this response any more."""
        call = self._detach()
        self.close()
        if call is not None:
            self._home.ended(self, call)

    # What the transport tells

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep the transport; the pool learns of the connection from the attempt that made it."""
        self._transport = cast("asyncio.Transport", transport)
        self._write = self._transport.write

    def data_received(self, data: bytes) -> None:
        """Read the next octets of the response."""
        call = self.call
        if call is None:
            self.close()
            return
        if self._resting:
            self._unfed += data
        elif self._take(call, data):
            self._resting = True
            self._transport.pause_reading()
            self._loop.call_soon(self._go_on)

    def eof_received(self) -> None:
        """Close, as the peer did. `connection_lost` follows at once, whatever is left in our write buffer."""
        self._take_all()
        self._finished = self._said_goodbye()
        self._transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        """End the call, if there is one, or start it again on a new connection."""
        self._take_all()
        if self._spare is not None:
            self._spare.mute()
            self._spare = None
        call, response = self.call, self._response
        if call is not None:
            if response is None:
                self._unanswered(call)
            elif response.until_close and self._finished and exc is None:
                self._finish(call, response)
            elif exc is not None:
                self.fail(FailureKind.RESET, "the upstream reset the connection in the middle of a response")
            else:
                self.fail(FailureKind.TRUNCATED, "the upstream closed the connection in the middle of a response")
        self._home.lost(self)

    def pause_writing(self) -> None:
        """Stop the request body: our write buffer is full."""
        self._choked = True
        if self.call is not None:
            self.call.tell(writable=False)

    def resume_writing(self) -> None:
        """Let the request body go on: the upstream has read most of what it was sent."""
        self._choked = False
        if self.call is not None:
            self._moved()
            self.call.tell(writable=True)

    # The response

    def _take(self, call: Call, data: bytes, *, whole: bool = False) -> bool:
        """Work `data` off; return whether others should have their turn before more, or the rest of it, is."""
        response = self._response
        if response is None:
            response = self._response = self._begun(call)
            self._slice = _SLICE
            if call.keeping:
                call.forget()
        at, end = 0, len(data)
        while at < end and (whole or not (self._work > WORK or call.paused)):
            at += self._feed(response, data, at)
            if self.call is not call:
                return False
            if response.complete:
                # One octet beyond it is too many (rule 2).
                response.keep = response.keep and at == end
                self._finish(call, response)
                return False
            if response.fault:
                self.fail(FailureKind.PROTOCOL, response.fault)
                return False
        # The head is awaited as long as the first octet is; heads in front of it give it no more time.
        if response.status and not call.paused:
            self._arm(self._home.idle_timeout)
        if at < end:
            self._unfed = data[at:]
            self._resting = True
        return self._work > WORK

    def _begun(self, call: Call) -> Response:
        """Return what reads the response to `call`: a parser is a good part of what a small response costs."""
        response, self._spare = self._spare, None
        if response is None:
            return Response(call.receiver, call.method)
        response.begin(call.receiver, call.method)
        return response

    def _feed(self, response: Response, data: bytes, at: int) -> int:
        """Feed the next slice of `data`; return its size."""
        size = self._slice if response.parsing else len(data)
        piece = data[at : at + size] if at or size < len(data) else data
        size = len(piece)
        before = response.work
        response.feed(piece)
        events = response.work - before
        self._slice = _DENSE if events * _SMALL > size else _WIDE if events * _SLICE < 4 * size else _SLICE
        self._work += 1 + events + (size >> 12)
        return size

    def _go_on(self) -> None:
        """Take what waits, then read on: others had their turn."""
        call = self.call
        self._work = 0
        if call is None or call.paused or not self._resting:
            return
        data, self._unfed = self._unfed, b""
        if self._take(call, data):
            self._loop.call_soon(self._go_on)
        elif self.call is call and not call.paused:
            self._resting = False
            self._transport.resume_reading()

    def _take_all(self) -> None:
        """Take what waits: nothing comes behind it."""
        data, self._unfed = self._unfed, b""
        if data and self.call is not None:
            self._take(self.call, data, whole=True)

    # How it ends

    def _unanswered(self, call: Call) -> None:
        if call.keeping and self._home.repeat(self, call):
            self._detach()
        else:
            self.fail(FailureKind.RESET, "the upstream closed the connection before it responded")

    def _said_goodbye(self) -> bool:
        """Return whether the end is the peer's own word: any FIN, but under TLS its close_notify, which none can forge.

        uvloop tells of no other end; asyncio's loop does of a bare FIN too, and then a read would have to wait.
        """
        tls = self._transport.get_extra_info("ssl_object")
        try:
            return tls is None or not tls.read(1)
        except ssl.SSLError:
            return False

    def _finish(self, call: Call, response: Response) -> None:
        clean = response.keep and call.ended and not self._transport.is_closing()
        if clean and call.body_written:
            clean = not self._transport.get_write_buffer_size()
        if call.paused:
            self._transport.resume_reading()
        if clean and response.reusable:
            response.leave()
            self._spare, self._response = response, None
        self._detach()
        receiver = call.close()
        if clean:
            self._home.released(self, call)
        else:
            self.close()
            self._home.ended(self, call)
        receiver.on_done()

    def _detach(self) -> Call | None:
        call, response = self.call, self._response
        self.call = self._response = None
        if response is not None:
            response.mute()
        self._unfed = b""
        if self._resting:
            self._resting = False
            if not self._transport.is_closing():
                self._transport.resume_reading()
        return call

    # The clock

    def _arm(self, timeout: float) -> None:
        self.deadline = self._time() + timeout
        call = self.call
        if call is not None and self.deadline > call.total_at:
            self.deadline = call.total_at

    def _moved(self) -> None:
        """Octets went our way: a request body in motion is no silence of the upstream's."""
        call = self.call
        if call is not None and not call.paused:
            answering = self._response is not None and self._response.status
            self._arm(self._home.idle_timeout if answering else call.first_byte)
