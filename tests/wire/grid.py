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


AUTH = b"Authorization: Bearer {T}\r\n"
HOST = b"Host: api.example.com\r\n"
#: What a request must not be able to hide in what follows it.
HIDDEN = b"GET /hidden HTTP/1.1\r\n" + HOST + b"\r\n"

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


CL, TE = b"Content-Length: 5\r\n", b"Transfer-Encoding: chunked\r\n"
FIVE = b"5\r\nhello\r\n0\r\n\r\n"

_VERSIONS = [
    ("no version", b"GET /x\r\n", "cut 400"),
    ("HTTP/0.9", b"GET /x HTTP/0.9\r\n", "cut 400"),
    ("HTTP/1.2", b"GET /x HTTP/1.2\r\n", "cut 505"),
    ("HTTP/1.10", b"GET /x HTTP/1.10\r\n", "cut 400"),
    ("HTTP/01.1", b"GET /x HTTP/01.1\r\n", "cut 400"),
    ("HTTP/2.0", b"GET /x HTTP/2.0\r\n", "cut 505"),
    ("HTTP/3.0", b"GET /x HTTP/3.0\r\n", "cut 505"),
    ("HTTP/9.9", b"GET /x HTTP/9.9\r\n", "cut 505"),
    ("HTTP/1", b"GET /x HTTP/1\r\n", "cut 400"),
    ("HTTP/1.", b"GET /x HTTP/1.\r\n", "cut 400"),
    ("HTTP/.1", b"GET /x HTTP/.1\r\n", "cut 400"),
    ("HTTP/-1.1", b"GET /x HTTP/-1.1\r\n", "cut 400"),
    ("http/1.1", b"GET /x http/1.1\r\n", "cut 400"),
    ("Http/1.1", b"GET /x Http/1.1\r\n", "cut 400"),
    ("HTTPS/1.1", b"GET /x HTTPS/1.1\r\n", "cut 400"),
    ("HTTP 1.1", b"GET /x HTTP 1.1\r\n", "cut 400"),
    ("HTTP /1.1", b"GET /x HTTP /1.1\r\n", "cut 400"),
    ("HTTP/1,1", b"GET /x HTTP/1,1\r\n", "cut 400"),
    ("HTTP/1.1x", b"GET /x HTTP/1.1x\r\n", "cut 400"),
    ("a word behind the version", b"GET /x HTTP/1.1 y\r\n", "cut 400"),
    ("a space behind the version", b"GET /x HTTP/1.1 \r\n", "cut 400"),
    ("a tab behind the version", b"GET /x HTTP/1.1\t\r\n", "cut 400"),
    ("RTSP", b"OPTIONS /x RTSP/1.0\r\n", "cut 400"),
    ("ICE", b"SOURCE /x ICE/1.0\r\n", "cut 400"),
    ("the preface of HTTP/2", b"PRI * HTTP/2.0\r\n", "cut 400"),
]
_LINES = [
    ("a bare LF at its end", b"GET /x HTTP/1.1\n", "cut 400"),
    ("a bare CR at its end", b"GET /x HTTP/1.1\r", "cut 400"),
    ("CR CR LF at its end", b"GET /x HTTP/1.1\r\r\n", "cut 400"),
    ("LF CR at its end", b"GET /x HTTP/1.1\n\r", "cut 400"),
    ("a space in front", b" GET /x HTTP/1.1\r\n", "cut 400"),
    ("a tab in front", b"\tGET /x HTTP/1.1\r\n", "cut 400"),
    ("an empty line in front", b"\r\nGET /x HTTP/1.1\r\n", "ok"),
    ("two spaces behind the method", b"GET  /x HTTP/1.1\r\n", "ok"),
    ("two spaces in front of the version", b"GET /x  HTTP/1.1\r\n", "ok"),
    ("a tab behind the method", b"GET\t/x HTTP/1.1\r\n", "cut 400"),
    ("a tab in front of the version", b"GET /x\tHTTP/1.1\r\n", "cut 400"),
    ("a vertical tab behind the method", b"GET\x0b/x HTTP/1.1\r\n", "cut 400"),
    ("a form feed behind the method", b"GET\x0c/x HTTP/1.1\r\n", "cut 400"),
    ("a no-break space behind the method", b"GET\xa0/x HTTP/1.1\r\n", "cut 400"),
    ("a CR behind the method", b"GET\r/x HTTP/1.1\r\n", "cut 400"),
    ("no method", b"/x HTTP/1.1\r\n", "cut 400"),
    ("no target", b"GET HTTP/1.1\r\n", "cut 400"),
    ("no target, two spaces", b"GET  HTTP/1.1\r\n", "cut 400"),
    ("a method in lower case", b"get /x HTTP/1.1\r\n", "cut 400"),
    ("a method in mixed case", b"Get /x HTTP/1.1\r\n", "cut 400"),
    ("a method nobody knows", b"FOO /x HTTP/1.1\r\n", "cut 400"),
    ("a method with a NUL", b"GET\x00 /x HTTP/1.1\r\n", "cut 400"),
    ("a method and more", b"GETX /x HTTP/1.1\r\n", "cut 400"),
    ("TRACE", b"TRACE /x HTTP/1.1\r\n", "no 405"),
    ("CONNECT to an authority", b"CONNECT a:443 HTTP/1.1\r\n", "no 405"),
    ("CONNECT to a path", b"CONNECT /x HTTP/1.1\r\n", "no 405"),
    ("* with GET", b"GET * HTTP/1.1\r\n", "no 400"),
]
_TARGETS = [
    (b"x", "cut 400"),
    (b"a:80", "cut 400"),
    (b"http:/x", "cut 400"),
    (b"http:x", "cut 400"),
    (b"http://", "no 400"),
    (b"http:///x", "no 400"),
    (b"http://u@h/x", "no 400"),
    (b"http://u:p@h/x", "no 400"),
    (b"http://h:port/x", "no 400"),
    (b"http://h\\x", "cut 400"),
    (b"ftp://h/x", "no 400"),
    (b"file:///x", "no 400"),
    (b"javascript:x", "cut 400"),
    (b"//h/x", "no 400"),
    (b"/x#y", "no 400"),
    (b"/x?y#z", "no 400"),
    (b"?x", "cut 400"),
    (b"#x", "cut 400"),
    (b"\\x", "cut 400"),
    (b"/x\\y", "no 400"),
    (b"/x%", "no 400"),
    (b"/x%4", "no 400"),
    (b"/x%zz", "no 400"),
    (b"/x%00", "no 400"),
    (b"/x%5c", "no 400"),
    (b"/x/%2e%2e/y", "no 400"),
    (b"/x/.%2e/y", "no 400"),
    (b"/x/%252e%252e/y", "no 400"),
    (b"/x/..;/y", "no 400"),
    (b"/x;a/../y", "no 400"),
    (b"/../x", "no 400"),
    (b"/x//y", "no 400"),
    (b"/x%2f/y", "no 400"),
    (b"/x\xc3\xa9", "cut 400"),
    (b"/x\xff", "cut 400"),
]
_PASSED = [
    b"/",
    b"/x?",
    b"/x?a=%zz&b",
    b"/a%20b+c",
    b"/%7Eu/%41",
    b"/a%2Fb",
    b"/x;p=1",
    b"/x/",
    b"/a/./b",
    b"/a/../b",
    b"/*",
]
_FIELDS = [
    ("a space in front of the colon", b"X : a\r\n", "cut 400"),
    ("a tab in front of the colon", b"X\t: a\r\n", "cut 400"),
    ("no colon", b"X\r\n", "cut 400"),
    ("no name", b": a\r\n", "cut 400"),
    ("a line folded with a space", b"X: a\r\n b\r\n", "cut 400"),
    ("a line folded with a tab", b"X: a\r\n\tb\r\n", "cut 400"),
    ("a folded line of nothing", b"X: a\r\n \r\n", "cut 400"),
    ("a folded name", b"X\r\n : a\r\n", "cut 400"),
    ("a bare LF at its end", b"X: a\n", "cut 400"),
    ("a bare LF, and another field", b"X: a\nHost: evil\r\n", "cut 400"),
    ("a bare CR, and another field", b"X: a\rHost: evil\r\n", "cut 400"),
    ("CR CR LF at its end", b"X: a\r\r\n", "cut 400"),
    ("a bare CR in its value", b"X: a\rb\r\n", "cut 400"),
    ("a line of spaces", b"   \r\n", "cut 400"),
    ("a space in front of the name", b" X: a\r\n", "cut 400"),
]
_ENDS = [
    ("head ends in LF LF", b"GET /x HTTP/1.1\r\n" + HOST + AUTH.replace(b"\r\n", b"\n") + b"\n", "cut 400"),
    ("head ends in CR LF LF", b"GET /x HTTP/1.1\r\n" + HOST + AUTH + b"\n", "cut 400"),
    ("head ends in CR LF CR CR LF", b"GET /x HTTP/1.1\r\n" + HOST + AUTH + b"\r\r\n", "cut 400"),
    ("fields begin with a folded one", b"GET /x HTTP/1.1\r\n Host: a\r\n" + AUTH + b"\r\n", "cut 400"),
]
_HOSTS = [
    ("none", b"", "no 400"),
    ("none, but an underscore twin", b"Host_: a\r\n", "no 400"),
    ("two", b"Host: a\r\nHost: b\r\n", "no 400"),
    ("two alike", b"Host: a\r\nHost: a\r\n", "no 400"),
    ("two, of different case", b"Host: a\r\nhOST: b\r\n", "no 400"),
    ("empty", b"Host:\r\n", "no 400"),
    ("a list", b"Host: a, b\r\n", "no 400"),
    ("with a user", b"Host: u@a\r\n", "no 400"),
    ("with a path", b"Host: a/x\r\n", "no 400"),
    ("with a scheme", b"Host: http://a\r\n", "no 400"),
    ("with a query", b"Host: a?x\r\n", "no 400"),
    ("with a fragment", b"Host: a#x\r\n", "no 400"),
    ("with a space", b"Host: a b\r\n", "no 400"),
    ("with a tab", b"Host: a\tb\r\n", "no 400"),
    ("with a port that is none", b"Host: a:b\r\n", "no 400"),
    ("with two ports", b"Host: a:1:2\r\n", "no 400"),
    ("with too long a port", b"Host: a:123456\r\n", "no 400"),
    ("with a broken bracket", b"Host: [::1\r\n", "no 400"),
    ("with brackets around a name", b"Host: [a.b]x\r\n", "no 400"),
    ("beyond ASCII", b"Host: \xc3\xa9.example\r\n", "no 400"),
    ("in front of a space and a colon", b"Host : a\r\n", "cut 400"),
]
_HOSTS_OK = [b"a", b"a:80", b"a:", b"[::1]:80", b"127.0.0.1", b"a_b.example"]
_LENGTHS = [
    ("a length with +", b"Content-Length: +5\r\n", "cut 400"),
    ("a length with -", b"Content-Length: -5\r\n", "cut 400"),
    ("a length in hex", b"Content-Length: 0x5\r\n", "cut 400"),
    ("a length with a point", b"Content-Length: 5.0\r\n", "cut 400"),
    ("a length with an exponent", b"Content-Length: 5e0\r\n", "cut 400"),
    ("a length with an underscore", b"Content-Length: 0_5\r\n", "cut 400"),
    ("an empty length", b"Content-Length:\r\n", "cut 400"),
    ("a length of a word", b"Content-Length: five\r\n", "cut 400"),
    ("a length with a space inside", b"Content-Length: 5 5\r\n", "cut 400"),
    ("a length with a parameter", b"Content-Length: 5;x\r\n", "cut 400"),
    ("a list of lengths", b"Content-Length: 5, 6\r\n", "cut 400"),
    ("a list of equal lengths", b"Content-Length: 5, 5\r\n", "cut 400"),
    ("two lengths", CL + b"Content-Length: 6\r\n", "cut 400"),
    ("two equal lengths", CL + CL, "cut 400"),
    ("a length beyond 64 bits", b"Content-Length: 18446744073709551621\r\n", "cut 400"),
    ("a length with a vertical tab", b"Content-Length: 5\x0b\r\n", "cut 400"),
    ("a length with a NUL", b"Content-Length: 5\x00\r\n", "cut 400"),
    ("a length of a wide digit", b"Content-Length: \xef\xbc\x95\r\n", "cut 400"),
    ("a length behind a space and a colon", b"Content-Length : 5\r\n", "cut 400"),
    ("a length behind a fold", b"Content-Length:\r\n 5\r\n", "cut 400"),
    ("a length behind a bare LF", b"X: y\nContent-Length: 5\r\n", "cut 400"),
    ("a length and a coding", CL + TE, "cut 400"),
    ("a coding and a length", TE + CL, "cut 400"),
    ("a coding and a length of 0", TE + b"Content-Length: 0\r\n", "cut 400"),
    ("a length, and a coding in mixed case", CL + b"tRANSFER-eNCODING: chunked\r\n", "cut 400"),
    ("a length, and a coding of nothing", CL + b"Transfer-Encoding:\r\n", "cut 400"),
    ("a length, and a coding identity", CL + b"Transfer-Encoding: identity\r\n", "cut 400"),
]
_CODINGS = [
    ("xchunked", b"Transfer-Encoding: xchunked\r\n", "cut 400"),
    ("chunkedx", b"Transfer-Encoding: chunkedx\r\n", "cut 400"),
    ("chunked twice", b"Transfer-Encoding: chunked, chunked\r\n", "cut 400"),
    ("gzip, chunked", b"Transfer-Encoding: gzip, chunked\r\n", "no 400"),
    ("identity, chunked", b"Transfer-Encoding: identity, chunked\r\n", "no 400"),
    ("chunked, gzip", b"Transfer-Encoding: chunked, gzip\r\n", "cut 400"),
    ("chunked, identity", b"Transfer-Encoding: chunked, identity\r\n", "cut 400"),
    ("identity", b"Transfer-Encoding: identity\r\n", "cut 400"),
    ("gzip", b"Transfer-Encoding: gzip\r\n", "cut 400"),
    ("an empty coding", b"Transfer-Encoding:\r\n", "cut 400"),
    ("chunked with a parameter", b"Transfer-Encoding: chunked;q=1\r\n", "cut 400"),
    ("chunked in quotes", b'Transfer-Encoding: "chunked"\r\n', "cut 400"),
    ("chunked and a comma", b"Transfer-Encoding: chunked,\r\n", "cut 400"),
    ("a comma and chunked", b"Transfer-Encoding: ,chunked\r\n", "no 400"),
    ("chun ked", b"Transfer-Encoding: chun ked\r\n", "cut 400"),
    ("a vertical tab and chunked", b"Transfer-Encoding: \x0bchunked\r\n", "cut 400"),
    ("chunked and a vertical tab", b"Transfer-Encoding: chunked\x0b\r\n", "cut 400"),
    ("chunked and a NUL", b"Transfer-Encoding: chunked\x00\r\n", "cut 400"),
    ("two lines of chunked", TE + TE, "cut 400"),
    ("a line of gzip and one of chunked", b"Transfer-Encoding: gzip\r\n" + TE, "no 400"),
    ("a line of chunked and one of identity", TE + b"Transfer-Encoding: identity\r\n", "cut 400"),
    ("chunked behind a space and a colon", b"Transfer-Encoding : chunked\r\n", "cut 400"),
    ("chunked behind a fold", b"Transfer-Encoding:\r\n chunked\r\n", "cut 400"),
    ("chunked behind a bare CR", b"X: y\rTransfer-Encoding: chunked\r\n", "cut 400"),
    ("chunked behind a bare LF", b"X: y\nTransfer-Encoding: chunked\r\n", "cut 400"),
]
_CHUNKS = [
    ("size in front of a bare LF", b"5\nhello\r\n0\r\n\r\n", "cut 400"),
    ("size in front of a bare CR", b"5\rhello\r\n0\r\n\r\n", "cut 400"),
    ("size behind a space", b" 5\r\nhello\r\n0\r\n\r\n", "cut 400"),
    ("size behind a tab", b"\t5\r\nhello\r\n0\r\n\r\n", "cut 400"),
    ("size with +", b"+5\r\nhello\r\n0\r\n\r\n", "cut 400"),
    ("size with -", b"-5\r\nhello\r\n0\r\n\r\n", "cut 400"),
    ("size with 0x", b"0x5\r\nhello\r\n0\r\n\r\n", "cut 400"),
    ("size with an underscore", b"0_5\r\nhello\r\n0\r\n\r\n", "cut 400"),
    ("size of no digit", b"G\r\nhello\r\n0\r\n\r\n", "cut 400"),
    ("size of nothing", b"\r\nhello\r\n0\r\n\r\n", "cut 400"),
    ("size beyond 64 bits", b"10000000000000005\r\nhello\r\n0\r\n\r\n", "cut 400"),
    ("size with a comma", b"5,\r\nhello\r\n0\r\n\r\n", "cut 400"),
    ("size with a NUL", b"5\x00\r\nhello\r\n0\r\n\r\n", "cut 400"),
    ("end of XX", b"5\r\nhelloXX0\r\n\r\n", "cut 400"),
    ("end of LF", b"5\r\nhello\n0\r\n\r\n", "cut 400"),
    ("end of LF LF", b"5\r\nhello\n\n0\r\n\r\n", "cut 400"),
    ("end of CR CR", b"5\r\nhello\r\r0\r\n\r\n", "cut 400"),
    ("end of LF CR", b"5\r\nhello\n\r0\r\n\r\n", "cut 400"),
    ("end of nothing", b"5\r\nhello0\r\n\r\n", "cut 400"),
    ("one octet too many", b"5\r\nhello!\r\n0\r\n\r\n", "cut 400"),
    ("one octet too few", b"5\r\nhell\r\n0\r\n\r\n", "cut 400"),
    ("extension with a bare CR", b"5;a\rb\r\nhello\r\n0\r\n\r\n", "cut 400"),
    ("extension with a bare LF", b"5;a\nhello\r\n0\r\n\r\n", "cut 400"),
    ("extension with a NUL", b"5;a\x00b\r\nhello\r\n0\r\n\r\n", "cut 400"),
    ("extension with an open quote", b'5;a="b\r\nhello\r\n0\r\n\r\n', "cut 400"),
    ("extension without a name", b"5;\r\nhello\r\n0\r\n\r\n", "cut 400"),
    ("last size in front of a bare LF", b"5\r\nhello\r\n0\n\r\n", "cut 400"),
    ("last end of LF", b"5\r\nhello\r\n0\r\n\n", "cut 400"),
    ("last end of CR CR LF", b"5\r\nhello\r\n0\r\n\r\r\n", "cut 400"),
    ("trailer with a space in front of its colon", b"5\r\nhello\r\n0\r\nX : a\r\n\r\n", "cut 400"),
    ("trailer that is folded", b"5\r\nhello\r\n0\r\nX: a\r\n b\r\n\r\n", "cut 400"),
    ("trailer in front of a bare LF", b"5\r\nhello\r\n0\r\nX: a\n\r\n", "cut 400"),
    ("trailer with a NUL", b"5\r\nhello\r\n0\r\nX: a\x00\r\n\r\n", "cut 400"),
    ("trailer of another length", b"5\r\nhello\r\n0\r\nContent-Length: 6\r\n\r\n", "cut 400"),
]
_CHUNKS_OK = [
    ("size in upper case", b"A\r\nhellohello\r\n0\r\n\r\n", b"hellohello"),
    ("size in lower case", b"a\r\nhellohello\r\n0\r\n\r\n", b"hellohello"),
    ("size with zeros in front", b"0005\r\nhello\r\n0\r\n\r\n", b"hello"),
    ("several", b"1\r\nh\r\n4\r\nello\r\n0\r\n\r\n", b"hello"),
    ("no octets at all", b"0\r\n\r\n", b""),
    ("last size of several zeros", b"5\r\nhello\r\n000\r\n\r\n", b"hello"),
    ("extension", b"5;a=b;c\r\nhello\r\n0;d\r\n\r\n", b"hello"),
    ("extension in quotes", b'5;a="b c"\r\nhello\r\n0\r\n\r\n', b"hello"),
    ("trailer", b"5\r\nhello\r\n0\r\nX: a\r\n\r\n", b"hello"),
    ("trailer like a credential", b"5\r\nhello\r\n0\r\nAuthorization: Bearer other\r\n\r\n", b"hello"),
    ("trailer like a host", b"5\r\nhello\r\n0\r\nHost: evil\r\n\r\n", b"hello"),
    ("what looks like a request", b"%x\r\n%b\r\n0\r\n\r\n" % (len(HIDDEN), HIDDEN), HIDDEN),
]


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
    for host in _HOSTS_OK:
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
    *_line("9112-2.3", _VERSIONS),
    *_line("9112-3", _LINES),
    *_target("9112-3.2", _TARGETS),
    *_target("3986-3.3", [(target, "ok") for target in _PASSED]),
    *_field("9112-5", _FIELDS),
    *(Row(f"field: {name}", "9112-2.2", octets, end) for name, octets, end in _ENDS),
    *_host(_HOSTS),
    *_framed("9112-6.3", _LENGTHS, b"hello" + HIDDEN),
    *_framed("9112-6.1", _CODINGS, FIVE + HIDDEN),
    *_chunks("9112-7.1", [(name, body + HIDDEN, end) for name, body, end in _CHUNKS]),
    *(row for name, body, seen in _CHUNKS_OK for row in _chunks("9112-7.1", [(name, body, "ok")], seen)),
    *_delimiters(),
    *_controls(),
    *_passed(),
    *_odd(),
)
