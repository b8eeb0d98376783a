"""The response of one call, parsed as it comes. No socket in here: octets in, calls of a receiver out.

Rules
1. However the octets are cut into pieces, the receiver is told the same head and the same body octets.
2. After `fault`, `complete` or `mute` the receiver is told nothing more; what still comes only costs the connection.
3. Nothing is guessed: what two parsers could read differently (RFC 9112 section 6.3) is a fault, whatever llhttp
   makes of it. Only its strict mode is used. It reads RTSP and ICE too and tells of neither, so the first octets of
   every head are looked at.
4. An interim response is a head (RFC 9110 section 15.2): framing or a body octet in it is a fault. Between two heads
   there is nothing, or the caller would read it as a response that nobody gave.
5. The parser copies every slice of a body, so it is left out as soon as the rest of a body needs no parsing.
6. Octets of a body that come together are told together, whatever chunks they came in, and with the head if they came
   with it: a chunk is an event of the parser here, not a write to the caller.
"""

from __future__ import annotations

import sys
from typing import Final

import httptools

from gateway.proxy.call import Headers, Receiver
from gateway.proxy.headers import length_of

__all__ = ["HEADERS_LIMIT", "HEAD_LIMIT", "INTERIM_LIMIT", "Response"]

#: Octets of a response head, of trailers, of chunk extensions in a row. Envoy allows 60 KiB, HAProxy 16, nginx 4 or 8.
HEAD_LIMIT: Final = 64 * 1024
#: Fields of a response head; the same in Envoy and in http.client.
HEADERS_LIMIT: Final = 100
#: Interim responses in front of one response. Go took 5; telling of progress (102) needs more.
INTERIM_LIMIT: Final = 32

_PARSING: Final = -1
_UNTIL_CLOSE: Final = sys.maxsize
_PROTOCOL: Final = b"HTTP/"
_PLAIN: Final = b"HTTP/1.1 "
_END_OF_HEAD: Final = b"\r\n\r\n"
#: Octets of a head's end that may have come in the read before the one that completes it.
_STRADDLED: Final = len(_END_OF_HEAD) - 1
_NOT_HTTP: Final = "what the upstream responded with is not HTTP/1.1"
_ZERO: Final = ord("0")


