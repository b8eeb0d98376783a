"""The scripted upstream and the raw caller talk to each other: a harness that lies would hide what it should find."""

from __future__ import annotations

import asyncio
import hashlib
import itertools
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.wire.caller import Caller, Response, call, request
from tests.wire.message import End, WireError, requests
from tests.wire.origin import Origin, serving
from tests.wire.script import HANG, Answer
from tests.wire.tokens import mistyped, pat
from tests.wire.waiting import until

__all__: list[str] = []


@pytest.fixture
def up() -> Iterator[Origin]:
    """Run a scripted upstream that must have met nothing it could not read."""
    with serving() as origin:
        yield origin
        assert origin.faults == []


def where(up: Origin) -> str:
    """Return the upstream's address as a caller wants it."""
    return up.address.removeprefix("http://")


async def test_request_arrives_octet_for_octet(up: Origin) -> None:
    """What was sent, in any split, is what was recorded, and its body is read by its framing."""
    for octets in (request("POST", "/a%2Fb?x", body=b"12345"), request("POST", "/c", body=b"12345", chunked=True)):
        up.forget()
        async with await Caller.connect(where(up)) as caller:
            await caller.send(octets, split=1)
            response = await caller.response()
        assert (response.status, response.body, response.complete) == (200, b"ok", True)
        assert bytes(up.connections[-1].raw) == octets
        assert [(seen.method, bytes(seen.body)) for seen in up.seen] == [("POST", b"12345")]
        assert up.seen[0].digest.digest() == hashlib.sha256(b"12345").digest()
    assert up.seen[0].target == b"/c"


async def test_connection_is_kept_and_pipelined_answers_come_in_order(up: Origin) -> None:
    """Three requests in one packet, the first answered last by its own script, come back in their order."""
    up.then(Answer(body=b"1", delay=0.05), Answer(body=b"2"), Answer(body=b"3", framing="chunked"))
    async with await Caller.connect(where(up)) as caller:
        await caller.send(request(target="/1") + request(target="/2") + request(target="/3"))
        assert [(await caller.response()).body for _ in range(3)] == [b"1", b"2", b"3"]
    assert len(up.connections) == 1
    assert [seen.target for seen in up.connections[0].seen] == [b"/1", b"/2", b"/3"]


async def test_script_is_chosen_by_longest_prefix_and_may_look_at_the_request(up: Origin) -> None:
    """A script is an answer or a function of what arrived."""
    up.on("/", lambda seen: Answer(body=seen.target))
    up.on("/teapot", Answer(418, fields=(("X-A", "1"), ("X-A", "2"))))
    assert (await call(where(up), request(target="/echo"))).body == b"/echo"
    teapot = await call(where(up), request(target="/teapot/x"))
    assert (teapot.status, teapot.all("x-a")) == (418, ["1", "2"])


async def test_head_and_statuses_without_a_body_have_none(up: Origin) -> None:
    """HEAD, 204 and 304 end with their head."""
    up.then(Answer(body=b"abc"), Answer(204), Answer(304))
    async with await Caller.connect(where(up)) as caller:
        for method, status in (("HEAD", 200), ("GET", 204), ("GET", 304)):
            await caller.send(request(method))
            response = await caller.response(method)
            assert (response.status, response.body, response.complete) == (status, b"", True)


async def test_streamed_pieces_arrive_one_by_one(up: Origin) -> None:
    """The first piece is readable before the second is made."""
    made: list[int] = []

    def pieces() -> Iterator[bytes]:
        for number in range(3):
            made.append(number)
            yield b"%d" % number

    up.then(Answer(body=pieces, framing="chunked", gap=0.05))
    response = await call(where(up), request())
    assert [octets for _, octets in response.parts] == [b"0", b"1", b"2"]
    assert response.parts[1][0] - response.parts[0][0] > 0.02


@pytest.mark.parametrize("framing", ["length", "chunked"])
@pytest.mark.parametrize("ending", ["reset", "close"])
@pytest.mark.parametrize("cut", [0, 1, 30, 70])
async def test_cut_answer_is_never_complete(up: Origin, framing: str, ending: str, cut: int) -> None:
    """An answer that ends after n octets, politely or not, is seen as broken and at that octet."""
    answer = {"body": b"x" * 40, "framing": framing, "ending": ending, "cut": cut}
    up.then(Answer(**answer))  # type: ignore[arg-type]  # one table for both Literals
    async with await Caller.connect(where(up)) as caller:
        await caller.send(request())
        response = await caller.response()
        assert len(caller.raw) == cut
        assert caller.closed == ("reset" if ending == "reset" else "eof")
    assert not response.complete
    assert response.fault
    assert response.status == (0 if cut < 70 else 200)


async def test_body_until_close_is_complete_only_at_a_polite_end(up: Origin) -> None:
    """Without any length the end of the stream ends the body; a reset does not."""
    up.then(Answer(framing="close", ending="close"), Answer(framing="close", ending="reset"))
    assert (await call(where(up), request())).complete
    broken = await call(where(up), request())
    assert (broken.status, broken.complete) == (200, False)


async def test_interim_and_early_answers(up: Origin) -> None:
    """1xx answers are apart from the final one; an early answer comes before the body was sent."""
    up.then(Answer(201, interim=((100, ()), (103, (("Link", "</s.css>"),))), early=True))
    octets = request("PUT", "/", body=b"0123456789")
    async with await Caller.connect(where(up)) as caller:
        await caller.send(octets[:-10])
        response = await caller.response("PUT")
        assert up.seen[0].ended is None
        await caller.send(octets[-10:])
        await until(lambda: up.seen[0].ended, "the body is read")
    assert response.status == 201
    assert [head.start.split()[1] for head in response.interim] == [b"100", b"103"]
    assert response.interim[1].all(b"link") == [b"</s.css>"]


