"""Where an exchange writes to: the shell of whichever server the request came through."""

from __future__ import annotations

from typing import Protocol

from gateway.ports import Headers
from gateway.proxy.answer import Answer

__all__ = ["NOBODY", "Sink"]


class Sink(Protocol):
    """Where an exchange writes to. Either `answer`, or `start`, `data`..., and then `end` or `abort`."""

    def answer(self, answer: Answer) -> None:
        """Send a whole answer of ours."""
        ...

    def interim(self, status: int, headers: Headers) -> None:
        """Send a 1xx response, if the server can."""
        ...

    def start(self, status: int, headers: Headers, body: bytes = b"") -> None:
        """Send a response head; Content-Length tells the framing, without it the server chooses one.

        `body` is what of the body is there already.
        """
        ...

    def data(self, chunk: bytes) -> None:
        """Send the next octets of the body."""
        ...

    def end(self) -> None:
        """Complete the response."""
        ...

    def abort(self) -> None:
        """Break the connection, so that the caller can tell that the response is not complete."""
        ...

    def want_body(self, wanted: bool) -> None:
        """Go on reading the request body, or hold it back. Not wanted until the first call."""
        ...


class _Nobody:
    """The sink of an exchange that is over."""

    def answer(self, answer: Answer) -> None: ...
    def interim(self, status: int, headers: Headers) -> None: ...
    def start(self, status: int, headers: Headers, body: bytes = b"") -> None: ...
    def data(self, chunk: bytes) -> None: ...
    def end(self) -> None: ...
    def abort(self) -> None: ...
    def want_body(self, wanted: bool) -> None: ...


#: Takes the place of a sink once nothing more may reach it.
NOBODY: Sink = _Nobody()
