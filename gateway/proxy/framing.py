"""The framing of an edge server, by httptools' parser: octets in, heads and bodies out, within bounds.

    IDLE --first octet--> HEAD --head complete--> BODY --message complete--> IDLE
                                    `--a handshake--> OPAQUE --> the connection is another protocol's
      any of them --fault, deadline, or an answer that closes--> LINGER

Rules
1. Requests are begun only after all octets already received have parsed. A fault behind a good request in the same
   octets takes both: what cannot be framed is not passed on in part. Only of more than `BURST` requests at once is the
   rest left unparsed, as if it had not been received yet: no caller makes us keep thousands of heads.
2. A head is frozen when it is complete. Trailers are read, bounded, and dropped.
3. `max_header_bytes` and `max_headers` hold while a head is being received, not once it is complete; so does the bound
   on what stands beside a body (chunk sizes, extensions, trailers).
4. After the first fault nothing more is read as HTTP.
5. One connection works off no more than about `WORK` at a time, however much it has sent; then others have their turn.
   Octets of a body that came together go on together, whatever chunks they came in, and chunks that are far too small
   are refused.
"""

from __future__ import annotations

import asyncio
from enum import IntEnum
from typing import TYPE_CHECKING, Any, Final

import httptools

from gateway.ports import Rejection
from gateway.proxy.accepted import Accepted
from gateway.proxy.line import RequestLines
from gateway.proxy.names import BEARING, USUAL
from gateway.proxy.parse import Head
from gateway.proxy.reader import BodyReader, request_parser
from gateway.proxy.turn import Post, Turn

if TYPE_CHECKING:
    from uvicorn.config import Config
    from uvicorn.server import ServerState

    from gateway.ports import Headers

__all__ = [
    "BODY", "BODY_STRIDE", "BURST", "HEAD", "IDLE", "LINGER", "MAX_OVERHEAD", "OPAQUE", "SLICE", "WORK", "Framing",
    "State",
]  # fmt: skip

#: Octets of a request body that must arrive within each `body_timeout`.
BODY_STRIDE: Final = 16 * 1024
#: Octets of trailers, chunk sizes and extensions beside a body, beyond what the body itself excuses.
MAX_OVERHEAD: Final = 64 * 1024
#: Requests that are parsed before the first of them is begun; beyond that, octets wait as they are.
BURST: Final = 64
#: Octets that are parsed at once: between requests, and inside a body.
SLICE: Final = 16 * 1024
BODY_SLICE: Final = 64 * 1024
#: The same where chunks are so small that their number is the work, and how small that is on average.
DENSE_SLICE: Final = 2 * 1024
DENSE: Final = 64
#: Chunks and reads, and 4 KiB pieces of what was read, that are worked off before others have their turn.
WORK: Final = 256
#: Octets that a chunk should carry on average, where more than a few come together.
CHUNK: Final = 32
FEW: Final = 16

_MALFORMED: Final = Rejection(400, "bad-framing", "The request is not well-formed HTTP/1.1.")
_OLD: Final = Rejection(400, "bad-framing", "HTTP/0.9 is not spoken here.")
_VERSION: Final = Rejection(505, "version-not-supported", "")
_LONG_TARGET: Final = Rejection(414, "uri-too-long", "")
_LARGE_HEAD: Final = Rejection(431, "headers-too-large", "")
_LARGE_TRAILER: Final = Rejection(431, "headers-too-large", "The trailers or the chunk sizes are larger than is read.")
_CHOPPED: Final = Rejection(400, "bad-framing", "The body comes in chunks that are far too small.")

_VERSIONS: Final = frozenset({"1.1", "1.0"})
#: What llhttp says of a version that is well-formed and that it does not know.
_OTHER_VERSION: Final = "Invalid HTTP version"
_SPACE: Final = 0x20
_TAB: Final = 0x09
_FRAMING: Final = frozenset({b"content-length", b"transfer-encoding"})


class State(IntEnum):
    """What a connection receives now."""

    IDLE = 0
    HEAD = 1
    BODY = 2
    OPAQUE = 3
    LINGER = 4


# Looked up once: a member of an enum costs as much as a call.
IDLE: Final = State.IDLE
HEAD: Final = State.HEAD
BODY: Final = State.BODY
OPAQUE: Final = State.OPAQUE
LINGER: Final = State.LINGER


class _FaultError(Exception):
    """Raised inside a parser callback, to stop the parser."""


