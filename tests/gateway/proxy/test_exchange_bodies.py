"""Request bodies: streamed, held back, counted, and never read for an answer of our own (cases 91 and 115)."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from gateway.ports import Rejection
from gateway.proxy.exchange import DISCARDED, Exchange
from tests.gateway.proxy.house import House, Told, head, write


@pytest.fixture
def house(tmp_path: Path) -> House:
    """Return a gateway whose key may spend 10/s, burst 20."""
    return House(write(tmp_path))


@pytest.fixture
def poor(tmp_path: Path) -> House:
    """Return a gateway whose key may spend one request a minute."""
    return House(write(tmp_path, quota="1/min burst 1"))


def test_case_091_a_body_streams(house: House) -> None:
    """It is asked for once the head was written, passed on as it comes, and held back when the upstream is slow."""
    house.upstream.connects = False
    exchange, told = house.begin(head("/", "POST", content_length="6"))
    call = house.call
    assert (call.length, told.wanted) == (6, [])
    call.receiver.on_sent()
    exchange.body(b"abc")
    call.receiver.on_writable(False)
    call.receiver.on_writable(True)
    exchange.body(b"def")
    exchange.body_end()
    call.receiver.on_writable(False)
    assert told.wanted == [True, False, True]
    assert (bytes(call.body), call.did) == (b"abcdef", ["finish"])
    call.respond()
    assert house.books.ends == [("served", 200, "")]


def test_a_body_that_is_delivered_where_it_is_asked_for(house: House) -> None:
    """A server that has the body already gives it while it is asked for, on a kept connection: not an octet is lost."""
    told = Told()
    exchange = Exchange(house.front, head("/", "POST", content_length="3"), told)

    def deliver(wanted: bool) -> None:
        if wanted:
            exchange.body(b"abc")
            exchange.body_end()

    told.want_body = deliver  # type: ignore[method-assign] # a server in one line
    exchange.begin()
    assert (bytes(house.call.body), house.call.did) == (b"abc", ["finish"])


def test_a_chunked_body(house: House) -> None:
    """Its length is nobody's business until it is too long."""
    exchange, told = house.begin(head("/", "POST", transfer_encoding="chunked"))
    exchange.body(b"abc")
    exchange.body_end()
    assert (house.call.length, bytes(house.call.body), house.call.did) == (None, b"abc", ["finish"])
    assert told.wanted == [True]


@pytest.mark.parametrize("begun", [False, True])
def test_case_115_a_body_that_is_counted_too_large(tmp_path: Path, begun: bool) -> None:
    """Chunked without end: the call is cancelled, 413 and close; the sent request is charged and rejected."""
    house = House(write(tmp_path, server='max_body_bytes = "1KiB"'))
    exchange, told = house.begin(head("/", "POST", transfer_encoding="chunked"))
    exchange.body(b"x" * 1024)
    if begun:
        house.call.receiver.on_response(200, [])
    exchange.body(b"x")
    exchange.body(b"x")
    assert house.call.did == ["cancel"]
    assert len(house.call.body) == 1024
    if begun:
        assert (told.status, told.end_) == (200, "abort")
        assert house.books.ends == [("rejected", 200, "")]
    else:
        assert (told.status, told.close) == (413, True)
        assert house.books.ends == [("rejected", 413, "")]


def test_case_115_a_body_that_is_announced_too_large(tmp_path: Path) -> None:
    """413 without reading it, nothing sent, the connection closed."""
    house = House(write(tmp_path, server='max_body_bytes = "1KiB"'))
    exchange, told = house.begin(head("/", "POST", content_length="10000000000"))
    assert (told.status, told.close, told.wanted) == (413, True, [])
    exchange.body(b"x")
    exchange.body_end()
    assert house.upstream.calls == []
    house.begin(head("/", "POST", content_length="1024"))
    assert len(house.upstream.calls) == 1


@pytest.mark.parametrize("sent", ["abcdef", "abcd"])
def test_case_115_a_body_that_is_not_as_announced(house: House, sent: str) -> None:
    """More or less than announced never reaches the upstream as a whole request."""
    exchange, told = house.begin(head("/", "POST", content_length="5"))
    exchange.body(sent.encode())
    exchange.body_end()
    assert house.call.did == ["cancel"]
    assert (told.status, told.close) == (400, True)
    assert house.books.ends == [("rejected", 400, "")]


@pytest.mark.parametrize(
    ("fields", "close"),
    [
        ({}, False),
        ({"content_length": "0"}, False),
        ({"content_length": str(DISCARDED)}, False),
        ({"content_length": str(DISCARDED + 1)}, True),
        ({"transfer_encoding": "chunked"}, True),
        ({"content_length": "5", "expect": "100-continue"}, True),
    ],
)
def test_case_091_a_refusal_costs_no_body(poor: House, fields: dict[str, str], close: bool) -> None:
    """It is answered without asking for the body; what is more than a flight or two ends the connection."""
    poor.relayed(head("/"))
    told = poor.ask(head("/", "POST", **fields))
    assert (told.status, told.close, told.wanted) == (429, close, [])


def test_a_response_may_come_before_the_body_ends(house: House) -> None:
    """An upstream that answers early is heard; what is left of the body goes nowhere."""
    exchange, told = house.begin(head("/", "POST", content_length="6"))
    exchange.body(b"abc")
    house.call.respond(413, [], b"no")
    exchange.body(b"def")
    exchange.body_end()
    assert (told.status, told.end_, bytes(house.call.body)) == (413, "end", b"abc")
    assert house.books.ends == [("served", 413, "")]


@pytest.mark.parametrize(
    ("fields", "sent", "unread"),
    [
        ({}, 0, 0),
        ({"content_length": "5"}, 0, 5),
        ({"content_length": "5"}, 3, 2),
        ({"transfer_encoding": "chunked"}, 3, math.inf),
    ],
)
def test_how_much_of_a_body_is_to_come(house: House, fields: dict[str, str], sent: int, unread: float) -> None:
    """What a server needs to know to decide whether the connection is worth keeping."""
    exchange, _ = house.begin(head("/", "POST", **fields))
    exchange.body(b"x" * sent)
    assert exchange.unread == unread
    exchange.body_end()
    assert exchange.unread == 0


def test_a_server_turns_a_request_back(house: House) -> None:
    """Its body came malformed or too slowly: the call ends, the problem is the server's, once."""
    exchange, told = house.begin(head("/", "POST", content_length="5"))
    for _ in range(2):
        exchange.turn_back(Rejection(408, "request-timeout", ""))
    assert (told.status, house.call.did) == (408, ["cancel"])
    assert house.books.ends == [("rejected", 408, "")]
