"""One response on the wire: its framing follows from the request, and its end is told exactly."""

from __future__ import annotations

from typing import Any, cast

import pytest

from gateway.proxy.answer import STATUS_LINES, Answer
from gateway.proxy.writer import Writer

__all__: list[str] = []


class Wire:
    """A transport that keeps what is written."""

    def __init__(self) -> None:
        self.sent = b""

    def write(self, octets: bytes) -> None:
        self.sent += octets

    def writelines(self, pieces: Any) -> None:
        self.sent += b"".join(pieces)


def writer(*, head_only: bool = False, old: bool = False, keep_alive: bool = True) -> tuple[Writer, Wire]:
    """Return a writer and what it writes to."""
    wire = Wire()
    return Writer(cast("Any", wire), head_only=head_only, old=old, keep_alive=keep_alive), wire


def written(status: int, length: int | None, *chunks: bytes, **of: bool) -> tuple[bytes, bool, bool]:
    """Return what a response becomes, whether it is complete, and whether the connection goes on."""
    one, wire = writer(**of)
    lines = [] if length is None else [b"\r\ncontent-length: ", b"%d" % length]
    one.start(status, lines, -1 if length is None else length)
    for chunk in chunks:
        one.data(chunk)
    complete = one.end()
    return wire.sent, complete, one.keep_alive


CASES = [
    ((200, 2, b"ok"), {}, b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok", True, True),
    (
        (200, None, b"ok", b"!"),
        {},
        b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n2\r\nok\r\n1\r\n!\r\n0\r\n\r\n",
        True,
        True,
    ),
    ((200, None, b"ok"), {"old": True}, b"HTTP/1.1 200 OK\r\nconnection: close\r\n\r\nok", True, False),
    (
        (200, 2, b"ok"),
        {"old": True},
        b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\nconnection: close\r\n\r\nok",
        True,
        False,
    ),
    ((200, 2), {"head_only": True}, b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n", True, True),
    ((200, None), {"head_only": True}, b"HTTP/1.1 200 OK\r\n\r\n", True, True),
    ((204, None), {}, b"HTTP/1.1 204 No Content\r\n\r\n", True, True),
    ((304, 5), {}, b"HTTP/1.1 304 Not Modified\r\ncontent-length: 5\r\n\r\n", True, True),
    ((200, 0), {}, b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n", True, True),
    ((200, 5, b"ok"), {}, b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nok", False, True),
    (
        (200, 2, b"ok"),
        {"keep_alive": False},
        b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\nconnection: close\r\n\r\nok",
        True,
        False,
    ),
    ((599, 0), {}, b"HTTP/1.1 599 \r\ncontent-length: 0\r\n\r\n", True, True),
]


@pytest.mark.parametrize(("response", "of", "wire", "complete", "keep_alive"), CASES)
def test_framing(response: Any, of: dict[str, bool], wire: bytes, complete: bool, keep_alive: bool) -> None:
    """RFC 9112 section 6: no body, the announced length, chunks, or the end of the connection."""
    assert written(*response, **of) == (wire, complete, keep_alive)


def test_large_pieces_are_framed_alike() -> None:
    """Above and below the size at which they are joined."""
    sent, complete, _ = written(200, None, b"x" * 4095, b"y" * 4096)
    head, _, body = sent.partition(b"\r\n\r\n")
    assert body == b"fff\r\n" + b"x" * 4095 + b"\r\n1000\r\n" + b"y" * 4096 + b"\r\n0\r\n\r\n"
    assert complete
    assert head.endswith(b"chunked")


def test_body_of_a_head_is_dropped() -> None:
    """Whatever the upstream sends behind it."""
    assert written(200, 2, b"ok", head_only=True)[0].endswith(b"\r\n\r\n")
    assert written(304, None, b"ok")[0].endswith(b"\r\n\r\n")


def test_interim_responses_come_before() -> None:
    """Once the response has begun it is too late."""
    one, wire = writer()
    one.interim(103, [(b"link", b"</a>")])
    assert wire.sent == b"HTTP/1.1 103 Early Hints\r\nlink: </a>\r\n\r\n"
    one.start(200, [b"\r\ncontent-length: ", b"0"], 0)
    before = wire.sent
    one.interim(103, [])
    assert wire.sent == before


def test_nothing_is_written_in_front_of_a_head() -> None:
    """Whatever comes first on a connection is read as a head, so a body never does."""
    one, wire = writer()
    one.interim(103, [])
    before = wire.sent
    with pytest.raises(RuntimeError):
        one.data(b"HTTP/1.1 200 OK\r\n\r\n")
    assert wire.sent == before


def test_interim_responses_are_not_for_the_old() -> None:
    """RFC 9110 section 15.2."""
    old, wire = writer(old=True)
    old.interim(100, [])
    assert wire.sent == b""


@pytest.mark.parametrize("close", [True, False])
@pytest.mark.parametrize("head_only", [True, False])
def test_answers_of_our_own(close: bool, head_only: bool) -> None:
    """In one piece, closing when they say so, bodiless to HEAD."""
    one, wire = writer(head_only=head_only)
    one.answer(Answer(429, [STATUS_LINES[429], b"content-length: 2\r\n"], [b"no"], close=close))
    said = b"connection: close\r\n" if close else b""
    body = b"" if head_only else b"no"
    assert wire.sent == b"HTTP/1.1 429 Too Many Requests\r\ncontent-length: 2\r\n" + said + b"\r\n" + body
    assert one.keep_alive is not close


def test_end_that_only_the_connection_tells() -> None:
    """HTTP/1.0 without a length: breaking off must not look like an end."""
    one, _ = writer(old=True)
    one.start(200, [], -1)
    assert one.ends_with_connection
    other, _ = writer()
    other.start(200, [], -1)
    assert not other.ends_with_connection