class Framing(Accepted):
    """One connection's octets; a subclass says what becomes of what was read."""

    def __init__(
        self,
        post: Post,
        config: Config,
        server_state: ServerState,
        app_state: dict[str, Any],
        _loop: asyncio.AbstractEventLoop | None = None,
    ) -> None:
        super().__init__(config, server_state, app_state, _loop)
        self.post = post
        self.parser = request_parser(self)
        self.url = b""
        self.headers: Headers = []
        self._state = IDLE
        self._fault: Rejection | None = None
        #: The request whose body is being received, and those of these octets that are not begun yet.
        self._receiving: Turn | None = None
        self._begun: list[Turn] = []
        self._heads = self._weight = self._raw = self._octets = self._stride = self._overhead = self._seen = 0
        #: What was received and waits to be parsed.
        self._unfed = b""
        #: What was worked off since others last had their turn; chunks in these octets, and whether they are small.
        self._work = self._chunks = 0
        self._chunked = self._dense = False
        #: Octets of a body that these octets brought.
        self._parts: list[bytes] = []
        #: What the parser does not tell of request lines.
        self._lines = RequestLines()
        #: Whether the head that was read last asks for an upgrade and announces a body.
        self._upgrading = False
        #: Whether it says anything that bears upon what follows it.
        self._bears = False
        #: What follows a handshake.
        self._opaque = b""
        #: Whether what these octets were part of deserves a deadline of its own.
        self._fresh = False

    # A subclass's

    def turn(self, head: Head, *, keep_alive: bool, upgrade: bool) -> Turn:
        """Return the turn of a request; `keep_alive` and `upgrade` are what its head asks for."""
        raise NotImplementedError  # a subclass's, as is said above

    def received(self) -> None:
        """Begin what `_begun` holds, and keep the time: all octets have parsed."""
        raise NotImplementedError  # a subclass's, as is said above

    def refuse(self, fault: Rejection) -> None:
        """Answer a fault, behind the answers still owed. What came with it is not begun (rule 1)."""
        raise NotImplementedError  # a subclass's, as is said above

    def regulate(self) -> None:
        """Read on, or not."""
        raise NotImplementedError  # a subclass's, as is said above

    def rest(self) -> None:
        """Keep the time of a connection that receives nothing now."""
        raise NotImplementedError  # a subclass's, as is said above

    # Octets

    def data_received(self, data: bytes) -> None:
        """Parse; then, if all of it is well-formed, begin what it asks for (rule 1)."""
        if self._unfed:
            self._unfed += data
            self.regulate()
        elif self._state is OPAQUE:
            self._opaque += data
        elif self._state is not LINGER and self._fault is None:
            self._take(data)

    def refill(self) -> None:
        """Go on with what was left unparsed: others had their turn."""
        data, self._unfed = self._unfed, b""
        self._work = 0
        if data and self._state is not LINGER and self._fault is None:
            self._take(data)

    def _take(self, data: bytes) -> None:
        self._fresh = False
        at, end = 0, len(data)
        while True:
            size = self._slice()
            piece = data[at : at + size] if at or end > size else data
            at += len(piece)
            fault = self._parse(piece)
            if fault is not None:
                self.refuse(fault)
                return
            if self._state is LINGER:
                return  # answered while it was read: what followed is discarded, and its time is short
            if self._state is OPAQUE:
                self._opaque += data[at:]
                at = end
            if at == end or len(self._begun) > BURST or self._work > WORK:
                break
        self._unfed = data[at:]
        self.received()
        if self._work > WORK:
            self.regulate()

    def _slice(self) -> int:
        """Return how much is parsed at once."""
        if self._dense:
            return DENSE_SLICE
        # How a body is framed shows with its first octets: the pieces of a chunked one are kept small.
        return BODY_SLICE if self._state is BODY and self._octets and not self._chunked else SLICE

    def _parse(self, data: bytes) -> Rejection | None:
        state = self._state
        if state is IDLE:
            self._state = HEAD
            self._raw = 0
            self._fresh = True
        self._heads = self._chunks = 0
        self._seen = self._octets
        self._lines.feed(data, begins=state is IDLE)
        fault = self._feed(data)
        if self._state is IDLE:
            self._lines.forget()
        else:
            self._lines.rest(inside=self._state is HEAD)
        size = len(data)
        self._work += 1 + self._chunks + (size >> 12)
        self._dense = self._chunks * DENSE > size
        if fault is None:
            self._pass_on()
            fault = self._measure(state, size)
        self._parts.clear()
        return fault

    def _pass_on(self) -> None:
        """Hand what came of a body to the request that it belongs to, in one piece."""
        parts = self._parts
        if parts:
            body = parts[0] if len(parts) == 1 else b"".join(parts)
            parts.clear()
            if self._receiving is not None:
                self._receiving.body(body)
                self.regulate()

    def _feed(self, data: bytes) -> Rejection | None:
        """Parse; return what is wrong, if anything is."""
        rest: bytes | memoryview = data
        try:
            while rest:
                try:
                    self.parser.feed_data(rest)
                except httptools.HttpParserUpgrade as upgrade:
                    rest = memoryview(rest)[upgrade.args[0] :]
                    if self._begun and self._begun[-1].opaque:
                        self._state = OPAQUE
                        self._opaque = bytes(rest)
                        break
                    self._ignore_upgrade()
                else:
                    break
        except httptools.HttpParserError as error:
            return self._fault or (_VERSION if str(error) == _OTHER_VERSION else _MALFORMED)
        return None

    def _ignore_upgrade(self) -> None:
        """Read on as HTTP: an Upgrade to what is not spoken here is an ordinary request (RFC 9110 section 7.8).

        httptools ends such a request with its head, whatever body it announces. So the body is read by a parser that
        was told of its framing alone.
        """
        reading = self.parser = request_parser(BodyReader(self) if self._upgrading else self)
        if self._upgrading:
            self._upgrading = False
            framing = b"".join(b"%b: %b\r\n" % field for field in self.headers if field[0] in _FRAMING)
            reading.feed_data(b"POST / HTTP/1.1\r\n" + framing + b"\r\n")

    def _measure(self, before: State, size: int) -> Rejection | None:
        """Weigh what the parser has not told of: an unfinished line, or what stands between the pieces of a body."""
        limits = self.post.limits
        if self._state is HEAD:
            # Exact where one head is all there is; behind others in the same octets it is one read late.
            if self._heads == 0 or (self._heads == 1 and before is IDLE):
                self._raw += size
            if self._raw > limits.max_header_bytes:
                return _LARGE_HEAD if self.headers else _LONG_TARGET
        elif self._state is BODY and before is BODY and self._heads == 0:
            beside = size - (self._octets - self._seen)
            if beside > 0:
                self._raw += beside
                if self._raw > MAX_OVERHEAD + 8 * self._octets:
                    return _LARGE_TRAILER
        return None

    # What the parser tells

    def on_message_begin(self) -> None:
        """Begin a head."""
        self.url = b""
        self.headers = []
        self._state = HEAD
        self._upgrading = self._chunked = self._bears = False
        self._fresh = True
        self._heads += 1
        self._weight = self._raw = self._overhead = 0

    def on_url(self, url: bytes) -> None:
        """Collect the target, in however many pieces it comes."""
        self.url += url
        self._weight += len(url)
        if self._weight > self.post.limits.max_header_bytes:
            self._stop(_LONG_TARGET)

    def on_header(self, name: bytes, value: bytes) -> None:
        """Collect a field of the head; a trailer is only weighed (rule 2)."""
        weight = len(name) + len(value) + 4
        if self._state is BODY:
            self._weigh(weight)
            return
        if value and ((last := value[-1]) == _SPACE or last == _TAB):
            # RFC 9112 section 5.1: whitespace around a value is no part of it; llhttp leaves what is behind it.
            value = value.rstrip(b" \t")
        usual = USUAL.get(name)
        if usual is None:
            usual = name.lower()
            self._bears |= usual in BEARING
        self.headers.append((usual, value))
        self._weight += weight
        limits = self.post.limits
        if self._weight > limits.max_header_bytes or len(self.headers) > limits.max_headers:
            self._stop(_LARGE_HEAD)

    def on_headers_complete(self) -> None:
        """Freeze the head; its request begins once everything received has parsed."""
        reading = self.parser
        lines, version = self._lines, "1.1"
        method = reading.get_method()
        # Where the line is known to be, it says its version itself, for less than the parser does.
        if not (lines.exact and lines.read(method, self.url, version, self.headers)):
            version = reading.get_http_version()
            if version not in _VERSIONS:
                self._stop(_OLD if version == "0.9" else _VERSION)
            if not lines.read(method, self.url, version, self.headers):
                self._stop(_MALFORMED)
        # Of the others it is known: they keep the connection, and do not upgrade it (llhttp_should_keep_alive).
        asks = self._bears or version != "1.1" or method == b"CONNECT"
        upgrade = asks and reading.should_upgrade()
        if upgrade:
            self._upgrading = any(name in _FRAMING and value != b"0" for name, value in self.headers)
        self._state = BODY
        self._octets = self._stride = self._raw = self._seen = 0
        head = Head(method, self.url, self.headers, self.peer, self.scheme, version, measured=True)
        keep_alive = not (asks and not reading.should_keep_alive()) and not self.post.draining
        turn = self._receiving = self.turn(head, keep_alive=keep_alive, upgrade=upgrade)
        self._begun.append(turn)
        self._fresh = True

    def on_chunk_header(self) -> None:
        """Weigh a chunk: very many tiny ones are work without a body. Few at a time are as they were written."""
        self._chunks += 1
        self._chunked = True
        if self._chunks > FEW:
            self._overhead += CHUNK
            if self._overhead > MAX_OVERHEAD:
                self._stop(_CHOPPED)

    def on_body(self, body: bytes) -> None:
        """Keep octets of the body for the request that they belong to."""
        size = len(body)
        self._overhead = max(0, self._overhead - size)
        self._octets += size
        if self._octets - self._stride >= BODY_STRIDE:
            self._stride = self._octets
            self._fresh = True
        self._parts.append(body)

    def on_message_complete(self) -> None:
        """Note that the request is whole; the next one may come."""
        if self._upgrading:
            return  # its body has not been read yet
        self._pass_on()
        self._state = IDLE
        receiving, self._receiving = self._receiving, None
        if receiving is not None:
            receiving.body_end()
        self.rest()

    def _weigh(self, octets: int) -> None:
        self._overhead += octets
        if self._overhead > MAX_OVERHEAD:
            self._stop(_LARGE_TRAILER)

    def _stop(self, fault: Rejection) -> None:
        self._fault = fault
        raise _FaultError
