"""RESP2, the protocol of Redis: commands out, replies in (https://redis.io/docs/latest/develop/reference/protocol-spec/).

Rules
1. What does not follow the protocol is a ProtocolError, and the connection it came on is finished: nobody can say where
   the next reply begins.
2. What a peer can make us hold is bounded.
"""

from __future__ import annotations

from collections.abc import Sequence

from gateway.stores.link.faults import ErrorReply

__all__ = ["Parser", "ProtocolError", "encode"]

#: Octets of a line and of a string, members of an array, and arrays within arrays; far above what our commands answer.
_LINE = 64 * 1024
_BULK = 64 * 1024 * 1024
_MEMBERS = 1_000_000
_DEPTH = 16


class ProtocolError(Exception):
    """What came is no RESP2."""


def encode(words: Sequence[bytes]) -> bytes:
    """Return a command as it is sent: an array of strings."""
    return b"*%d\r\n" % len(words) + b"".join([b"$%d\r\n%b\r\n" % (len(word), word) for word in words])


class Parser:
    """Replies out of the octets of one connection, in order.

    A reply is an int, bytes, None (no such thing), an `ErrorReply`, or a list of replies.
    """

    __slots__ = ("_at", "_buffer", "_open")

    def __init__(self) -> None:
        self._buffer = bytearray()
        self._at = 0
        #: Arrays under way, outermost first, each with how many members it still lacks.
        self._open: list[tuple[list[object], int]] = []

    def feed(self, data: bytes) -> list[object]:
        """Take what came and return the replies that are complete now; ProtocolError if it makes no sense."""
        self._buffer += data
        replies: list[object] = []
        while self._step(replies):
            pass
        del self._buffer[: self._at]
        self._at = 0
        return replies

    def _step(self, replies: list[object]) -> bool:
        """Take the next element, and return whether there was a whole one."""
        buffer, start = self._buffer, self._at
        end = buffer.find(b"\r\n", start, start + _LINE)
        if end < 0:
            if len(buffer) - start >= _LINE:
                raise ProtocolError("a line without an end")
            if len(buffer) > start and buffer[start] not in b"+-:$*":
                raise ProtocolError("no such type of reply")
            return False
        kind, line = buffer[start : start + 1], bytes(buffer[start + 1 : end])
        after = end + 2
        value: object
        if kind == b":":
            value = _number(line)
        elif kind == b"$":
            size = _number(line, _BULK)
            value = None
            if size >= 0:
                if len(buffer) < after + size + 2:
                    return False
                value = bytes(buffer[after : after + size])
                after += size + 2
                if buffer[after - 2 : after] != b"\r\n":
                    raise ProtocolError("a string longer than it says")
        elif kind == b"*":
            self._at = after
            self._array(_number(line, _MEMBERS), replies)
            return True
        elif kind == b"+":
            value = line
        elif kind == b"-":
            value = ErrorReply(line.decode("utf-8", "replace"))
        else:
            raise ProtocolError("no such type of reply")
        self._at = after
        self._close(value, replies)
        return True

    def _array(self, members: int, replies: list[object]) -> None:
        if members > 0:
            if len(self._open) >= _DEPTH:
                raise ProtocolError("arrays too deep")
            self._open.append(([], members))
        else:
            self._close(None if members < 0 else [], replies)

    def _close(self, value: object, replies: list[object]) -> None:
        """Put a complete value where it belongs, and with it the arrays that it completes."""
        while self._open:
            array, lacks = self._open.pop()
            array.append(value)
            if lacks > 1:
                self._open.append((array, lacks - 1))
                return
            value = array
        replies.append(value)


def _number(line: bytes, most: int | None = None) -> int:
    if not line.lstrip(b"-").isdigit() or len(line) > 20:
        raise ProtocolError("no number where one belongs")
    number = int(line)
    if most is not None and not -1 <= number <= most:
        raise ProtocolError("a length out of bounds")
    return number
