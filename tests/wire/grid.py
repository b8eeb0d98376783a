"""Requests that are malformed, ambiguous or merely odd, each with its clause; and what is to become of it.

A row's `end` is one of

- `cut STATUS`: refused as framing. What came with it in the same octets is not begun either, and the connection closes.
- `no STATUS`: refused as a request. What came before it is served.
- `ok`: passed on, as `target`, `body` and `fields` say; they are what the upstream must see, octet for octet.

`{T}` in a row stands for a token. In the clauses `9110-8.6` is RFC 9110 section 8.6.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from tests.wire.rows import (
    AUTH,
    CHUNKS,
    CHUNKS_OK,
    CL,
    CODINGS,
    ENDS,
    FIELDS,
    FIVE,
    HIDDEN,
    HOST,
    HOSTS,
    HOSTS_OK,
    LENGTHS,
    LINES,
    PASSED,
    TARGETS,
    TE,
    VERSIONS,
)

__all__ = ["GRID", "Row"]


@dataclass(frozen=True, slots=True)
class Row:
    """One request: its octets after `{T}` is replaced, and what is to become of it."""

    name: str
    clause: str
    octets: bytes
    end: str
    method: str = "GET"
    target: bytes = b"/x"
    body: bytes = b""
    fields: tuple[bytes, ...] = ()

    @property
    def passes(self) -> bool:
        """Whether it reaches the upstream."""
        return self.end == "ok"

    @property
    def status(self) -> int:
        """The status that its caller sees."""
        return 200 if self.passes else int(self.end.split()[1])


_Lines = Iterable[tuple[str, bytes, str]]


def _line(clause: str, rows: _Lines) -> Iterator[Row]:
    """Request lines in front of good fields."""
    for name, line, end in rows:
        yield Row(f"line: {name}", clause, line + HOST + AUTH + b"\r\n", end)


def _target(clause: str, rows: Iterable[tuple[bytes, str]]) -> Iterator[Row]:
    for target, end in rows:
        octets = b"GET " + target + b" HTTP/1.1\r\n" + HOST + AUTH + b"\r\n"
        yield Row(f"target: {target!r}", clause, octets, end, target=target)


def _field(clause: str, rows: _Lines) -> Iterator[Row]:
    """Field lines between good ones; one that passes is passed on as `x: y` unless the row says otherwise."""
    for name, line, end in rows:
        yield Row(f"field: {name}", clause, b"GET /x HTTP/1.1\r\n" + HOST + AUTH + line + b"\r\n", end)


def _host(rows: _Lines) -> Iterator[Row]:
    for name, lines, end in rows:
        yield Row(f"host: {name}", "9112-3.2", b"GET /x HTTP/1.1\r\n" + AUTH + lines + b"\r\n", end)


def _framed(clause: str, rows: Iterable[tuple[str, bytes, str]], body: bytes, seen: bytes = b"hello") -> Iterator[Row]:
    """Framing fields of a POST with `body`, a hidden request behind it."""
    for name, lines, end in rows:
        octets = b"POST /x HTTP/1.1\r\n" + HOST + AUTH + lines + b"\r\n" + body
        yield Row(f"framing: {name}", clause, octets, end, "POST", body=seen)


def _chunks(clause: str, rows: Iterable[tuple[str, bytes, str]], seen: bytes = b"hello") -> Iterator[Row]:
    """Chunked bodies."""
    head = b"POST /x HTTP/1.1\r\n" + HOST + AUTH + b"Transfer-Encoding: chunked\r\n\r\n"
    for name, body, end in rows:
        yield Row(f"chunk: {name}", clause, head + body, end, "POST", body=seen)


def _controls() -> Iterator[Row]:
    """Every control octet, in a value, a name and a target."""
    for octet in (*range(0x20), 0x7F):
        at = bytes([octet])
        if octet not in (0x09, 0x0A, 0x0D):
            yield from _field("9110-5.5", [(f"value with {octet:#04x}", b"X: a" + at + b"b\r\n", "cut 400")])
        if octet not in (0x0A, 0x0D):
            yield from _target("3986-3.3", [(b"/x" + at + b"y", "cut 400")])
        yield from _field("9110-5.1", [(f"name with {octet:#04x}", b"X" + at + b"Y: a\r\n", "cut 400")])


def _delimiters() -> Iterator[Row]:
    for octet in b'"(),/;<=>?@[\\]{} \x80\xff':
        at = bytes([octet])
        yield from _field("9110-5.6.2", [(f"name with {at!r}", b"X" + at + b"Y: a\r\n", "cut 400")])
        if octet != 0x20:
            yield from _line("9110-9.1", [(f"method with {at!r}", b"GE" + at + b"T /x HTTP/1.1\r\n", "cut 400")])


def _passed() -> Iterator[Row]:
    """Yield what is odd, and right."""

    def plain(name: str, clause: str, lines: bytes, *fields: bytes) -> Row:
        return Row(name, clause, b"GET /x HTTP/1.1\r\n" + HOST + AUTH + lines + b"\r\n", "ok", fields=fields)

    def post(name: str, clause: str, lines: bytes, body: bytes, seen: bytes = b"hello") -> Row:
        octets = b"POST /x HTTP/1.1\r\n" + HOST + AUTH + lines + b"\r\n" + body
        return Row(name, clause, octets, "ok", "POST", body=seen)

    yield plain("field: an empty value", "9110-5.5", b"X:\r\n", b"x: ")
    yield plain("field: spaces around its value", "9112-5.1", b"X: \t a \t \r\n", b"x: a")
    yield plain("field: a tab inside its value", "9110-5.5", b"X: a\tb\r\n", b"x: a\tb")
    yield plain("field: octets beyond ASCII", "9110-5.5", b"X: \xc3\xa9\xff\r\n", b"x: \xc3\xa9\xff")
    yield plain("field: a colon inside its value", "9110-5.5", b"X: a: b\r\n", b"x: a: b")
    yield plain("field: twice", "9110-5.3", b"X: a\r\nX: b\r\n", b"x: a", b"x: b")
    yield plain("field: nominated by Connection", "9110-7.6.1", b"Connection: x\r\nX: a\r\n")
    yield plain("field: Connection names what is ours", "9110-7.6.1", b"Connection: via, x-request-id, host\r\n")
    yield plain("field: Keep-Alive, TE and Upgrade", "9110-7.6.1", b"Keep-Alive: 5\r\nTE: trailers\r\nUpgrade: x\r\n")
    yield plain("field: Connection names an upgrade", "9110-7.8", b"Connection: upgrade\r\nUpgrade: h2c\r\n")
    yield plain("field: an underscore twin of ours", "9110-5.1", b"X_Request_Id: a\r\nEvenhand_Tenant: b\r\n")
    yield plain("field: a length of 0", "9110-8.6", b"Content-Length: 0\r\n")
    yield plain("field: a twin of a length", "9110-8.6", b"Content_Length: 5\r\n")
    yield plain("field: a twin of a coding", "9112-6.1", b"Transfer_Encoding: chunked\r\n")
    yield post("framing: a length with zeros", "9110-8.6", b"Content-Length: 0005\r\n", b"hello")
    yield post("framing: a length around spaces", "9112-5.1", b"Content-Length: \t5 \r\n", b"hello")
    yield post("framing: chunked in capitals", "9112-7", b"Transfer-Encoding: CHUNKED\r\n", FIVE)
    yield post("framing: chunked behind a tab", "9112-5.1", b"Transfer-Encoding:\tchunked \r\n", FIVE)
    yield post("framing: Connection names the length", "9110-7.6.1", b"Connection: content-length\r\n" + CL, b"hello")
    yield post("framing: Connection names the coding", "9110-7.6.1", b"Connection: transfer-encoding\r\n" + TE, FIVE)
    yield post("framing: an upgrade and a length", "9110-7.8", b"Connection: upgrade\r\nUpgrade: x\r\n" + CL, b"hello")
    yield post("framing: an upgrade and a coding", "9110-7.8", b"Connection: upgrade\r\nUpgrade: x\r\n" + TE, FIVE)
    yield post("framing: a body like a request", "9112-6.3", b"Content-Length: %d\r\n" % len(HIDDEN), HIDDEN, HIDDEN)
    body = b"GET /x HTTP/1.1\r\n" + HOST + AUTH + CL + b"\r\nhello"
    yield Row("framing: a body of a GET", "9110-9.3.1", body, "ok", body=b"hello")
    for host in HOSTS_OK:
        octets = b"GET /x HTTP/1.1\r\n" + AUTH + b"Host: " + host + b"\r\n\r\n"
        yield Row(f"host: {host!r}", "9112-3.2", octets, "ok", fields=(b"@host: " + host,))
    absolute = b"GET http://a.example:81/x?y HTTP/1.1\r\n" + HOST + AUTH + b"\r\n"
    yield Row("target: absolute", "9112-3.2.2", absolute, "ok", target=b"/x?y", fields=(b"@host: a.example:81",))
    octets = b"OPTIONS * HTTP/1.1\r\n" + HOST + AUTH + b"\r\n"
    yield Row("target: *", "9112-3.2.4", octets, "ok", "OPTIONS", target=b"*")


def _odd() -> Iterator[Row]:
    """Yield what is well framed, and refused for another reason."""
    head = b"GET /x HTTP/1.1\r\n" + HOST + AUTH
    old = b"POST /x HTTP/1.0\r\n" + HOST + AUTH
    yield Row("framing: a coding in HTTP/1.0", "9112-6.1", old + TE + b"\r\n" + FIVE, "no 400", "POST")
    yield Row("field: Expect of another thing", "9110-10.1.1", head + b"Expect: 200-ok\r\n\r\n", "no 417")
    twice = head + b"Expect: 100-continue\r\nExpect: 100-continue\r\n\r\n"
    yield Row("field: Expect twice", "9110-10.1.1", twice, "no 417")
    yield Row("field: Expect with more", "9110-10.1.1", head + b"Expect: y 100-continue\r\n\r\n", "no 417")
    websocket = head + b"Connection: upgrade\r\nUpgrade: websocket\r\n\r\n"
    yield Row("field: half a WebSocket handshake", "6455-4.2.1", websocket, "no 400")


GRID: tuple[Row, ...] = (
    *_line("9112-2.3", VERSIONS),
    *_line("9112-3", LINES),
    *_target("9112-3.2", TARGETS),
    *_target("3986-3.3", [(target, "ok") for target in PASSED]),
    *_field("9112-5", FIELDS),
    *(Row(f"field: {name}", "9112-2.2", octets, end) for name, octets, end in ENDS),
    *_host(HOSTS),
    *_framed("9112-6.3", LENGTHS, b"hello" + HIDDEN),
    *_framed("9112-6.1", CODINGS, FIVE + HIDDEN),
    *_chunks("9112-7.1", [(name, body + HIDDEN, end) for name, body, end in CHUNKS]),
    *(row for name, body, seen in CHUNKS_OK for row in _chunks("9112-7.1", [(name, body, "ok")], seen)),
    *_delimiters(),
    *_controls(),
    *_passed(),
    *_odd(),
)
