"""Where request lines begin, and whether they are those of HTTP: what the parser reads and does not tell.

llhttp reads RTSP and ICE too, and takes several spaces for one; it tells of neither. So the octets themselves say it.

Rules
1. A request line is method, space, target, space, version and CRLF (RFC 9112 section 3), octet for octet.
2. Where a request begins is known: with the first octets of a connection, or where the one in front of it ends by its
   length. Behind a chunked body its line is only searched for, at the start of a line.
3. Nothing is copied unless a head comes in several reads; then only its line is kept.
"""

from __future__ import annotations

from typing import Final

from gateway.ports import Headers

__all__ = ["RequestLines"]

_END: Final = b" HTTP/1.1\r\n"
_OLD_END: Final = b" HTTP/1.0\r\n"
_LINE_ENDS: Final = frozenset({b"\r", b"\n"})
_END_OF_HEAD: Final = b"\r\n\r\n"
#: Octets of a head's end that may have come in the read before the one that completes it.
_STRADDLED: Final = len(_END_OF_HEAD) - 1
#: Digits of a length that are read as they stand.
_DIGITS: Final = 18
#: Stands for what was let go between a line and these.
_GAP: Final = b" "


class RequestLines:
    """The request lines of one connection."""

    __slots__ = ("_at", "_behind", "_data", "_exact")

    def __init__(self) -> None:
        self._data = b""
        #: Where in the octets the next request begins, or no earlier than where if that is not exactly known.
        self._at = 0
        self._exact = True
        #: The head that was read last, while `_at` is behind its line alone: most often nothing follows it, and nobody
        #: has to know where its request ends.
        self._behind: Headers | None = None

    @property
    def exact(self) -> bool:
        """Whether it is known at which octet the next request begins."""
        self._pass()
        return self._exact

    def feed(self, data: bytes, *, begins: bool) -> None:
        """Take the octets that are parsed next; `begins` if nothing is under way, so that they begin a request."""
        if begins:
            self._data, self._at, self._exact = data, 0, True
        else:
            self._data = self._data + data if self._data else data

    def forget(self) -> None:
        """Let go of the octets: they are parsed, and nothing is under way."""
        self._data, self._behind = b"", None

    def rest(self, *, inside: bool) -> None:
        """Let go of the octets: they are parsed. `inside` if they end in a head."""
        self._pass()
        data, at = self._data, self._at
        if not inside:
            self._data, self._at = b"", max(at - len(data), 0)
            return
        if self._exact:
            at = _past_blank_lines(data, at)
            end = data.find(b"\n", at) + 1
            if end and end < len(data) - _STRADDLED:
                data = data[:end] + _GAP + data[-_STRADDLED:]
        self._data, self._at = data[at:], 0

    def read(self, method: bytes, target: bytes, version: str, headers: Headers) -> bool:
        """Return whether the head that is complete now began with this line; `headers` tell where its request ends."""
        self._pass()
        data, at = self._data, self._at
        line = b"%b %b%b" % (method, target, _END if version == "1.1" else _OLD_END)
        if self._exact:
            found = at == 0 and data.startswith(line)
            if not found:
                at = _past_blank_lines(data, at)
                found = data[at : at + len(line)] == line
        else:
            at = data.find(b"\n" + line, max(at - 1, 0)) + 1
            found = at > 0
        if found:
            self._at = at + len(line)
            self._behind = headers
        return found

    def _pass(self) -> None:
        """Go to where the next request begins."""
        headers = self._behind
        if headers is not None:
            self._behind = None
            length = _length(headers)
            self._exact = length is not None
            if length is not None:
                self._at = self._data.find(_END_OF_HEAD, self._at - 2) + len(_END_OF_HEAD) + length


def _past_blank_lines(data: bytes, at: int) -> int:
    """Return where what is not an empty line begins, at `at` or behind it (RFC 9112 section 2.2)."""
    if data[at : at + 1] in _LINE_ENDS:
        return len(data) - len(data[at:].lstrip(b"\r\n"))
    return at


def _length(headers: Headers) -> int | None:
    """Return how many octets of body follow a head; None for a chunked one, whose end only its parser knows."""
    length = 0
    for name, value in headers:
        if name == b"transfer-encoding":
            return None
        if name == b"content-length":
            # The parser has seen to the number, not to the zeros in front of it; int() takes only so many digits.
            length = int(value if len(value) <= _DIGITS else value.lstrip(b"0") or b"0")
    return length
