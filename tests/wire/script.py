"""What a scripted upstream answers: any status, framing, pace and ending."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from http import HTTPStatus
from typing import Literal, TypeAlias

from tests.wire.message import Fields

__all__ = ["HANG", "Answer", "Ending", "Framing"]

Framing: TypeAlias = Literal["length", "chunked", "close", "none"]
Ending: TypeAlias = Literal["keep", "close", "reset", "hang"]

_BODILESS = {204, 304}


@dataclass(frozen=True, slots=True)
class Answer:
    """One answer. Times in seconds.

    `body` is bytes, or a function that makes pieces, each sent on its own (with `chunked` as one chunk); it may never
    end, unless it is framed by its length. `delay` passes before the first octet and `gap` before each piece. One that
    is `held` waits for `Origin.release` besides. `interim` are 1xx answers sent at once. With `early` the answer starts
    with the request's head, else after its body. `declared` is a Content-Length that lies. After `cut` octets of the
    final answer, head included, or at its end, comes the `ending`. `raw` replaces the whole answer.
    """

    status: int = 200
    fields: tuple[tuple[str, str], ...] = ()
    body: bytes | Callable[[], Iterable[bytes]] = b"ok"
    framing: Framing = "length"
    delay: float = 0.0
    gap: float = 0.0
    held: bool = False
    interim: tuple[tuple[int, tuple[tuple[str, str], ...]], ...] = ()
    early: bool = False
    declared: int | None = None
    cut: int | None = None
    ending: Ending = "keep"
    raw: bytes | None = None

    @property
    def immediate(self) -> bool:
        """True if the answer can be written in one piece, now."""
        return (
            not self.delay and not self.gap and not self.held and isinstance(self.body, bytes) and self.ending == "keep"
        )

    def pieces(self, method: str) -> Iterator[tuple[float, bytes]]:
        """Yield (seconds to wait before, octets), up to `cut`."""
        for status, fields in self.interim:
            yield 0.0, _head(status, [(name.encode(), value.encode()) for name, value in fields])
        left = self.cut
        for wait, octets in self._final(method):
            if left is None:
                yield wait, octets
                continue
            yield wait, octets[:left]
            left -= len(octets)
            if left <= 0:
                return

    def _final(self, method: str) -> Iterator[tuple[float, bytes]]:
        if self.raw is not None:
            yield self.delay, self.raw
            return
        yield self.delay, _head(self.status, self._fields())
        if method == "HEAD" or self.status in _BODILESS or self.framing == "none":
            return
        for piece in [self.body] if isinstance(self.body, bytes) else self.body():
            yield self.gap, b"%x\r\n%b\r\n" % (len(piece), piece) if self.framing == "chunked" else piece
        if self.framing == "chunked":
            yield self.gap, b"0\r\n\r\n"

    def _fields(self) -> Fields:
        fields = [(name.encode(), value.encode("latin-1")) for name, value in self.fields]
        if self.framing == "chunked":
            fields.append((b"Transfer-Encoding", b"chunked"))
        elif self.framing == "length" and self.status not in _BODILESS:
            length = self.declared
            if length is None:
                length = len(self.body if isinstance(self.body, bytes) else b"".join(self.body()))
            fields.append((b"Content-Length", b"%d" % length))
        return fields


def _head(status: int, fields: Fields) -> bytes:
    try:
        reason = HTTPStatus(status).phrase.encode()
    except ValueError:
        reason = b""
    lines = [b"HTTP/1.1 %d %b" % (status, reason), *(b"%b: %b" % field for field in fields)]
    return b"\r\n".join(lines) + b"\r\n\r\n"


#: Reads the request and says nothing, for ever.
HANG = Answer(raw=b"", ending="hang")
