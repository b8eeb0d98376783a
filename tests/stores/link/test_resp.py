"""RESP2, in and out."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.stores.link.faults import ErrorReply
from gateway.stores.link.resp import Parser, ProtocolError, encode

__all__: list[str] = []

ROWS: tuple[tuple[bytes, list[object]], ...] = (
    (b"+OK\r\n", [b"OK"]),
    (b":-12\r\n:0\r\n", [-12, 0]),
    (b"$-1\r\n*-1\r\n$0\r\n\r\n*0\r\n", [None, None, b"", []]),
    (b"$4\r\n\r\n\r\n\r\n", [b"\r\n\r\n"]),
    (b"*3\r\n*2\r\n:1\r\n$1\r\nx\r\n*0\r\n-ERR no\r\n", [[[1, b"x"], [], "ERR no"]]),
)

_SCALARS = st.integers(-(2**63), 2**63 - 1) | st.binary(max_size=9) | st.none()
_REPLIES = st.recursive(_SCALARS, lambda inner: st.lists(inner, max_size=4), max_leaves=12)


def written(reply: object) -> bytes:
    """Return a reply as a server writes it."""
    if isinstance(reply, list):
        return b"*%d\r\n" % len(reply) + b"".join(map(written, reply))
    if isinstance(reply, bytes):
        return b"$%d\r\n%b\r\n" % (len(reply), reply)
    return b":%d\r\n" % reply if isinstance(reply, int) else b"$-1\r\n"


@pytest.mark.parametrize(("data", "replies"), ROWS)
def test_every_type_of_reply(data: bytes, replies: list[object]) -> None:
    """Numbers, strings, nothing, arrays in arrays, errors."""
    assert Parser().feed(data) == replies


@given(st.lists(_REPLIES, max_size=5), st.lists(st.integers(0, 200), max_size=8))
def test_replies_are_the_same_wherever_they_are_cut(replies: list[object], cuts: list[int]) -> None:
    """TCP knows no messages."""
    data = b"".join(map(written, replies))
    edges = [0, *sorted(min(cut, len(data)) for cut in cuts), len(data)]
    parser = Parser()
    pieces = [parser.feed(data[start:end]) for start, end in itertools.pairwise(edges)]
    assert [reply for piece in pieces for reply in piece] == replies


@pytest.mark.parametrize(
    "data",
    (
        b"HTTP/1.1 400 Bad Request\r\n", b"\x15\x03\x01", b":1x\r\n", b":\r\n", b"$-2\r\n", b"$99999999999\r\n",
        b"$1\r\nxyz\r\n", b"*9999999\r\n", b"*1\r\n" * 20, b"+" + b"x" * 70_000, b":" + b"1" * 30 + b"\r\n",
        b"%1\r\n", b"\r\n",
    ),
)  # fmt: skip
def test_what_is_no_reply_ends_the_connection(data: bytes) -> None:
    """Nobody can say where the next reply begins; and nobody may make us hold what he likes."""
    with pytest.raises(ProtocolError):
        Parser().feed(data)


def test_a_command_is_an_array_of_strings() -> None:
    """Lengths, so that any octets may be in it."""
    assert encode((b"GET", b"a\r\n")) == b"*2\r\n$3\r\nGET\r\n$3\r\na\r\n\r\n"


def test_an_error_has_a_code() -> None:
    """Its first word."""
    [reply] = Parser().feed(b"-MOVED 1 h:2\r\n")
    assert isinstance(reply, ErrorReply)
    assert (reply, reply.code) == ("MOVED 1 h:2", "MOVED")
