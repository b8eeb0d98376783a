"""Requests that every shell must treat alike: what is sent, what the upstream answers, and how it goes on.

Rules
1. A case is about one connection. What a server alone sees (framing, deadlines, half-closes, no HTTP) is in none.
2. Octets of a body come with their head or after a sign that the upstream has it, so that no case depends on a race.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal, NamedTuple

from tests.gateway.proxy.house import A, B
from tests.wire.caller import request
from tests.wire.script import HANG, Answer, Ending, Framing

__all__ = ["Case", "cases", "refused"]

T = A.token
#: On what a case goes on: nothing, that the upstream has its head, or that the caller has one, of a 100 or an answer.
Sign = Literal["", "upstream", "answer"]
Leaving = Literal["", "close", "reset"]


class Case(NamedTuple):
    """`methods` are those of the answers that are read; `more` follows at the `sign`, where else the caller `leaves`.

    To shells in `hidden` their server does not show this request, or not as it came. `own` is what of the answer is a
    server's own: names of fields, or `1xx`.
    """

    name: str
    octets: bytes
    script: Answer = Answer()
    methods: tuple[str, ...] = ("GET",)
    sign: Sign = ""
    more: bytes = b""
    leaves: Leaving = ""
    hidden: tuple[str, ...] = ()
    own: tuple[str, ...] = ()


def cases() -> Iterator[Case]:
    """Yield all that is sent to a gateway whose key has plenty."""
    for part in (
        _methods,
        _heads,
        _bodies,
        _expecting,
        _upgrades,
        _rejected,
        _answers,
        _broken,
        _early,
        _left,
        _hidden,
    ):
        for case in part():
            yield case._replace(name=f"{part.__name__.strip('_')}: {case.name}")


def refused() -> Iterator[Case]:
    """Yield what is sent to a gateway whose key is spent by the first of it."""
    yield Case("served", request(token=T))
    for method in ("GET", "HEAD", "POST", "OPTIONS", "DELETE", "PROPFIND"):
        for accept in ("", "*/*", "text/html", "text/markdown", ";q=,\xff"):
            fields = [("Accept", accept), ("Origin", "https://app.example.com")]
            yield Case(f"{method} {accept}", request(method, token=T, fields=fields), methods=(method,))
    yield Case("with a body", request("POST", token=T, body=b"x" * 1000))
    yield Case("with chunks", request("POST", token=T, body=b"x" * 1000, chunked=True))
    yield Case("expecting", request("POST", token=T, fields=_EXPECTING))
    yield Case("on its last connection", request(token=T, fields=[("Connection", "close")]))
    several = request(token=T) + request("POST", token=T, body=b"abc") + request(token="x")
    yield Case("behind each other", several, methods=3 * ("GET",))
    yield Case("handshake", request(token=T, fields=_HANDSHAKE))


_HANDSHAKE = [
    ("Connection", "Upgrade"),
    ("Upgrade", "websocket"),
    ("Sec-WebSocket-Version", "13"),
    ("Sec-WebSocket-Key", "dGhlIHNhbXBsZSBub25jZQ=="),
]
_TARGETS = (
    "/", "/a/b/", "/%7Euser/%41", "/a%20b+c", "/x%2Fy%2fz", "/p;v=1/q", "/a?b=c&b=&d=&e;f", "/a?%zz", "/a?b?c/../d",
    "/a/../b", "/caf%c3%A9", "/*'()!$&,=:@-._~", "/a?" + "q" * 4096,
)  # fmt: skip
_FIELDS: dict[str, list[tuple[str, str]]] = {
    "letter case": [("ACCEPT", "a/b"), ("X-MiXeD", "Value")],
    "the same twice": [("X-A", "1"), ("x-a", "2"), ("Cookie", "a=1"), ("Cookie", "b=2")],
    "empty": [("X-Empty", ""), ("Accept", "")],
    "octets beyond ASCII": [("X-Latin", "gr\xfc\xdfe"), ("X-Quoted", '"a, b"; c=d')],
    "underscores": [("X_Forwarded_For", "1.2.3.4"), ("Evenhand_Tenant", "bolt")],
    "forged": [("Evenhand-Tenant", "bolt"), ("X-Forwarded-For", "1.2.3.4"), ("Forwarded", "for=1.2.3.4")],
    "hop by hop": [("Connection", "X-Gone, keep-alive"), ("X-Gone", "1"), ("Keep-Alive", "1"), ("TE", "trailers")],
    "proxies": [("Via", "1.1 other"), ("Proxy-Authorization", "Basic eA=="), ("X-Forwarded-Proto", "https")],
    "an id of its own": [("X-Request-Id", "mine-1"), ("Traceparent", f"00-{'1' * 32}-{'2' * 16}-01")],
    "class": [("Evenhand-Class", "batch")],
    "last": [("Connection", "close")],
    "Authorization twice": [("Authorization", f"Bearer {B.token}")],
    "very many": [(f"X-{number}", "v") for number in range(90)],
}


_EXPECTING = [("Expect", "100-continue"), ("Content-Length", "5")]
_TOO_MUCH = ("Content-Length", "999999999")
_ANSWERED = (
    ("Date", "Mon, 30 Nov 2026 00:00:00 GMT"), ("Server", "up"), ("Set-Cookie", "a=1"), ("Set-Cookie", "b=2"),
    ("Connection", "X-Gone"), ("X-Gone", "1"), ("X-MiXeD", ""), ("Evenhand-Refused", "key"), ("RateLimit", '"u";r=1'),
    ("Via", "1.1 up"), ("Trailer", "x"), ("X-Latin", "gr\xfc\xdfe"), ("Upgrade", "h2c"),
)  # fmt: skip
_TWO_LENGTHS = b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nx"
_FRAMINGS: tuple[Framing, ...] = ("length", "chunked")
_ENDINGS: tuple[Ending, ...] = ("close", "reset")
_LEAVING: tuple[Leaving, ...] = ("close", "reset")


def _methods() -> Iterator[Case]:
    for method in ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "PROPFIND", "TRACE"):
        yield Case(method, request(method, "/x?y", token=T), methods=(method,))
    fields = [("Origin", "https://a.b"), ("Access-Control-Request-Method", "PUT")]
    yield Case("preflight", request("OPTIONS", fields=fields))
    yield Case("HTTP/1.0", request(token=T).replace(b"HTTP/1.1", b"HTTP/1.0"))


def _heads() -> Iterator[Case]:
    for target in _TARGETS:
        yield Case(target[:20], request(target=target, token=T))
    for name, fields in _FIELDS.items():
        yield Case(name, request(token=T, fields=fields))
    yield Case("another host", request(token=T, host="Other.Example.COM:8080"))


def _bodies() -> Iterator[Case]:
    for size in (0, 1, 1000, 60_000):
        for chunked in (False, True):
            octets = request("POST", "/b", token=T, body=b"x" * size, chunked=chunked)
            yield Case(f"{size} {'chunked' if chunked else ''}", octets)
    yield Case("of a GET", request(token=T, body=b"abc"))
    late = request("POST", token=T, body=b"abcdef")
    yield Case("in two parts", late[:-3], sign="upstream", more=late[-3:])
    late = request("POST", token=T, body=b"abcdef", chunked=True)
    yield Case("in two chunks", late[:-5], sign="upstream", more=b"2\r\ngh\r\n0\r\n\r\n")
    several = (
        request(token=T) + request("POST", token=T, body=b"abc") + request("PUT", token=T, body=b"d", chunked=True)
    )
    yield Case("behind each other", several, methods=3 * ("GET",))


def _expecting() -> Iterator[Case]:
    yield Case("100", request("POST", token=T, fields=_EXPECTING), sign="answer", more=b"hello")
    yield Case("unknown", request("POST", token=T, fields=[("Expect", "tea")], body=b"abc"))
    yield Case("nobody", request("POST", token="evh_pat_wrong", fields=_EXPECTING))
    yield Case("too much", request("POST", token=T, fields=[_EXPECTING[0], _TOO_MUCH]))


def _upgrades() -> Iterator[Case]:
    yield Case("to what nobody speaks", request(token=T, fields=[("Connection", "upgrade"), ("Upgrade", "x")]))
    yield Case("without saying so", request(token=T, fields=[("Upgrade", "x")]))
    yield Case("a handshake of nobody", request(token="evh_pat_wrong", fields=_HANDSHAKE))


def _rejected() -> Iterator[Case]:
    for target in ("/open/%2e%2e/admin", "/open/..;/admin", "//admin", "/admin%2f..", "/open/%252e%252e/admin"):
        yield Case(target, request(target=target, token=T))
    yield Case("a wrong token", request(token="evh_pat_wrong"))
    yield Case("no token", request())
    yield Case("another scheme", request(fields=[("Authorization", "Basic eDp5")]))
    yield Case("too large", request("POST", token=T, fields=[_TOO_MUCH]))


def _answers() -> Iterator[Case]:
    for status in (200, 201, 204, 301, 304, 400, 404, 418, 429, 500, 503, 599):
        yield Case(str(status), request(token=T), Answer(status))
    ask, head = request(token=T), request("HEAD", token=T)
    yield Case("chunked", ask, Answer(framing="chunked", body=b"abc"))
    yield Case("HEAD of length", head, Answer(), ("HEAD",))
    # Nothing is framed, and RFC 9110 section 9.3.2 lets a server leave out or say how it would have been.
    yield Case("HEAD of chunks", head, Answer(framing="chunked"), ("HEAD",), own=("transfer-encoding",))
    yield Case("empty", ask, Answer(body=b""))
    yield Case("empty chunks", ask, Answer(body=b"", framing="chunked"))
    yield Case("until close", ask, Answer(body=b"abc", framing="close", ending="close"))
    yield Case("60 kB", ask, Answer(body=b"x" * 60_000))
    yield Case("fields", ask, Answer(fields=_ANSWERED))
    yield Case("a 100 before", ask, Answer(interim=((100, ()),)))
    # ASGI has no word for it.
    yield Case("a hint before", ask, Answer(interim=((103, (("Link", "</a>"),)),)), own=("1xx",))
    # The ASGI endpoint leaves it out: there are servers that would wait for a body.
    yield Case("304 with a length", ask, Answer(304, (("Content-Length", "7"),), b""), own=("content-length",))


def _broken() -> Iterator[Case]:
    for framing in _FRAMINGS:
        for cut in (0, 20, 300):
            for ending in _ENDINGS:
                answer = Answer(body=b"x" * 1000, framing=framing, cut=cut, ending=ending)
                yield Case(f"{framing} {cut} {ending}", request("POST", token=T, body=b"a"), answer)
    for raw in (b"nonsense\r\n\r\n", b"HTTP/1.1 101 Switching Protocols\r\n\r\n", _TWO_LENGTHS):
        yield Case(repr(raw), request(token=T), Answer(raw=raw))


def _early() -> Iterator[Case]:
    early = Answer(403, early=True)
    half = request("POST", token=T, body=b"x" * 1000)
    yield Case("and the rest comes", half[:-500], early, sign="answer", more=half[-500:])
    # How much of it there will be nobody knows, and whether it is worth waiting for is the server's.
    half = request("POST", token=T, body=b"x" * 1000, chunked=True)
    yield Case("and the end comes", half[:-5], early, sign="answer", more=half[-5:], own=("connection",))


def _left() -> Iterator[Case]:
    part = request("POST", token=T, body=b"abcdef")[:-3]
    for leaves in _LEAVING:
        yield Case(f"{leaves} waiting", request(token=T), HANG, sign="upstream", leaves=leaves)
        yield Case(f"{leaves} with a body", request("POST", token=T, body=b"abc"), HANG, sign="upstream", leaves=leaves)
        yield Case(f"{leaves} in a body", part, HANG, sign="upstream", leaves=leaves)
        endless = Answer(body=lambda: iter([b"x" * 10] * 1000), framing="chunked", gap=0.01)
        yield Case(f"{leaves} in an answer", request(token=T), endless, sign="answer", leaves=leaves)


def _hidden() -> Iterator[Case]:
    """Yield these last: whoever is asked less has more left, and says so."""
    # h11 answers these by itself.
    yield Case("Host twice", request(token=T, fields=[("Host", "other")]), hidden=("h11",))
    yield Case("no host", request(token=T, host=None), hidden=("h11",))
    # uvicorn keeps to itself what httptools finds in front of the path.
    yield Case("absolute target", request(target="http://a.example.com/x?y", token=T), hidden=("httptools",))
    # uvicorn puts trailers that httptools has read among the fields, if nobody has looked at those yet.
    trailers = request("POST", token=T, body=b"abc", chunked=True)[:-2] + b"X-T: 1\r\nHost: evil\r\n\r\n"
    yield Case("trailers", trailers, hidden=("httptools",))
