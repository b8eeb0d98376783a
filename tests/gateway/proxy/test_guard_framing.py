"""Octets in, requests out: what the framing of the guard takes, refuses and bounds."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import pytest

from gateway.proxy.framing import BURST, MAX_OVERHEAD, SLICE, WORK
from gateway.proxy.guard import Guard
from tests.gateway.proxy.house import A
from tests.gateway.proxy.reach import on_both_loops, until
from tests.gateway.proxy.wired import Wired, connections, wired
from tests.wire.caller import Caller, call, request
from tests.wire.origin import Origin, serving
from tests.wire.script import Answer

T = A.token
PLENTY = "100000/s"
GOOD = request(target="/good", token=T)


@pytest.fixture
def origin() -> Iterator[Origin]:
    """Run the scripted upstream."""
    with serving() as up:
        yield up


def targets(up: Origin) -> list[bytes]:
    """Return what arrived."""
    return [seen.target for seen in up.seen]


async def refused(gateway: Wired, octets: bytes, **sending: Any) -> tuple[int, str]:
    """Send `octets`, which are one fault; return its status and how the connection ended."""
    async with await Caller.connect(gateway.address) as caller:
        await caller.send(octets, **sending)
        answer = await caller.response()
        assert answer.complete
        assert answer.header("connection") == "close"
        return answer.status, await caller.until_closed()


@on_both_loops
async def test_fault_takes_what_came_with_it(tmp_path: Path, origin: Origin) -> None:
    """A good request in the same octets as a malformed one reaches nobody, and one problem says so (rule 1)."""
    async with wired(tmp_path, origin, quota=PLENTY) as gateway:
        assert await refused(gateway, GOOD + b"GET / HTTP/1.1\r\nHost : a\r\n\r\n") == (400, "eof")
        assert gateway.rejections == [(400, "bad-framing")]
    assert targets(origin) == []


@on_both_loops
async def test_fault_in_later_octets_waits_for_the_answer_before(tmp_path: Path, origin: Origin) -> None:
    """What was begun is answered first, then the fault, then the connection ends."""
    origin.on("/good", Answer(delay=0.1))
    async with wired(tmp_path, origin, quota=PLENTY) as gateway:
        async with await Caller.connect(gateway.address) as caller:
            await caller.send(GOOD)
            await until(lambda: len(origin.seen) == 1)
            await caller.send(b"nonsense\r\n\r\n")
            assert [(await caller.response()).status for _ in range(2)] == [200, 400]
            assert await caller.until_closed() == "eof"
        assert gateway.books.ends[0][0] == "served"
        assert len(gateway.books.settled) == 2


@on_both_loops
async def test_trailers_never_become_fields(tmp_path: Path, origin: Origin) -> None:
    """A trailer named like a credential, a host or a length is dropped (rule 2)."""
    head = f"POST /x HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer {T}\r\nTransfer-Encoding: chunked\r\n\r\n".encode()
    trailers = b"3\r\nabc\r\n0\r\nAuthorization: Bearer other\r\nHost: evil\r\nX-T: 1\r\n\r\n"
    async with wired(tmp_path, origin, quota=PLENTY) as gateway:
        assert (await call(gateway.address, head + trailers)).status == 200
        assert (await call(gateway.address, head + trailers[:8] + b"0\r\n" + b"X-T: 1\r\n" * 10_000)).status == 431
    assert [(bytes(seen.body), seen.trailers, seen.all("x-t")) for seen in origin.seen[:1]] == [(b"abc", [], [])]
    assert b"evil" not in origin.connections[0].raw


LARGE = [
    (b"GET /" + b"a" * 2000, 414),
    (b"GET / HTTP/1.1\r\nX: " + b"a" * 2000, 431),
    (b"GET / HTTP/1.1\r\n" + b"a" * 2000, 431),
    (b"GET / HTTP/1.1\r\n" + b"A: b\r\n" * 60, 431),
    (b"\r\n" * 600, 414),
]


@pytest.mark.parametrize("split", [0, 1, 700])
@pytest.mark.parametrize(("octets", "status"), LARGE)
@on_both_loops
async def test_head_is_bounded_while_it_arrives(
    tmp_path: Path, origin: Origin, octets: bytes, status: int, split: int
) -> None:
    """Bytes and fields are counted before the head is complete, however it is cut (rule 3)."""
    config = 'max_header_bytes = "1KiB"\nmax_headers = 50'
    async with wired(tmp_path, origin, server=config) as gateway:
        found, _ = await refused(gateway, octets, split=split or ())
        # A line that was never seen to be a field's is an unfinished request line to whoever counts.
        assert found in {status, 414, 431}
        assert len(gateway.rejections) == 1
    assert targets(origin) == []


@on_both_loops
async def test_what_stands_beside_a_body_is_bounded(tmp_path: Path, origin: Origin) -> None:
    """Chunk extensions without end are 431, and chunks far too small, very many at a time, 400 (rule 5)."""
    head = f"POST / HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer {T}\r\nTransfer-Encoding: chunked\r\n\r\n".encode()
    async with wired(tmp_path, origin, quota=PLENTY) as gateway:
        small = [(b"%x\r\n" % size + b"x" * size + b"\r\n") * 20_000 for size in (1, 8)]
        for octets, status in ((b"5;" + b"x" * (MAX_OVERHEAD * 2), 431), (small[0], 400), (small[1], 400)):
            async with await Caller.connect(gateway.address) as caller:
                await caller.send(head)
                await caller.send(octets, split=10_000, gap=0.001)
                assert (await caller.response()).status == status
        # A few at a time are as they were written.
        async with await Caller.connect(gateway.address) as caller:
            await caller.send(head)
            guard = connections(gateway)[0]
            await until(lambda: guard._receiving is not None)
            for _ in range(1_500):
                guard.data_received(b"8\r\n" + b"x" * 8 + b"\r\n")
                guard.data_received(b"1\r\nx\r\n" * 10)
                await asyncio.sleep(0)
            await caller.send(b"0\r\n\r\n")
            assert (await caller.response()).status == 200
        # A chunk of some size pays for its own line.
        async with await Caller.connect(gateway.address) as caller:
            await caller.send(head + b"20;a=b\r\n" + b"x" * 32 + b"\r\n")
            await caller.send(b"20\r\n" + b"x" * 32 + b"\r\n", split=5)
            for _ in range(50):
                await caller.send((b"20\r\n" + b"x" * 32 + b"\r\n") * 100)
            await caller.send(b"0\r\n\r\n")
            assert (await caller.response()).status == 200


@on_both_loops
async def test_one_turn_of_the_loop_is_shared(tmp_path: Path, origin: Origin) -> None:
    """However much came, reading rests after about `WORK`, and goes on by itself when others had their turn."""
    head = f"POST / HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer {T}\r\nTransfer-Encoding: chunked\r\n\r\n".encode()
    chunk = b"20\r\n" + b"x" * 32 + b"\r\n"
    plain = b"10000\r\n" + b"x" * 65_536 + b"\r\n"
    async with wired(tmp_path, origin, quota=PLENTY) as gateway, await Caller.connect(gateway.address) as caller:
        await caller.send(head)
        guard = connections(gateway)[0]
        await until(lambda: guard._receiving is not None)
        size = 0
        for octets, body, most in ((chunk * 1_000, 32_000, 1), (plain, 65_536, 40)):
            await until(lambda: not guard.read_paused)
            reads = 0
            while not guard.read_paused and reads <= most:
                guard.data_received(octets)
                reads += 1
            assert reads <= most
            assert guard._work <= WORK + SLICE // len(chunk) + 2
            size += reads * body
        turns = 0
        while guard.read_paused:
            turns += 1
            await asyncio.sleep(0)
        assert turns
        await caller.send(b"0\r\n\r\n")
        assert (await caller.response()).status == 200
    assert len(origin.seen[-1].body) == size


@on_both_loops
async def test_requests_at_once_are_bounded(tmp_path: Path, origin: Origin) -> None:
    """Whatever comes in one read is answered in order, but only about `BURST` heads are kept at a time."""
    count = 8 * BURST
    origin.on("/", lambda seen: Answer(body=seen.target))
    async with wired(tmp_path, origin, quota="100000/s burst 100000") as gateway:
        one: Guard | None = None
        most = 0
        async with await Caller.connect(gateway.address) as caller:
            await caller.send(b"".join(request(target=f"/{number}", token=T) for number in range(count)))
            for number in range(count):
                assert (await caller.response()).body == b"/%d" % number
                one = one or cast("Guard", next(iter(gateway.server.server_state.connections)))
                most = max(most, len(one._queue))
        assert 0 < most <= BURST + SLICE // len(request(target="/1", token=T)) + 1


UPGRADES = [
    ("Connection: upgrade\r\nUpgrade: h2c\r\n", b""),
    ("Connection: upgrade\r\nUpgrade: h2c\r\nContent-Length: 0\r\n", b""),
    ("Connection: upgrade\r\nUpgrade: h2c\r\nContent-Length: 5\r\n", b"hello"),
    ("Connection: upgrade\r\nUpgrade: h2c\r\nTransfer-Encoding: chunked\r\n", b"5\r\nhello\r\n0\r\nT: 1\r\n\r\n"),
]


@pytest.mark.parametrize("split", [0, 1])
@pytest.mark.parametrize(("fields", "body"), UPGRADES)
@on_both_loops
async def test_upgrade_that_is_not_spoken_is_an_ordinary_request(
    tmp_path: Path, origin: Origin, fields: str, body: bytes, split: int
) -> None:
    """RFC 9110 section 7.8: the body of a request with an Upgrade is its body, not the next request."""
    head = f"POST /up HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer {T}\r\n{fields}\r\n".encode()
    async with wired(tmp_path, origin, quota=PLENTY) as gateway, await Caller.connect(gateway.address) as caller:
        await caller.send(head + body + GOOD, split=split or ())
        assert [(await caller.response()).status for _ in range(2)] == [200, 200]
    assert targets(origin) == [b"/up", b"/good"]
    assert [bytes(seen.body) for seen in origin.seen] == [b"hello" if body else b"", b""]
    assert origin.seen[0].all("upgrade") == []


@on_both_loops
async def test_very_many_upgrades_at_once(tmp_path: Path, origin: Origin) -> None:
    """Each starts a parser of its own, and none a deeper call."""
    octets = request(target="/", token=T, fields=[("Connection", "upgrade"), ("Upgrade", "x")])
    quota = "100000/s burst 100000"
    async with wired(tmp_path, origin, quota=quota) as gateway, await Caller.connect(gateway.address) as caller:
        await caller.send(octets * 200)
        assert [(await caller.response()).status for _ in range(200)] == [200] * 200


@pytest.mark.parametrize("version", [b"HTTP/1.2", b"HTTP/2.0", b"HTTP/3.0", b"HTTP/9.9"])
@on_both_loops
async def test_versions_that_are_not_spoken(tmp_path: Path, origin: Origin, version: bytes) -> None:
    """A version that HTTP could have and that is not spoken here is 505, whether the parser knows it or not."""
    async with wired(tmp_path, origin, quota=PLENTY) as gateway:
        assert (await refused(gateway, b"GET / " + version + b"\r\nHost: a\r\n\r\n"))[0] == 505
    assert targets(origin) == []


@pytest.mark.parametrize("line", [b"OPTIONS / RTSP/1.0", b"DESCRIBE / RTSP/1.0", b"SOURCE / ICE/1.0"])
@on_both_loops
async def test_other_protocols_of_the_parser_are_not_http(tmp_path: Path, origin: Origin, line: bytes) -> None:
    """The parser reads RTSP and ICE; nobody here does."""
    async with wired(tmp_path, origin, quota=PLENTY) as gateway:
        assert (await refused(gateway, line + b"\r\nHost: a\r\n\r\n"))[0] == 400
        octets = request("OPTIONS", "/", token=T).replace(b"HTTP/1.1", b"HTTP/1.0", 1)
        assert (await call(gateway.address, octets)).status == 200
    assert targets(origin) == [b"/"]
