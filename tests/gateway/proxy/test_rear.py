"""Who was refused last is heard behind those who were not, and is heard."""

from __future__ import annotations

import asyncio
import contextlib
import re
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import cast

import pytest

from gateway.proxy.framing import BURST
from gateway.proxy.guard import Guard
from gateway.proxy.rear import STRIDE, Rear
from tests.gateway.proxy.house import A, B
from tests.gateway.proxy.peers import HANDSHAKE
from tests.gateway.proxy.reach import on_both_loops, until
from tests.gateway.proxy.wired import Wired, connections, wired
from tests.wire.caller import Caller, request
from tests.wire.origin import Origin, serving
from tests.wire.script import Answer

__all__: list[str] = []

GOOD = request(target="/good", token=A.token)


class Loop:
    """Of a loop what the rear needs: its time stands still, and its turns are taken by hand."""

    def __init__(self) -> None:
        self.now = 0.001
        self.soon: list[Callable[[], object]] = []

    def time(self) -> float:
        return self.now

    def call_soon(self, callback: Callable[[], object]) -> None:
        self.soon.append(callback)

    def turn(self) -> None:
        """Call what was to be called soon, and not what that asks for."""
        soon, self.soon = self.soon, []
        for callback in soon:
            callback()

    def rear(self) -> Rear:
        """Return a rear on this loop."""
        return Rear(cast("asyncio.AbstractEventLoop", self))


class One:
    """Somebody who notes when he is heard."""

    def __init__(self, heard: list[int], number: int) -> None:
        self._heard = heard
        self._number = number

    def on_turn(self) -> None:
        self._heard.append(self._number)


def test_few_are_heard_at_once_and_the_rest_a_few_in_a_turn() -> None:
    """`STRIDE` in a millisecond do not wait; whoever comes after waits, in order, `STRIDE` in each turn."""
    loop, heard = Loop(), list[int]()
    rear = loop.rear()
    assert [rear.takes(One(heard, number)) for number in range(3 * STRIDE)] == [False] * STRIDE + [True] * 2 * STRIDE
    loop.now = 1.0
    assert rear.takes(One(heard, 3 * STRIDE))  # as long as anybody waits
    for most in (STRIDE, 2 * STRIDE, 2 * STRIDE + 1):
        loop.turn()
        assert heard == list(range(STRIDE, STRIDE + most))
    assert loop.soon == []
    assert not rear.takes(One(heard, 0))


def test_a_fault_of_one_does_not_hold_up_the_others() -> None:
    """Whoever stands behind it is heard all the same."""

    class Faulty:
        def on_turn(self) -> None:
            raise ZeroDivisionError

    loop, heard = Loop(), list[int]()
    rear = loop.rear()
    for _ in range(STRIDE):
        rear.takes(Faulty())
    assert rear.takes(Faulty())
    assert rear.takes(One(heard, 1))
    with pytest.raises(ZeroDivisionError):
        loop.turn()
    loop.turn()
    assert heard == [1]


@pytest.fixture
def origin() -> Iterator[Origin]:
    """Run the scripted upstream."""
    with serving() as up:
        yield up


@contextlib.asynccontextmanager
async def refused(tmp_path: Path, origin: Origin) -> AsyncIterator[tuple[Wired, Caller, Guard, Loop]]:
    """Yield a gateway, a caller that was refused last, its connection, and the loop for which it waits in the rear."""
    async with wired(tmp_path, origin, quota="1/h burst 1") as gateway, await Caller.connect(gateway.address) as caller:
        for status in (200, 429):
            await caller.send(GOOD)
            assert (await caller.response()).status == status
        (one,) = connections(gateway)
        loop = Loop()
        one.rear = loop.rear()
        while not one.rear.takes(One([], 0)):
            pass
        yield gateway, caller, one, loop
        loop.turn()


@on_both_loops
async def test_whoever_was_refused_lets_others_pass(tmp_path: Path, origin: Origin) -> None:
    """Its request waits; one on a connection that was not refused, later come, is heard first."""
    async with refused(tmp_path, origin) as (gateway, caller, one, loop):
        await caller.send(GOOD)
        await until(lambda: bool(one._unfed))
        settled = len(gateway.books.settled)
        async with await Caller.connect(gateway.address) as other:
            await other.send(GOOD)
            assert (await other.response()).status == 429
        assert one._unfed
        assert len(gateway.books.settled) == settled + 1
        loop.turn()
        assert (await caller.response()).status == 429


@on_both_loops
async def test_what_comes_meanwhile_waits_too_and_in_order(tmp_path: Path, origin: Origin) -> None:
    """Octets that follow are not read at will, and none is lost."""
    async with refused(tmp_path, origin) as (_, caller, one, loop):
        await caller.send(GOOD[:30])
        await until(lambda: bool(one._unfed))
        await caller.send(GOOD[30:] + GOOD)
        await until(lambda: one.read_paused)
        await caller.send(GOOD)
        for _ in range(3):
            answer = asyncio.create_task(caller.response())
            while not answer.done():
                loop.turn()
                await asyncio.sleep(0.001)
            assert answer.result().status == 429
        await until(lambda: not one.read_paused)


@on_both_loops
async def test_pipelined_refusals_let_others_pass(tmp_path: Path, origin: Origin) -> None:
    """Of what came in one read no more than `STRIDE` are refused in one turn."""
    async with refused(tmp_path, origin) as (gateway, caller, one, loop):
        settled = len(gateway.books.settled)
        await caller.send(GOOD * 3 * STRIDE)
        await until(lambda: bool(one._unfed))
        for heard in (STRIDE - 1, 2 * STRIDE - 1, 3 * STRIDE - 1, 3 * STRIDE):  # somebody else stood before it
            loop.turn()
            assert len(gateway.books.settled) == settled + heard
            await asyncio.sleep(0.01)
        assert [(await caller.response()).status for _ in range(3 * STRIDE)] == [429] * 3 * STRIDE


