"""What parses a connection: httptools' parser, and how the body of a request is read whose head another parser read."""

from __future__ import annotations

from typing import TYPE_CHECKING

import httptools

if TYPE_CHECKING:
    from gateway.proxy.framing import Framing

__all__ = ["BodyReader", "request_parser"]


def request_parser(reader: object) -> httptools.HttpRequestParser:
    """Return a parser that tells `reader`.

    It goes on behind a request that asks for the connection to be closed: what follows is the guard's to discard.
    """
    parser = httptools.HttpRequestParser(reader)
    parser.set_dangerous_leniencies(lenient_data_after_close=True)
    return parser


class BodyReader:
    """What a parser tells of a body whose head another parser has read, and of everything after it."""

    def __init__(self, connection: Framing) -> None:
        self._connection = connection
        self._headed = False
        self.on_body = connection.on_body
        self.on_chunk_header = connection.on_chunk_header
        self.on_message_complete = connection.on_message_complete

    def on_message_begin(self) -> None:
        """Pass on, but of the head that stands for the one already read."""
        if self._headed:
            self._connection.on_message_begin()

    def on_url(self, url: bytes) -> None:
        """As above."""
        if self._headed:
            self._connection.on_url(url)

    def on_header(self, name: bytes, value: bytes) -> None:
        """As above."""
        if self._headed:
            self._connection.on_header(name, value)

    def on_headers_complete(self) -> None:
        """As above."""
        if self._headed:
            self._connection.on_headers_complete()
        self._headed = True
