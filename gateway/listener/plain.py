"""The protocol of the admin listener: uvicorn's own, with a head that is bounded while it is received.

Rules
1. More than `MAX_HEAD` octets or `MAX_FIELDS` fields of a head are 431 and the end of the connection; nothing of such
   a request is passed on. Octets are read in slices, so that no more than one slice is kept beyond the bound.
2. What stands beside a body (chunk sizes, trailers) is bounded by the same two numbers; trailers are dropped.
3. Who asks is whom accept(2) named; a connection that is nobody's is not served (`peer`).
"""

from __future__ import annotations

import asyncio

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from gateway.proxy.address import UNIX
from gateway.proxy.peer import peer_of

__all__ = ["MAX_FIELDS", "MAX_HEAD", "Plain"]

MAX_HEAD = 32 * 1024
MAX_FIELDS = 100
_SLICE = 4096
_BODY = b"The request head is larger than is read.\n"
_ANSWER = (
    b"HTTP/1.1 431 Request Header Fields Too Large\r\ncontent-type: text/plain; charset=utf-8\r\n"
    b"content-length: %d\r\nconnection: close\r\n\r\n%b" % (len(_BODY), _BODY)
)


class Plain(HttpToolsProtocol):
    """One connection."""

    #: Octets received beside bodies since the last head or message was whole; fields of this head, or trailers.
    _octets = 0
    _fields = 0
    _in_body = False
    _refused = False
    peer = ""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override] # as uvicorn's
        """Take a connection of somebody known."""
        super().connection_made(transport)
        self.peer = self.peer or peer_of(transport)
        if not self.peer:
            transport.abort()
        elif self.client is None and self.peer != UNIX:
            self.client = self.peer, 0

    def data_received(self, data: bytes) -> None:
        """Read octets, as long as the head that they belong to is within bounds."""
        for start in range(0, len(data), _SLICE):
            if self._refused or self.transport.is_closing():
                return
            part = data[start : start + _SLICE]
            self._octets += len(part)
            super().data_received(part)
            if self._octets > MAX_HEAD or self._fields > MAX_FIELDS:
                self._refuse()

    def on_message_begin(self) -> None:
        """Begin to count."""
        self._fields = 0
        self._in_body = False
        super().on_message_begin()

    def on_header(self, name: bytes, value: bytes) -> None:
        """Keep a field, unless there are too many, or it is a trailer."""
        self._fields += 1
        if self._fields <= MAX_FIELDS and not self._in_body:
            super().on_header(name, value)

    def on_headers_complete(self) -> None:
        """Pass the request on, unless its head is too large."""
        if self._octets > MAX_HEAD or self._fields > MAX_FIELDS:
            self._refuse()
        if self._refused:
            return
        self._octets = self._fields = 0
        self._in_body = True
        super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        """Take a part of a body, if there is somebody to take it."""
        self._octets -= len(body)
        if not self._refused:
            super().on_body(body)

    def on_message_complete(self) -> None:
        """Be ready for the next head."""
        self._octets = 0
        if not self._refused:
            super().on_message_complete()

    def _refuse(self) -> None:
        if not self._refused:
            self._refused = True
            self.transport.write(_ANSWER)
            self.transport.close()
