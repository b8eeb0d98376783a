"""HTTP/1.1 framing, as strict as RFC 9112 allows a reader to be. Shares no code with the gateway.

Rules
1. Anything that a lenient reader would mend is a `WireError`: bare LF or CR, obs-fold, blanks before a colon, two
   framings, a chunk that does not end in CR LF.
2. A message that ends early is never complete.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, TypeAlias

__all__ = ["Data", "End", "Event", "Fields", "Framer", "Head", "WireError", "requests", "responses"]

Fields: TypeAlias = list[tuple[bytes, bytes]]
Body: TypeAlias = int | Literal["chunked", "close"]

_TOKEN = re.compile(rb"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_SIZE = re.compile(rb"[0-9A-Fa-f]{1,15}")


class WireError(Exception):
    """The bytes are not a message that every reader understands the same way."""


@dataclass(frozen=True, slots=True)
class Head:
    """Start line and fields of a message, and the octets they came as."""

    start: bytes
    fields: Fields
    raw: bytes

    def all(self, name: bytes) -> list[bytes]:
        """Return the values of every field line called `name`, in any letter case."""
        return [value for key, value in self.fields if key.lower() == name.lower()]


@dataclass(frozen=True, slots=True)
class Data:
    """A piece of a body, its chunk framing removed."""

    octets: bytes


@dataclass(frozen=True, slots=True)
class End:
    """The message is complete."""

    trailers: Fields


Event: TypeAlias = Head | Data | End


def requests() -> Framer:
    """Return a framer of requests."""
    return Framer(lambda head: _declared(head, otherwise=0))


def responses(method: str) -> Framer:
    """Return a framer of the responses to one request of `method` (interim ones come first)."""

    def body(head: Head) -> Body:
        status = int(head.start.split(b" ")[1])
        if method == "HEAD" or status < 200 or status in {204, 304}:
            return 0
        return _declared(head, otherwise="close")

    return Framer(body, one=True)


def fields_of(lines: list[bytes]) -> Fields:
    """Split field lines into name and value (RFC 9112, section 5)."""
    found = []
    for line in lines:
        name, colon, value = line.partition(b":")
        if not colon or not _TOKEN.fullmatch(name) or b"\r" in line or b"\n" in line or b"\0" in line:
            raise WireError(f"not a field line: {line!r}")
        found.append((name, value.strip(b" \t")))
    return found


def _declared(head: Head, otherwise: Body) -> Body:
    """Return how the body is framed (RFC 9112, section 6.3)."""
    codings, lengths = head.all(b"transfer-encoding"), head.all(b"content-length")
    if codings and lengths:
        raise WireError("two framings")
    if codings:
        if codings != [b"chunked"]:
            raise WireError(f"transfer codings {codings!r}")
        return "chunked"
    if lengths:
        if len(lengths) > 1 or not lengths[0].isdigit():
            raise WireError(f"lengths {lengths!r}")
        return int(lengths[0])
    return otherwise


class Framer:
    """Splits a stream of octets into events; `rest` is what was not consumed yet.

    With `one`, a feed stops at the end of a message, so that what follows is left in `rest`.
    """

    def __init__(self, body: Callable[[Head], Body], *, one: bool = False) -> None:
        self.rest = bytearray()
        self._one = one
        self._body = body
        self._left = 0
        self._trailers: Fields = []
        self._state: Callable[[list[Event]], bool] = self._head

    def feed(self, octets: bytes) -> list[Event]:
        """Take more octets and return the events they complete."""
        self.rest += octets
        events: list[Event] = []
        while self._state(events):
            if self._one and events and isinstance(events[-1], End):
                break
        return events

    def eof(self) -> list[Event]:
        """Take the end of the stream: it ends a body that nothing else delimits, and cuts any other short."""
        if self._state == self._until_close:
            self._state = self._head
            return [End([])]
        if self._state == self._head and not self.rest:
            return []
        raise WireError("the stream ended inside a message")

    def _line(self) -> bytes | None:
        end = self.rest.find(b"\r\n")
        if end < 0:
            if b"\n" in self.rest:
                raise WireError("bare LF")
            return None
        line = bytes(self.rest[:end])
        if b"\r" in line or b"\n" in line:
            raise WireError(f"bare CR or LF in {line!r}")
        del self.rest[: end + 2]
        return line

    def _head(self, events: list[Event]) -> bool:
        end = self.rest.find(b"\r\n\r\n")
        if end < 0:
            return False
        raw = bytes(self.rest[: end + 4])
        start, *lines = raw[:-4].split(b"\r\n")
        if b"\n" in start or b"\r" in start or start.count(b" ") < 2:
            raise WireError(f"not a start line: {start!r}")
        head = Head(start, fields_of(lines), raw)
        body = self._body(head)
        del self.rest[: end + 4]
        events.append(head)
        if body == "chunked":
            self._state = self._chunk_size
        elif body == "close":
            self._state = self._until_close
        else:
            self._left, self._state = body, self._sized
        return True

    def _sized(self, events: list[Event]) -> bool:
        if self._take(events):
            self._finish(events, [])
            return True
        return False

    def _chunk_size(self, events: list[Event]) -> bool:
        line = self._line()
        if line is None:
            return False
        size = line.partition(b";")[0]
        if not _SIZE.fullmatch(size):
            raise WireError(f"not a chunk size: {line!r}")
        self._left = int(size, 16)
        self._trailers = []
        self._state = self._chunk if self._left else self._trailer
        return True

    def _chunk(self, events: list[Event]) -> bool:
        if not self._take(events) or len(self.rest) < 2:
            return False
        if self.rest[:2] != b"\r\n":
            raise WireError(f"a chunk ends in {bytes(self.rest[:2])!r}")
        del self.rest[:2]
        self._state = self._chunk_size
        return True

    def _trailer(self, events: list[Event]) -> bool:
        line = self._line()
        if line is None:
            return False
        if line:
            self._trailers += fields_of([line])
        else:
            self._finish(events, self._trailers)
        return True

    def _until_close(self, events: list[Event]) -> bool:
        self._left = len(self.rest)
        self._take(events)
        return False

    def _take(self, events: list[Event]) -> bool:
        octets = bytes(self.rest[: self._left])
        if octets:
            events.append(Data(octets))
            del self.rest[: len(octets)]
            self._left -= len(octets)
        return self._left == 0

    def _finish(self, events: list[Event], trailers: Fields) -> None:
        events.append(End(trailers))
        self._state = self._head
