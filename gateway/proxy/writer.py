"""One response, written to one connection.

Rules
1. The framing is ours and follows from the request (RFC 9112 section 6): no body for HEAD, 204 and 304; the announced
   length where there is one; chunked for HTTP/1.1; the end of the connection for HTTP/1.0.
2. `Connection: close` is said whenever we will close, and then we do.
3. A response is complete only if `end` was called and what was announced was sent.
"""

from __future__ import annotations

import asyncio
from typing import Final

from gateway.ports import Headers
from gateway.proxy.answer import STATUS_LINES, Answer, lines
from gateway.proxy.headers import Lines
from policies.native import mypyc_attr

__all__ = ["Writer"]

_CLOSE: Final = b"connection: close\r\n\r\n"
#: Status lines without what ends them: field lines in halves begin with it.
_BEGINNINGS: Final = [line[:-2] for line in STATUS_LINES]
_CHUNKED: Final = b"\r\ntransfer-encoding: chunked"
_HEAD_END: Final = b"\r\n\r\n"
_HEAD_CLOSE: Final = b"\r\nconnection: close\r\n\r\n"
_END: Final = b"\r\n"
#: Pieces below this are joined with their framing; larger ones are handed over as they are.
_JOINED: Final = 4096


@mypyc_attr(free_list_len=1)
class Writer:
    """Writes one response. `keep_alive` says whether the connection outlives it; it can only become false."""

    __slots__ = ("_bodiless", "_chunked", "_left", "_old", "_transport", "keep_alive", "started")

    def __init__(self, transport: asyncio.Transport, *, head_only: bool, old: bool, keep_alive: bool) -> None:
        self._transport = transport
        self._bodiless = head_only
        self._old = old
        self._chunked = False
        self._left = -1
        self.keep_alive = keep_alive and not old
        self.started = False

    @property
    def ends_with_connection(self) -> bool:
        """True if nothing but the end of the connection tells the end of the response."""
        return self.started and not self._bodiless and not self._chunked and self._left < 0

    def interim(self, status: int, headers: Headers) -> None:
        """Write a 1xx response; HTTP/1.0 knows none (RFC 9110 section 15.2)."""
        if not self._old and not self.started:
            self._transport.write(b"".join((STATUS_LINES[status], lines(headers), _END)))

    def start(self, status: int, lines: Lines, length: int, body: bytes = b"") -> None:
        """Write a response head without Connection and Transfer-Encoding of its own, and the first octets of its body.

        In one piece: a write is a system call, and may wake the caller for a head alone.
        """
        self.started = True
        parts = [_BEGINNINGS[status], *lines]
        self._left = length
        if self._bodiless or status in (204, 304):
            self._bodiless = True
            self._left = 0
        elif length < 0:
            self._chunked = not self._old
            if self._chunked:
                parts.append(_CHUNKED)
            else:
                self.keep_alive = False
        parts.append(_HEAD_END if self.keep_alive else _HEAD_CLOSE)
        if len(body) >= _JOINED:
            self._transport.writelines((b"".join(parts), *self._framed(body)))
            return
        if self._chunked or self._bodiless:
            if body:
                parts += self._framed(body)
        else:
            self._left -= len(body) if self._left >= 0 else 0
            parts.append(body)
        self._transport.write(b"".join(parts))

    def data(self, chunk: bytes) -> None:
        """Write the next octets of the body. RuntimeError before its head: they would be read as one."""
        if not self.started:
            raise RuntimeError("a body was written in front of its head")
        pieces = self._framed(chunk)
        if len(pieces) == 1:
            self._transport.write(pieces[0])
        elif len(chunk) < _JOINED:
            self._transport.write(b"".join(pieces))
        else:
            self._transport.writelines(pieces)

    def _framed(self, chunk: bytes) -> tuple[bytes, ...]:
        """Return octets of the body as they are written: not at all, as they are, or as a chunk."""
        if self._bodiless:
            return (b"",)
        if self._chunked:
            return (b"%x\r\n" % len(chunk), chunk, _END)
        if self._left >= 0:
            self._left -= len(chunk)
        return (chunk,)

    def end(self) -> bool:
        """Complete the response; False if that cannot be done, because it was announced otherwise."""
        if self._chunked:
            self._transport.write(b"0\r\n\r\n")
        return self._chunked or self._left in (0, -1)

    def answer(self, answer: Answer) -> None:
        """Write a whole answer of ours in one piece."""
        self.started = True
        answer.close |= not self.keep_alive
        self.keep_alive = not answer.close
        self._transport.write(answer.wire(bodiless=self._bodiless))