@pytest.mark.parametrize("how", ["reset", "eof"])
async def test_upstream_sees_how_a_caller_leaves(up: Origin, how: str) -> None:
    """A caller that leaves is recorded with the time and the manner, even while nothing is answered."""
    up.then(HANG)
    async with await Caller.connect(where(up)) as caller:
        await caller.send(request())
        await until(lambda: up.seen, "the request arrives")
        assert up.open == 1
        if how == "reset":
            caller.reset()
        else:
            caller.half_close()
        await until(lambda: up.connections[0].closed, "the end is seen")
    connection = up.connections[0]
    assert connection.closed == how
    assert connection.closed_at is not None
    assert connection.closed_at >= up.seen[0].started
    assert up.open == 0


async def test_request_cut_by_its_caller_is_never_ended(up: Origin) -> None:
    """A body that stops halfway leaves a request without an end."""
    octets = request("POST", body=b"x" * 100)
    caller = await Caller.connect(where(up))
    await caller.send_and_reset(octets, len(octets) - 50)
    await until(lambda: up.connections and up.connections[0].closed, "the reset is seen")
    assert up.connections[0].closed == "reset"
    assert [(seen.length, seen.ended) for seen in up.seen] == [(50, None)]


async def test_idle_connection_is_closed_after_its_time(up: Origin) -> None:
    """An idle time of the upstream ends a kept connection, and is seen as its own doing."""
    up.idle_close = 0.05
    async with await Caller.connect(where(up)) as caller:
        await caller.send(request())
        assert (await caller.response()).complete
        assert await caller.until_closed() == "eof"
    await until(lambda: up.connections[0].closed == "ours", "the upstream closed")


async def test_endless_answer_stops_with_its_reader(up: Origin) -> None:
    """A stream that never ends meets back-pressure, is read on at will, and stops when its reader goes."""
    sent = itertools.count()

    def pieces() -> Iterator[bytes]:
        while True:
            next(sent)
            yield b"x" * 65536

    up.then(Answer(body=pieces, framing="chunked"))
    caller = await Caller.connect(where(up))
    caller.pause()
    await caller.send(request())
    await asyncio.sleep(0.2)
    before = next(sent)
    await asyncio.sleep(0.1)
    assert next(sent) == before + 1
    caller.reset()
    await until(lambda: up.connections[0].closed, "the writer is ended")


async def test_slow_upstream_holds_its_sender_back(up: Origin) -> None:
    """With `read_gap` the upstream takes so little that a sender's buffers fill."""
    up.read_gap = 10.0
    async with await Caller.connect(where(up)) as caller:
        sending = asyncio.ensure_future(caller.send(request("POST", body=b"x" * (32 << 20)), split=1 << 20))
        await asyncio.sleep(0.2)
        assert not sending.done()
        caller.reset()
        await sending


async def test_head_can_be_seen_before_the_rest(up: Origin) -> None:
    """`head` returns with the head; the whole response is still there for `response`."""
    up.then(Answer(body=lambda: [b"a", b"b"], framing="chunked", gap=0.05))
    async with await Caller.connect(where(up)) as caller:
        await caller.send(request())
        assert (await caller.head()).status == 200
        response = await caller.response()
        assert (response.body, response.complete) == (b"ab", True)


async def test_callers_have_addresses_of_their_own(up: Origin) -> None:
    """A source address within 127.0.0.0/8 is a caller of its own."""
    assert (await call(where(up), request(), source="127.7.7.7")).status == 200


async def test_unix_socket_serves_like_tcp(tmp_path: Path) -> None:
    """The same upstream listens on a path."""
    with serving(Origin(unix=tmp_path / "up.sock")) as up:
        assert (await call(up.address, request())).body == b"ok"


def test_response_without_any_octet_has_no_status() -> None:
    """A response that never began says so."""
    assert Response().status == 0


@pytest.mark.parametrize(
    "octets",
    [
        b"GET / HTTP/1.1\nHost: a\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: a\n\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost : a\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: a\r\n folded\r\n\r\n",
        b"POST / HTTP/1.1\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n",
        b"POST / HTTP/1.1\r\nContent-Length: 1\r\nContent-Length: 1\r\n\r\n",
        b"POST / HTTP/1.1\r\nContent-Length: +1\r\n\r\n",
        b"POST / HTTP/1.1\r\nTransfer-Encoding: gzip, chunked\r\n\r\n",
        b"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n1\r\naXX0\r\n\r\n",
        b"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n1\naXX0\r\n\r\n",
        b"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n0x1\r\na\r\n0\r\n\r\n",
    ],
)
def test_reader_mends_nothing(octets: bytes) -> None:
    """What a lenient reader would mend is a fault."""
    with pytest.raises(WireError):
        requests().feed(octets)


def test_trailers_are_apart_from_fields() -> None:
    """Trailers end a message and are no part of its head."""
    events = requests().feed(b"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n0;x=y\r\nA: b\r\n\r\n")
    assert events[-1] == End([(b"A", b"b")])


def test_token_is_as_the_contract_writes_it() -> None:
    """44 characters: prefix, 30 of base62 and 6 of their CRC-32; a typo keeps the shape and breaks the sum."""
    token = pat("acme/ci").token
    assert token == pat("acme/ci").token != pat("acme/cd").token
    assert len(token) == 44
    assert token[8:].isalnum()
    assert mistyped(token) != token
    assert len(mistyped(token)) == 44
