"""A request line is HTTP's, octet for octet, wherever its request begins and however it is cut."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.ports import Headers
from gateway.proxy.line import RequestLines
from tests.gateway.proxy.house import A
from tests.gateway.proxy.reach import on_both_loops
from tests.gateway.proxy.wired import wired
from tests.wire.caller import Caller
from tests.wire.origin import Origin, serving

__all__: list[str] = []

LINES = [
    b"GET /x RTSP/1.0", b"GET /x RTSP/1.1", b"POST /x RTSP/1.1", b"OPTIONS /x RTSP/1.0", b"OPTIONS /x RTSP/1.1",
    b"DESCRIBE /x RTSP/1.0", b"DESCRIBE /x RTSP/1.1", b"SOURCE /x ICE/1.0", b"SOURCE /x ICE/1.1",
    b"GET  /x HTTP/1.1", b"GET /x  HTTP/1.1", b"GET  /x  HTTP/1.1", b"GET  /x HTTP/1.0",
]  # fmt: skip


@dataclass(frozen=True)
class _Request:
    """A request as its parser knows it, and as it came."""

    method: bytes
    target: bytes
    version: str
    headers: tuple[tuple[bytes, bytes], ...]
    body: bytes
    line: bytes = b""

    @property
    def head(self) -> bytes:
        line = self.line or b"%b %b HTTP/%b" % (self.method, self.target, self.version.encode())
        return line + b"\r\n" + b"".join(b"%b: %b\r\n" % field for field in self.headers) + b"\r\n"


_PLAIN = _Request(b"GET", b"/", "1.1", ((b"host", b"a"), (b"x", b"GET / HTTP/1.1")), b"")
_OLD = _Request(b"OPTIONS", b"/", "1.0", (), b"")
_LONG = _Request(b"POST", b"/" + b"a" * 40, "1.1", ((b"content-length", b"21"),), b"\nGET / HTTP/1.1\r\n\r\n\r\n")
_CHUNKED = _Request(b"PUT", b"/c", "1.1", ((b"transfer-encoding", b"chunked"),), b"3\r\nabc\r\n0\r\nt: u\r\n\r\n")
_REQUESTS = st.lists(st.sampled_from((_PLAIN, _OLD, _LONG, _CHUNKED)), min_size=1, max_size=6)


def _answers(requests: list[_Request], cuts: set[int]) -> list[bool]:
    """Return what is said of each line, the octets cut at `cuts` and told of as a parser would."""
    octets = b"".join(one.head + one.body for one in requests)
    spans: list[tuple[int, int, int]] = []
    at = 0
    for one in requests:
        spans.append((at, at + len(one.head), at + len(one.head) + len(one.body)))
        at = spans[-1][2]
    inner = sorted(cut for cut in cuts if 0 < cut < at)
    lines, said = RequestLines(), []
    for start, end in zip([0, *inner], [*inner, at], strict=True):
        lines.feed(octets[start:end], begins=any(start == first for first, _, _ in spans))
        for one, (_, head, _) in zip(requests, spans, strict=True):
            if start < head <= end:
                headers: Headers = list(one.headers)
                said.append(lines.read(one.method, one.target, one.version, headers))
        if any(end == last for _, _, last in spans):
            lines.forget()
        else:
            lines.rest(inside=any(first < end < head for first, head, _ in spans))
    return said


@given(requests=_REQUESTS, cuts=st.sets(st.integers(1, 600), max_size=30))
def test_every_line_is_found(requests: list[_Request], cuts: set[int]) -> None:
    """Behind no body, one of a length, or a chunked one, and however the octets are cut."""
    assert all(_answers(requests, cuts))
    assert all(_answers(requests, set(range(2000))))


@given(requests=_REQUESTS, cuts=st.sets(st.integers(1, 600), max_size=30), which=st.sampled_from((_PLAIN, _OLD)))
def test_another_line_is_not(requests: list[_Request], cuts: set[int], which: _Request) -> None:
    """Neither a line like it in a body nor one in a field stands for it where its place is known."""
    octets = which.head.split(b"\r\n")[0]
    for line in (octets.replace(b"HTTP", b"RTSP"), octets.replace(b" ", b"  ", 1), octets.replace(b" H", b"  H")):
        bad = _Request(which.method, which.target, which.version, which.headers, b"", line)
        known = [one for one in requests if one is not _CHUNKED]
        assert _answers([*known, bad, _LONG, which], cuts)[len(known)] is False
        assert _answers([_CHUNKED, bad], cuts) == [True, False]


@pytest.fixture
def origin() -> Iterator[Origin]:
    """Run the scripted upstream."""
    with serving() as up:
        yield up


def _ways(line: bytes) -> Iterator[tuple[list[bytes], int]]:
    """Yield pieces to send, and how many good requests come in front in a piece of their own."""
    fields = b"Host: a\r\nAuthorization: Bearer " + A.token.encode() + b"\r\n"
    bad = line + b"\r\n" + fields + b"\r\n"
    get = b"GET /x HTTP/1.1\r\n" + fields + b"\r\n"
    body = b"POST /x HTTP/1.1\r\n" + fields + b"Content-Length: 5\r\n\r\nhello"
    chunked = b"POST /x HTTP/1.1\r\n" + fields + b"Transfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n"
    upgrade = b"GET /x HTTP/1.1\r\n" + fields + b"Connection: upgrade\r\nUpgrade: h2c\r\n\r\n"
    yield [bad], 0
    yield [b"\r\n\r\n" + bad], 0
    yield [bad[at : at + 1] for at in range(len(bad))], 0
    yield [bad[:9], bad[9:]], 0
    yield [bad + get], 0
    for good in (get, body, chunked, upgrade):
        yield [good + bad], 0
        yield [good, bad], 1


@pytest.mark.parametrize("line", LINES)
@on_both_loops
async def test_only_http_is_served(tmp_path: Path, origin: Origin, line: bytes) -> None:
    """The parser takes RTSP, ICE and two spaces for HTTP; nobody here does, alone or behind a good request."""
    async with wired(tmp_path, origin, quota="100000/s") as gateway:
        for pieces, good in _ways(line):
            origin.forget()
            async with await Caller.connect(gateway.address) as caller:
                for index, piece in enumerate(pieces):
                    await caller.send(piece)
                    if good and not index:
                        assert (await caller.response()).status == 200
                answer = await caller.response()
                assert (answer.status, answer.header("connection")) == (400, "close"), pieces
            assert len(origin.seen) == good, pieces


@on_both_loops
async def test_very_many_digits_of_a_length(tmp_path: Path, origin: Origin, caplog: pytest.LogCaptureFixture) -> None:
    """A caller that writes thousands of zeros in front of one is answered 400, whatever of the body came with it."""
    head = b"POST /x HTTP/1.1\r\nHost: a\r\nContent-Length: " + b"0" * 5000 + b"2\r\n\r\n"
    async with wired(tmp_path, origin) as gateway:
        for octets in (head, head + b"h", head + b"hi", head + b"hi" + head):
            async with await Caller.connect(gateway.address) as caller:
                await caller.send(octets)
                answer = await caller.response()
                assert (answer.status, answer.json()["detail"]) == (400, "Content-Length is not one number of octets.")
        assert {(one.facts.address, one.facts.path) for one in gateway.books.settled} == {("127.0.0.1", "/x")}
    assert "Traceback" not in caplog.text
    assert origin.seen == []
