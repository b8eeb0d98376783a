"""Where an exchange writes to: the shell of whichever server the request came through."""

from __future__ import annotations

from typing import Final

from gateway.ports import Headers
from gateway.proxy.answer import Answer
from gateway.proxy.headers import Lines
from policies.native import mypyc_attr

__all__ = ["NOBODY", "Sink"]


@mypyc_attr(allow_interpreted_subclasses=True)
class Sink:
    """Where an exchange writes to: either `answer`, or `start`, `data`..., and then `end` or `abort`.

    This one is nobody, and takes no notice.
    """

    __slots__ = ()

    def answer(self, answer: Answer) -> None:
        """Send a whole answer of ours."""

    def interim(self, status: int, headers: Headers) -> None:
        """Send a 1xx response, if the server can."""

    def start(self, status: int, lines: Lines, length: int, body: bytes) -> None:
        """Send a response head; `lines` are yours. `length` is that of Content-Length.

        Without one it is -1, and the server chooses a framing. `body` is what of the body is there already.
        """

    def data(self, chunk: bytes) -> None:
        """Send the next octets of the body."""

    def end(self) -> None:
        """Complete the response."""

    def abort(self) -> None:
        """Break the connection, so that the caller can tell that the response is not complete."""

    def want_body(self, wanted: bool) -> None:
        """Go on reading the request body, or hold it back. Not wanted until the first call."""


#: Takes the place of a sink once nothing more may reach it.
NOBODY: Final = Sink()
