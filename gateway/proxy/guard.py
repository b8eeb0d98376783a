"""The wire, guarded: uvicorn's httptools protocol with the framing, the deadlines and the closing of an edge server.

This is the one place that touches uvicorn's internals (version pinned in pyproject.toml). What a request becomes is a
subclass's: it returns a `Turn` for each head.

    IDLE --first octet--> HEAD --head complete--> BODY --message complete--> IDLE
      any of them --fault, deadline, or an answer that closes--> LINGER --end of input, or 2 s--> closed

Rules
1. Requests are begun only after all octets already received have parsed. A fault behind a good request in the same
   octets takes both: what cannot be framed is not passed on in part.
2. A head is frozen when it is complete. Trailers are read, bounded, and dropped.
3. `max_header_bytes` and `max_headers` hold while a head is being received, not once it is complete.
4. The head has `header_timeout`, counted from its first octet (a new connection's from its start); each further 16 KiB
   of a body, or its end, `body_timeout`, which stands still while we do not read; an idle connection
   `keepalive_timeout`. A request under way has no deadline here: the upstream's are.
5. When we close, our sending side closes first, and what still arrives is discarded for at most 2 s: an answer is not
   lost to a reset.
6. Every fault is answered with a problem and counted. A socket above `max_connections_per_address` is closed
   unanswered and counted.
7. Half a close is no goodbye: a caller that closes its sending side still gets its answer. Whether it is gone
   altogether shows when something is written: so a 100 is, which every client of HTTP/1.1 skips.
8. Answers leave in the order of their requests; at most `AHEAD` requests are read ahead.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Any, Protocol

import httptools
from uvicorn.config import Config
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol
from uvicorn.server import ServerState

from gateway.ports import Rejection
from gateway.proxy.address import UNIX
from gateway.proxy.answer import Answer
from gateway.proxy.deadlines import Deadlines
from gateway.proxy.parse import Head
from policies.units import SECOND, Micros

__all__ = ["AHEAD", "Guard", "Limits", "Post", "Turn"]

#: Requests read ahead of the one being answered.
AHEAD = 16
#: Octets of a request body that must arrive within each `body_timeout`.
BODY_STRIDE = 16 * 1024
#: Octets of trailers and chunk sizes beside a body, beyond what the body itself excuses.
MAX_OVERHEAD = 64 * 1024
#: How long an answered caller may still send before the connection is cut.
LINGER_US: Micros = 2 * SECOND
#: How long an idle connection stays open once the server stops: for a request that is already on its way.
LAST_CALL_US: Micros = SECOND // 2

_MALFORMED = Rejection(400, "bad-framing", "The request is not well-formed HTTP/1.1.")
_OLD = Rejection(400, "bad-framing", "HTTP/0.9 is not spoken here.")
_PARTIAL = Rejection(400, "bad-framing", "The connection was closed inside a request.")
_VERSION = Rejection(505, "version-not-supported", "")
_LONG_TARGET = Rejection(414, "uri-too-long", "")
_LARGE_HEAD = Rejection(431, "headers-too-large", "")
_LARGE_TRAILER = Rejection(431, "headers-too-large", "The trailers or the chunk sizes are larger than is read.")
_SLOW_HEAD = Rejection(408, "request-timeout", "The head of the request took too long to arrive.")
_SLOW_BODY = Rejection(408, "request-timeout", "The body of the request took too long to arrive.")
_CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"


class _State(IntEnum):
    """What a connection receives now."""

    IDLE = 0
    HEAD = 1
    BODY = 2
    LINGER = 3


@dataclass(frozen=True, slots=True)
class Limits:
    """What a caller may take of a connection; 0 connections per address is no cap."""

    max_header_bytes: int
    max_headers: int
    header_timeout_us: Micros
    body_timeout_us: Micros
    keepalive_timeout_us: Micros
    max_connections_per_address: int


@dataclass(slots=True)
class Post:
    """What all connections of a listener share.

    `faulty` counts a fault of the peer at an address and returns the answer; `turned_away` counts a socket above the
    cap; `trusts` says whether a peer is a proxy of our own, which has no cap.
    """

    limits: Limits
    faulty: Callable[[Rejection, str], Answer]
    turned_away: Callable[[str], None]
    trusts: Callable[[str], bool]
    draining: bool = False
    connections: dict[str, int] = field(default_factory=dict)
    deadlines: Deadlines | None = None


class Turn(Protocol):
    """One request of a connection, from its head to the end of its answer."""

    #: Octets of its body that wait; reading pauses while they are many.
    held: int

    @property
    def answering(self) -> bool:
        """Whether its response head was written."""
        ...

    def begin(self) -> None:
        """All octets received with the head have parsed, and earlier requests are answered."""
        ...

    def body(self, chunk: bytes) -> None:
        """Take the next octets of the body; may come before `begin`."""
        ...

    def body_end(self) -> None:
        """Note that the body is complete; may come before `begin`."""
        ...

    def turn_back(self, fault: Rejection) -> None:
        """Answer `fault`, or break off the answer: the rest of the body will not come."""
        ...

    def gone(self) -> None:
        """End it: the caller is gone."""
        ...

    def writable(self, ready: bool) -> None:
        """Note that the caller takes what is written, or does not for now."""
        ...


class _FaultError(Exception):
    """Raised inside a parser callback, to stop the parser."""


class Guard(HttpToolsProtocol):
    """One connection of a listener; `post` is bound by a subclass."""

    post: Post

    def __init__(
        self,
        config: Config,
        server_state: ServerState,
        app_state: dict[str, Any],
        _loop: asyncio.AbstractEventLoop | None = None,
    ) -> None:
        super().__init__(config, server_state, app_state, _loop)
        if self.post.deadlines is None:
            self.post.deadlines = Deadlines(self.loop)
        self._deadlines = self.post.deadlines
        self.deadline = 0.0
        self.filed = 0
        self.peer = UNIX
        self._state = _State.IDLE
        self._fault: Rejection | None = None
        self._turn: Turn | None = None
        self._receiving: Turn | None = None
        self._begun: list[Turn] = []
        self._queue: deque[Turn] = deque()
        self._heads = self._weight = self._raw = self._octets = self._stride = self._overhead = self._flushed = 0
        self._half_closed = False
        #: Whether what these octets were part of deserves a deadline of its own.
        self._fresh = False

    def turn(self, head: Head, *, keep_alive: bool) -> Turn:
        """Return the turn of a request; `keep_alive` is what its head asks for."""
        raise NotImplementedError  # a subclass says what a request becomes

    # The connection

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override] # narrowed as by uvicorn
        """Take a connection, unless its address has enough of them."""
        super().connection_made(transport)
        if self.client is not None and self.client[0]:
            self.peer = self.client[0]
        held = self.post.connections.get(self.peer, 0) + 1
        self.post.connections[self.peer] = held
        cap = self.post.limits.max_connections_per_address
        if cap and held > cap and not self.post.trusts(self.peer):
            self.post.turned_away(self.peer)
            self._state = _State.LINGER
            transport.abort()
        else:
            self._within(self.post.limits.header_timeout_us)

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget the connection; whatever is under way learns that its caller is gone."""
        self._deadlines.clear(self)
        left = self.post.connections[self.peer] - 1
        if left:
            self.post.connections[self.peer] = left
        else:
            del self.post.connections[self.peer]
        self.connections.discard(self)
        self._leave()
        self.parser = None

    def eof_received(self) -> bool:  # type: ignore[override] # uvicorn's lets the transport close
        """Keep our side open while an answer is owed (rule 7)."""
        self._half_closed = True
        if self._state is _State.LINGER:
            return False
        if self._state is _State.HEAD:
            self._refuse(_PARTIAL)
        elif self._state is _State.BODY:
            # A body that was cut short: whoever sent it left, and the request is not whole.
            self._leave()
            return False
        elif self._turn is None:
            return False
        elif not self._turn.answering:
            self.transport.write(_CONTINUE)
        return True

    def _leave(self) -> None:
        """End everything: the caller is gone."""
        turn, self._turn = self._turn, None
        self._receiving = None
        self._queue.clear()
        self._state = _State.LINGER
        if turn is not None:
            turn.gone()

    def shutdown(self) -> None:
        """Answer what is under way or on its way, and take nothing more: the server stops."""
        if self._state is _State.IDLE and self._turn is None:
            self._within(LAST_CALL_US)

    def pause_writing(self) -> None:
        """Hold the answer back: the caller reads slowly."""
        super().pause_writing()
        if self._turn is not None:
            self._turn.writable(False)

    def resume_writing(self) -> None:
        """Go on: the caller has caught up."""
        super().resume_writing()
        if self._turn is not None:
            self._turn.writable(True)

    # Deadlines

    def _within(self, timeout_us: Micros) -> None:
        self._deadlines.set(self, self.loop.time() + timeout_us / SECOND)

    def on_deadline(self, now: float) -> None:
        """End what is late, with an answer where somebody waits for one."""
        if self.transport.is_closing():
            return
        match self._state:
            case _State.LINGER:
                self._cut()
            case _State.HEAD:
                # What never began is not told that it was too slow.
                self._refuse(_SLOW_HEAD)
            case _State.BODY if self._receiving is not None:
                if self.flow.read_paused:
                    self._within(self.post.limits.body_timeout_us)
                else:
                    self._turn_back(_SLOW_BODY)
            case _ if self._turn is None:
                self.transport.close()

    def _cut(self) -> None:
        """Cut a lingering connection, unless the caller is still taking its answer."""
        waiting = self.transport.get_write_buffer_size()
        if waiting and waiting != self._flushed:
            self._flushed = waiting
            self._within(LINGER_US)
        else:
            self.transport.abort()

    # Octets in

    def data_received(self, data: bytes) -> None:
        """Parse; then, if all of it is well-formed, begin what it asks for (rule 1)."""
        if self._state is _State.LINGER or self._fault is not None:
            return
        before = self._state
        if before is _State.IDLE:
            self._state = _State.HEAD
        self._fresh = before is _State.IDLE
        self._heads = 0
        self._feed(data)
        limits = self.post.limits
        if self._fault is None and self._state is _State.HEAD:
            # Exact where one head is all there is; behind others in the same octets it is one read late.
            if self._heads == 0 or (self._heads == 1 and before is _State.IDLE):
                self._raw += len(data)
            if self._raw > limits.max_header_bytes:
                self._fault = _LARGE_HEAD if self.headers else _LONG_TARGET
        if self._fault is not None:
            self._refuse(self._fault)
            return
        if self._fresh and self._state is not _State.IDLE:
            self._within(limits.header_timeout_us if self._state is _State.HEAD else limits.body_timeout_us)
        if self._begun:
            self._queue.extend(self._begun)
            self._begun.clear()
            self.advance()

    def _feed(self, data: bytes) -> None:
        try:
            self.parser.feed_data(data)
        except httptools.HttpParserUpgrade as upgrade:
            # No other protocol is spoken here: that was an ordinary request (RFC 9110 section 7.8); more may follow.
            self.parser = httptools.HttpRequestParser(self)
            self.parser.set_dangerous_leniencies(lenient_data_after_close=True)
            rest = data[upgrade.args[0] :]
            if rest:
                self._feed(rest)
        except httptools.HttpParserError:
            self._fault = self._fault or _MALFORMED

    def on_message_begin(self) -> None:
        """Begin a head."""
        self.url = b""
        self.headers = []
        self._state = _State.HEAD
        self._fresh = True
        self._heads += 1
        self._weight = self._raw = self._overhead = 0

    def on_url(self, url: bytes) -> None:
        """Collect the target, in however many pieces it comes."""
        self.url += url
        if len(self.url) > self.post.limits.max_header_bytes:
            self._stop(_LONG_TARGET)

    def on_header(self, name: bytes, value: bytes) -> None:
        """Collect a field of the head; a trailer is only weighed (rule 2)."""
        weight = len(name) + len(value) + 4
        if self._state is _State.BODY:
            self._weigh(weight)
            return
        self.headers.append((name.lower(), value))
        self._weight += weight
        limits = self.post.limits
        if self._weight + len(self.url) > limits.max_header_bytes or len(self.headers) > limits.max_headers:
            self._stop(_LARGE_HEAD)

    def on_headers_complete(self) -> None:
        """Freeze the head; its request begins once everything received has parsed."""
        version = self.parser.get_http_version()
        if version not in {"1.1", "1.0"}:
            self._stop(_OLD if version == "0.9" else _VERSION)
        self._state = _State.BODY
        self._octets = self._stride = 0
        head = Head(self.parser.get_method(), self.url, self.headers, self.peer, self.scheme or "http", version)
        keep_alive = self.parser.should_keep_alive() and not self.post.draining
        self._receiving = self.turn(head, keep_alive=keep_alive)
        self._begun.append(self._receiving)
        self._fresh = True

    def on_chunk_header(self) -> None:
        """Weigh a chunk's size line: very many tiny chunks are work without a body."""
        self._weigh(8)

    def on_body(self, body: bytes) -> None:
        """Hand octets of the body to the request that they belong to."""
        size = len(body)
        self._overhead = max(0, self._overhead - size)
        self._octets += size
        if self._octets - self._stride >= BODY_STRIDE:
            self._stride = self._octets
            self._fresh = True
        if self._receiving is not None:
            self._receiving.body(body)
            self.regulate()

    def on_message_complete(self) -> None:
        """Note that the request is whole; the next one may come."""
        self._state = _State.IDLE
        receiving, self._receiving = self._receiving, None
        if receiving is not None:
            receiving.body_end()
        self._rest()

    def _weigh(self, octets: int) -> None:
        self._overhead += octets
        if self._overhead > MAX_OVERHEAD:
            self._stop(_LARGE_TRAILER)

    def _stop(self, fault: Rejection) -> None:
        self._fault = fault
        raise _FaultError

    # Turns

    def advance(self) -> None:
        """Begin the next request if none is under way; answer a fault once all before it are answered."""
        while self._turn is None and self._queue and self._state is not _State.LINGER:
            self._turn = self._queue.popleft()
            self._turn.begin()
        self.regulate()
        if self._turn is None and self._fault is not None:
            self._answer(self._fault)

    def finished(self, turn: Turn, *, keep_alive: bool) -> None:
        """Take note that the answer of `turn` was written whole."""
        if turn is not self._turn:
            return
        self._turn = None
        self.server_state.total_requests += 1
        if not keep_alive:
            self._queue.clear()
            self.linger()
        elif self._half_closed and not self._queue:
            self.transport.close()
        elif self._queue or self._fault is not None:
            # Not now: whoever calls has yet to settle the request that is over.
            self.loop.call_soon(self.advance)
        else:
            self._rest()

    def broken(self, turn: Turn) -> None:
        """Break the connection off, so that the caller sees that the answer is not whole (RFC 9112 section 8)."""
        if turn is self._turn:
            self._turn = None
        self._queue.clear()
        self._state = _State.LINGER
        self.transport.abort()

    def pending(self, turn: Turn) -> bool:
        """Return whether more of the body of `turn` is to come."""
        return turn is self._receiving

    def regulate(self) -> None:
        """Read on, or not: a request holds too much of its body, or too many wait."""
        full = len(self._queue) >= AHEAD or (self._receiving is not None and self._receiving.held > BODY_STRIDE * 4)
        if full and self._state is not _State.LINGER:
            self.flow.pause_reading()
        else:
            self.flow.resume_reading()

    def _rest(self) -> None:
        """Nothing is being received; with nothing under way either, the connection is idle."""
        if self._state is not _State.IDLE:
            return
        if self._turn is None and not self._queue and not self._begun:
            self._within(LAST_CALL_US if self.post.draining else self.post.limits.keepalive_timeout_us)
        else:
            self._deadlines.clear(self)

    # Ways out

    def _refuse(self, fault: Rejection) -> None:
        """Answer a fault, behind the answers still owed. What came with it is not begun (rule 1)."""
        receiving = self._receiving
        begun = receiving is not None and receiving not in self._begun
        self._begun.clear()
        if begun:
            self._turn_back(fault)
            return
        self._fault = fault
        self._receiving = None
        self._state = _State.IDLE
        self._deadlines.clear(self)
        self.advance()

    def _turn_back(self, fault: Rejection) -> None:
        """End the request that is being received; its answer, if it still gets one, closes."""
        receiving, self._receiving = self._receiving, None
        self._fault = fault
        self._state = _State.IDLE
        self._deadlines.clear(self)
        if receiving is None or (receiving is not self._turn and receiving not in self._queue):
            self.transport.close()
        else:
            receiving.turn_back(fault)

    def _answer(self, fault: Rejection) -> None:
        if self._state is _State.LINGER:
            return
        self.transport.write(self.post.faulty(fault, self.peer).wire())
        self.linger()

    def linger(self) -> None:
        """Close our side, then discard what arrives, for a while (rule 5)."""
        self._state = _State.LINGER
        self._receiving = None
        if self.transport.is_closing():
            return
        if self._half_closed or not self.transport.can_write_eof():
            self.transport.close()
            return
        self.transport.write_eof()
        self.flow.resume_reading()
        self._within(LINGER_US)
