"""A request between a connection and its exchange: what the guard hears goes in, what the exchange wants goes out.

Rules
1. A refusal is one write, made while the octets that asked for it are being handled.
2. What the exchange wants written is written; how it is framed is `writer`'s business, and when the connection closes
   the guard's.
3. A body waits here until there is somewhere to write it to; while much of it waits, nothing more is read.
"""

from __future__ import annotations

from collections import deque

from gateway.ports import Headers, Rejection
from gateway.proxy.answer import Answer
from gateway.proxy.exchange import DISCARDED, Exchange
from gateway.proxy.front import Front
from gateway.proxy.guard import Guard
from gateway.proxy.headers import Lines
from gateway.proxy.parse import Head
from gateway.proxy.sink import Sink
from gateway.proxy.turn import Turn
from gateway.proxy.writer import Writer
from policies.native import mypyc_attr

__all__ = ["Passage"]


@mypyc_attr(free_list_len=1)
class Passage(Sink, Turn):
    """One request between a connection and its exchange: source and sink."""

    __slots__ = (
        "_ahead", "_all_read", "_began", "_exchange", "_fault", "_guard", "_over", "_permitted", "_wanted", "_writer",
        "held", "opaque",
    )  # fmt: skip

    def __init__(self, guard: Guard, front: Front, head: Head, *, keep_alive: bool) -> None:
        self._guard = guard
        self._writer = Writer(
            guard.transport, head_only=head.method == b"HEAD", old=head.version == "1.0", keep_alive=keep_alive
        )
        self._exchange = Exchange(front, head, self)
        self._permitted = head.version == "1.0"
        self._ahead: deque[bytes] | None = None
        self.held = 0
        self.opaque = False
        self._all_read = False
        self._wanted = False
        self._began = False
        self._over = False
        self._fault: Rejection | None = None

    # The turn of a connection

    def begin(self) -> None:
        """Take the request through the house."""
        if self._fault is not None:
            self._exchange.turn_away(self._fault)
            return
        self._exchange.begin()
        # Only now: the call that a body goes to is not there while it is being made.
        self._began = True
        self._pass_on()

    def body(self, chunk: bytes) -> None:
        """Pass octets of the body on, or keep them until they are wanted."""
        if self._over:
            return
        if self._wanted and not self._ahead:
            self._exchange.body(chunk)
            return
        if self._ahead is None:
            self._ahead = deque()
        self._ahead.append(chunk)
        self.held += len(chunk)

    def body_end(self) -> None:
        """Note that the body is complete."""
        self._all_read = True
        if self._began and not self._ahead:
            self._exchange.body_end()

    def turn_back(self, fault: Rejection) -> None:
        """End the request for a fault in what followed its head."""
        self._fault = fault
        if self._began:
            self._exchange.turn_back(fault)

    def stop(self) -> None:
        """End the request: the server stops."""
        self._exchange.stop()

    def probe(self) -> None:
        """Write a 100, if the response has not begun: it shows whether the caller is gone."""
        self._writer.interim(100, [])

    def gone(self) -> None:
        """End it: the caller left."""
        self._over = True
        if self._began:
            self._exchange.caller_gone()

    def writable(self, ready: bool) -> None:
        """Hold the response back, or go on."""
        self._exchange.caller_writable(ready)

    # The sink of the exchange

    def answer(self, answer: Answer) -> None:
        """Write an answer of ours."""
        self._guard.refused = True
        self._closing()
        self._writer.answer(answer)
        self._finish()

    def interim(self, status: int, headers: Headers) -> None:
        """Write a 1xx response."""
        self._writer.interim(status, headers)

    def start(self, status: int, lines: Lines, length: int, body: bytes) -> None:
        """Write a response head, with what of the body is there already."""
        self._guard.refused = False
        self._closing()
        self._writer.start(status, lines, length, body)

    def data(self, chunk: bytes) -> None:
        """Write octets of the body."""
        self._writer.data(chunk)

    def end(self) -> None:
        """Complete the response."""
        if self._writer.end():
            self._finish()
        else:
            self.abort()

    def abort(self) -> None:
        """Break the connection off."""
        self._over = True
        self._guard.broken(self, reset=self._writer.ends_with_connection)

    def want_body(self, wanted: bool) -> None:
        """Pass on what waits, and read on; or hold back."""
        self._wanted = wanted
        if self._began:
            self._pass_on()

    def _pass_on(self) -> None:
        if self._over:
            return
        ahead = self._ahead
        if self._wanted and not self._permitted and not ahead and not self._all_read:
            # RFC 9110 section 10.1.1: who sends its body unasked needs no 100.
            self._permitted = True
            if self._exchange.awaits_permission:
                self._writer.interim(100, [])
        held = self.held
        while ahead and self._wanted and not self._over:
            chunk = ahead.popleft()
            self.held -= len(chunk)
            self._exchange.body(chunk)
        if self._all_read and not ahead and not self._over:
            self._exchange.body_end()
        if self.held != held:
            self._guard.regulate()

    def _closing(self) -> None:
        """Say that the connection closes, where what is still to come of the body is not worth reading."""
        guard, writer = self._guard, self._writer
        unwanted = guard.pending(self) and self._exchange.unread > DISCARDED
        if unwanted or guard.post.draining or self._fault is not None:
            writer.keep_alive = False

    def _finish(self) -> None:
        self._over = True
        self._ahead = None
        self.held = 0
        self._guard.finished(self, keep_alive=self._writer.keep_alive)