class Response:
    """What is known of a response so far.

    `status` is 0 until the final head; `complete` by framing; `keep` whether the connection may carry another call
    after it; `fault` a sentence, or empty; `work` how many events the parser told of.
    """

    __deletable__ = ("_parser",)  # compiled classes keep attributes otherwise
    __slots__ = (
        "_begin", "_body", "_chunked", "_head", "_headers", "_interims", "_left", "_length", "_more", "_parser",
        "_quiet", "_receiver", "_seen", "_untold", "_without_body", "complete", "fault", "keep", "status", "work",
    )  # fmt: skip

    def __init__(self, receiver: Receiver, method: bytes) -> None:
        self._parser = httptools.HttpResponseParser(self)
        self._headers: Headers = []
        #: Octets of the body until they are told: the first, and what came in further chunks.
        self._body = b""
        self._more: list[bytes] = []
        self.begin(receiver, method)

    def begin(self, receiver: Receiver, method: bytes) -> None:
        """Read another response; the one before must have left the parser `reusable`."""
        self._receiver: Receiver | None = receiver
        self._without_body = method == b"HEAD"
        self._left = _PARSING
        self._quiet = self._seen = self._interims = self.status = self.work = 0
        self._length = -1
        #: Octets of heads, and where in them the one begins that is being read; -1 once its beginning was seen.
        self._head = b""
        self._begin = 0
        #: The fields of the final head until it is told.
        self._untold: Headers | None = None
        self.complete = self.keep = self._chunked = False
        self.fault = ""

    @property
    def until_close(self) -> bool:
        """True if the end of the connection is the end of this response."""
        return self._left == _UNTIL_CLOSE

    @property
    def parsing(self) -> bool:
        """True if octets are parsed, False if they only pass."""
        return self._left == _PARSING

    @property
    def reusable(self) -> bool:
        """True if the parser itself has seen the response end, and stands where another begins."""
        return self.complete and self.keep and self._left == _PARSING and not self._without_body

    def leave(self) -> None:
        """Let go of whom it was for."""
        self._receiver = None

    def mute(self) -> None:
        """Tell nobody any more. The parser knows us by our bound methods: let go of it, or only a collection would."""
        self._receiver = None
        del self._parser

    def feed(self, data: bytes) -> None:
        """Take the next octets. Raises only what the receiver raised."""
        if self._left != _PARSING:
            self._pass_on(data)
            return
        self._quiet += len(data)
        if not self.status:
            self._head = self._head + data if self._head else data
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserCallbackError as error:
            raise error.__context__ or error from None
        except (httptools.HttpParserError, httptools.HttpParserUpgrade):
            # What the parser's library says of it is neither ours to promise nor for callers to read.
            self.keep = False
            self._fail(_NOT_HTTP)
            return
        self._tell()
        if self.status:
            self._choose_path()
            self._head = b""
        else:
            self._rest()
        if self._quiet > HEAD_LIMIT:
            self._fail("the upstream's response head or trailer section is too large")

    # What the parser tells

    def on_message_begin(self) -> None:
        """Start a head; after the response, a second one is too much."""
        self._headers = []
        if self.complete:
            self.keep = False
            self._receiver = None

    def on_header(self, name: bytes, value: bytes) -> None:
        """Take a field of the head, or a trailer, which is dropped as any recipient may (RFC 9110 section 6.5.1)."""
        self._headers.append((name, value))

    def on_headers_complete(self) -> None:
        """Judge the head and pass it on."""
        receiver = self._receiver
        self.work += 1
        if receiver is None:
            return
        headers, self._headers = self._headers, []
        # What the line says of itself costs less than to ask the parser.
        begin, head = self._begin, self._head
        plain = begin >= 0 and head[begin : begin + len(_PLAIN)] == _PLAIN
        if plain and len(head) >= begin + len(_PLAIN) + 3:
            at = begin + len(_PLAIN)
            version, status = "1.1", 100 * head[at] + 10 * head[at + 1] + head[at + 2] - 111 * _ZERO
        else:
            version, status = self._parser.get_http_version(), self._parser.get_status_code()
        try:
            fault = self._judge(status, version, headers) if plain or self._names_http() else _NOT_HTTP
        except ValueError:  # a length that is none as it stands
            fault = self._judge_again(status, version, headers)
        if fault:
            self._fail(fault)
            return
        self._quiet = 0
        if status < 200:
            self._interims += 1
            self._begin = self._head.find(_END_OF_HEAD, max(self._begin, 0)) + len(_END_OF_HEAD)
            receiver.on_interim(status, headers)
            return
        self.status = status
        self.keep = self._parser.should_keep_alive()
        if self._without_body:
            self.complete = True
            self.keep = self.keep or (version == "1.1" and not _says_close(headers))
        self._untold = headers

    def on_body(self, chunk: bytes) -> None:
        """Pass a slice of the body on."""
        self._quiet = 0
        self.work += 1
        self._seen += len(chunk)
        if self.complete:
            self.keep = False
        elif self.status and not self._body:
            self._body = chunk
        elif not self.status:
            self._fail("the upstream's interim response has a body")
        else:
            self._more.append(chunk)

    def on_message_complete(self) -> None:
        """Complete the response, unless it was an interim one."""
        self._tell()
        if self.status:
            self.complete = True

    # How it is judged

    def _names_http(self) -> bool:
        return self._begin < 0 or self._head.startswith(_PROTOCOL, self._begin)

    def _rest(self) -> None:
        """Keep of a head that is not complete what its beginning or its end may need."""
        begin = self._begin
        if begin >= 0 and len(self._head) < begin + len(_PROTOCOL):
            self._head, self._begin = self._head[begin:], 0
        elif self._names_http():
            self._head, self._begin = self._head[-_STRADDLED:], -1
        else:
            self._fail(_NOT_HTTP)

    def _judge(self, status: int, version: str, headers: Headers) -> str:
        """Return the fault of a head, or nothing. ValueError of a Content-Length that is not one number of octets."""
        self._length = -1
        coding = None
        for name, value in headers:
            size = len(name)
            if size == 14 and (name == b"Content-Length" or name.lower() == b"content-length"):
                self._length = length_of(value)
            elif size == 17 and name.lower() == b"transfer-encoding":
                coding = value.lower() if coding is None else b""
        self._chunked = coding is not None
        if version not in ("1.1", "1.0") or not 100 <= status <= 599:
            return f"the upstream responded with HTTP/{version} and status {status}"
        if status == 101:
            return "the upstream switched protocols unasked"
        if len(headers) > HEADERS_LIMIT or (self._quiet > HEAD_LIMIT and _size(headers) > HEAD_LIMIT):
            return "the upstream's response head is too large"
        if status < 200:
            if coding is not None or self._length >= 0:
                return "the upstream's interim response has a body"
            if self._interims >= INTERIM_LIMIT:
                return "the upstream sent too many interim responses"
        if coding is not None and (coding != b"chunked" or version == "1.0"):
            return "the upstream's response has a transfer coding other than chunked"
        return ""

    def _judge_again(self, status: int, version: str, headers: Headers) -> str:
        """Judge without the blanks around a Content-Length, which are no part of it (RFC 9112 section 5.1)."""
        for at, (name, value) in enumerate(headers):
            if name.lower() == b"content-length":
                headers[at] = name, value.strip(b" \t")
        try:
            return self._judge(status, version, headers)
        except ValueError:
            return _NOT_HTTP

    def _choose_path(self) -> None:
        if self.complete or self._chunked:
            return
        self._left = _UNTIL_CLOSE if self._length < 0 else self._length - self._seen
        self._quiet = 0

    def _pass_on(self, data: bytes) -> None:
        left = self._left
        if left != _UNTIL_CLOSE:
            over = len(data) - left
            self._left = max(-over, 0)
            if over >= 0:
                self.complete = True
                if over:
                    self.keep = False
                    data = data[:left]
        if data and self._receiver is not None:
            self._receiver.on_data(data)

    def _tell(self) -> None:
        body, headers, receiver = self._body, self._untold, self._receiver
        if body:
            self._body = b""
            if self._more:
                body = b"".join([body, *self._more])
                self._more.clear()
        if receiver is None:
            return
        if headers is not None:
            self._untold = None
            receiver.on_response(self.status, headers, body)
        elif body:
            receiver.on_data(body)

    def _fail(self, fault: str) -> None:
        self._tell()
        if not self.complete:
            self.fault = self.fault or fault
            self._receiver = None


def _size(headers: Headers) -> int:
    return sum(len(name) + len(value) + 4 for name, value in headers)


def _says_close(headers: Headers) -> bool:
    return any(name.lower() == b"connection" and b"close" in value.lower() for name, value in headers)