@on_both_loops
async def test_time_and_farewells_are_the_same_there(tmp_path: Path, origin: Origin) -> None:
    """A deadline does not close a connection whose request waits, and half a close gets its answer."""
    async with refused(tmp_path, origin) as (_, caller, one, loop):
        await caller.send(GOOD)
        await until(lambda: bool(one._unfed))
        one.on_deadline(asyncio.get_running_loop().time())
        assert not one.transport.is_closing()
        caller.half_close()
        await until(lambda: one.half_closed)
        loop.turn()
        assert (await caller.response()).status == 429
        assert await caller.until_closed() == "eof"


PASSED = request(target="/good", token=B.token)
POST = f"POST /post HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer {B.token}\r\n".encode()
LONG = POST + b"Transfer-Encoding: chunked\r\n\r\n" + (b"64\r\n" + b"y" * 100 + b"\r\n") * 450 + b"0\r\n\r\n"
MANY = 2 * BURST

#: What comes whole together with the end of input: its answers, and how much of a body the upstream gets.
FAREWELLS = {
    "a request": (PASSED, {200: 1}, 0),
    "more chunks than are worked off at once": (LONG, {200: 1}, 45_000),
    "more requests than are read at once": (GOOD * MANY, {429: MANY}, 0),
    "a request behind more than are read at once": (GOOD * MANY + PASSED, {429: MANY, 200: 1}, 0),
    "all of it": (GOOD * MANY + LONG, {429: MANY, 200: 1}, 45_000),
    "a part of a head": (PASSED[:30], {400: 1}, 0),
    "a part of a head behind many requests": (GOOD * MANY + PASSED[:30], {429: MANY, 400: 1}, 0),
    "a part of a body": (LONG[:20_000], {}, 0),
    "a part of a body behind a request": (PASSED + LONG[:20_000], {200: 1, 400: 1}, 0),
    "not HTTP": (b"\0" * 9, {400: 1}, 0),
}


@pytest.mark.parametrize(("octets", "answers", "passed_on"), FAREWELLS.values(), ids=FAREWELLS)
@on_both_loops
async def test_the_end_is_judged_behind_what_came_before_it(
    tmp_path: Path, origin: Origin, octets: bytes, answers: dict[int, int], passed_on: int
) -> None:
    """Half a close in the rear: whatever was whole is answered in order, and what was not is not passed on whole."""
    async with refused(tmp_path, origin) as (gateway, caller, one, loop):
        before = len(caller.raw)
        await caller.send(octets)
        caller.half_close()
        await until(lambda: one.half_closed or one.read_paused)
        assert one._unfed
        while caller.closed is None:
            loop.turn()
            await asyncio.sleep(0.001)
        told = [int(status) for status in re.findall(rb"HTTP/1\.1 (\d+)", caller.raw[before:])]
        assert {status: told.count(status) for status in sorted(set(told) - {100})} == dict(sorted(answers.items()))
        whole = [seen for seen in origin.seen if seen.length]
        assert sum(seen.length for seen in whole if seen.ended) == passed_on
        await until(lambda: not connections(gateway))
        assert not one._unfed


@on_both_loops
async def test_a_websocket_ends_with_the_end_behind_its_handshake(tmp_path: Path, origin: Origin) -> None:
    """It is handed over, told of the end that the loop had told before, and leaves nothing standing."""
    async with refused(tmp_path, origin) as (gateway, caller, one, loop):
        settled = len(gateway.books.settled)
        await caller.send(HANDSHAKE)
        caller.half_close()
        await until(lambda: one.half_closed)
        loop.turn()
        await caller.until_closed()
        await until(lambda: not connections(gateway) and not gateway.door.post.connections)
        await gateway.settled(settled + 1)


@on_both_loops
async def test_whoever_leaves_the_rear_is_forgotten(tmp_path: Path, origin: Origin) -> None:
    """What a caller asked that is gone is not asked any more."""
    async with refused(tmp_path, origin) as (gateway, caller, one, loop):
        settled = len(gateway.books.settled)
        await caller.send(GOOD)
        await until(lambda: bool(one._unfed))
        caller.reset()
        await until(lambda: not connections(gateway))
        loop.turn()
        await asyncio.sleep(0.01)
        assert len(gateway.books.settled) == settled


@on_both_loops
async def test_whoever_asks_from_the_rear_and_leaves_is_noticed(tmp_path: Path, origin: Origin) -> None:
    """A whole close looks like half of one until something is written: the call to the upstream does not run on."""
    origin.on("/held", Answer(held=True))
    async with refused(tmp_path, origin) as (gateway, caller, one, loop):
        settled = len(gateway.books.settled)
        await caller.send(request(target="/held", token=B.token))
        await until(lambda: bool(one._unfed))
        caller.close()
        await until(lambda: one.half_closed)
        loop.turn()
        await gateway.settled(settled + 1)
        assert gateway.books.ends[-1] == ("aborted", 0, "")
    origin.release()


@on_both_loops
async def test_whoever_is_served_again_stands_there_no_more(tmp_path: Path, origin: Origin) -> None:
    """An answer of the upstream's makes a connection as good as any."""
    quota = "20/s burst 1"
    async with wired(tmp_path, origin, quota=quota) as gateway, await Caller.connect(gateway.address) as caller:
        told: list[int] = []
        while told[-2:] != [429, 200]:
            await caller.send(GOOD)
            told.append((await caller.response()).status)
            assert connections(gateway)[0].refused == (told[-1] == 429)
