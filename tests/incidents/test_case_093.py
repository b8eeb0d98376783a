"""Case 93: two framings of one request, or a length that is not one, are refused; what is hidden stays hidden."""

from __future__ import annotations

import random
import re
from collections.abc import Iterator

import pytest

from tests.wire.caller import Caller, call, request
from tests.wire.gateway import Gateway, running, tenants, token
from tests.wire.ledger import Ledger, balanced
from tests.wire.message import End, Head, WireError, requests
from tests.wire.origin import Origin, Seen

__all__: list[str] = []

HIDDEN = b"GET /forbidden HTTP/1.1\r\nHost: a\r\n\r\n"
CL, TE = "Content-Length: 5\r\n", "Transfer-Encoding: chunked\r\n"
CHUNKED = b"0\r\n\r\n"
CONFLICTS = {
    "CL.TE": (CL + TE, CHUNKED),
    "TE.CL": (TE + CL, CHUNKED),
    "TE.TE": (TE + "Transfer-Encoding: identity\r\n", CHUNKED),
    "TE.0": ("Transfer-Encoding: x\r\n", CHUNKED),
    "CL twice": (CL + "Content-Length: 6\r\n", b"hello"),
    "CL twice, equal": (CL + CL, b"hello"),
    "CL list": ("Content-Length: 5, 5\r\n", b"hello"),
}


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory, origin: Origin) -> Iterator[Gateway]:
    """Run a gateway with plenty for A and B."""
    config = {
        "tenants": tenants("a", "b", quota="100000/s burst 100000"),
        "backstop": {"quota": "100000/s burst 100000"},
        "auth": {"rejected_quota": "100000/s burst 100000", "anonymous_quota": "100000/s burst 100000"},
        "server": {"body_timeout": "300ms"},
    }
    with running(tmp_path_factory.mktemp("gateway"), origin, config) as one:
        yield one


def head(method: str, lines: str) -> bytes:
    """Return the head of a request of A's."""
    return f"{method} /a HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer {token('a')}\r\n{lines}\r\n".encode()


@pytest.mark.parametrize("name", CONFLICTS)
async def test_conflict_is_refused_and_hides_nothing(gateway: Gateway, up: Origin, name: str) -> None:
    """400 and the end of the connection; the hidden request reaches nobody, and B gets its own answer."""
    lines, body = CONFLICTS[name]
    async with balanced(gateway, up) as books:
        for method in ("POST", "GET", "HEAD", "OPTIONS"):
            async with await Caller.connect(gateway.address) as caller:
                await caller.send(head(method, lines) + body + HIDDEN)
                answer = await caller.response(method)
                assert (answer.status, answer.header("connection")) == (400, "close")
                await caller.until_closed()
            books.rejected()
        assert (await call(gateway.address, request(target="/b", token=token("b")))).status == 200
        books.sent("b")
    assert [seen.target for seen in up.seen] == [b"/b"]


@pytest.mark.parametrize("method", ["GET", "HEAD", "OPTIONS", "DELETE"])
async def test_body_of_a_method_that_has_none(gateway: Gateway, up: Origin, method: str) -> None:
    """0.CL: the announced body is the body, framed anew, and not the next request."""
    async with balanced(gateway, up) as books:
        octets = head(method, f"Content-Length: {len(HIDDEN)}\r\n") + HIDDEN
        async with await Caller.connect(gateway.address) as caller:
            await caller.send(octets)
            assert (await caller.response(method)).status == 200
        books.sent("a")
        assert (await call(gateway.address, request(target="/b", token=token("b")))).status == 200
        books.sent("b")
    assert [(seen.target, bytes(seen.body)) for seen in up.seen] == [(b"/a", HIDDEN), (b"/b", b"")]


def mutated(draw: random.Random) -> bytes:
    """Return a request whose framing was tampered with, a hidden one inside its body."""
    body = b"%x\r\n%b\r\n0\r\n\r\n" % (len(HIDDEN), HIDDEN)
    lines = draw.choice([TE, f"Content-Length: {len(HIDDEN)}\r\n", TE + CL])
    octets = bytearray(head("POST", lines) + (body if "chunked" in lines else HIDDEN))
    framing = [found.start() for found in re.finditer(rb"Content-Length|Transfer-Encoding|chunked|\r\n", octets)]
    for _ in range(draw.choice([1, 1, 2, 3])):
        at = min(draw.choice(framing) + draw.randrange(-2, 20), len(octets) - 1)
        piece = draw.choice([b"\r", b"\n", b" ", b"\t", b"\x00", b"\x0b", b",", b";", b"0", b"5", b":", b"\r\n", b"x"])
        octets[at : at + draw.choice([0, 1, 2])] = piece
    return bytes(octets)


def read_strictly(octets: bytes) -> list[bytes]:
    """Return the targets of the whole requests that a strict reader finds."""
    framer, found, target = requests(), [], b""
    try:
        events = framer.feed(octets)
        while events:
            for event in events:
                if isinstance(event, Head):
                    target = event.start.split(b" ")[1]
                elif isinstance(event, End):
                    found.append(target)
            events = framer.feed(b"")
    except (WireError, IndexError):
        pass
    return found


@pytest.mark.soak
async def test_mutations_never_reach_as_something_else(gateway: Gateway, up: Origin, soak: bool) -> None:
    """Whatever a strict reader does not find in the octets does not arrive; B's own answers are untouched."""
    draw = random.Random(93)
    async with balanced(gateway, up) as books:
        for number in range(1000 if soak else 250):
            octets = mutated(draw)
            before = len(up.seen)
            async with await Caller.connect(gateway.address) as caller:
                await caller.send(octets)
                # What is not whole is never answered by the upstream.
                caller.half_close()
                await caller.until_closed()
            reached = up.seen[before:]
            arrived = [seen.target for seen in reached if seen.ended is not None]
            found = read_strictly(octets)
            assert arrived == found[: len(arrived)], (number, octets, arrived, found)
            entered(books, bytes(caller.raw), reached)
            if number % 50 == 0:
                answer = await call(gateway.address, request(target="/b", token=token("b")))
                assert (answer.status, answer.body) == (200, b"ok")
                books.sent("b")
    assert up.by_tenant()["b"] > 0


def entered(books: Ledger, raw: bytes, reached: list[Seen]) -> None:
    """Enter one connection: a fault deserved no verdict, what arrived whole was served, silence is a body cut short."""
    refused = len(re.findall(rb"HTTP/1\.1 (?:4|505)", raw))
    books.rejected(refused)
    for seen in reached:
        if seen.ended is not None:
            books.sent(seen.header("evenhand-tenant") or "")
        elif refused:
            books.turned_back += 1
    if not raw:
        books.sent("a")
