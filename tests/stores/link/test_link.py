"""The link to one server: what is asked is answered, once, by its own reply, or by a fault."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator

import pytest
import uvloop

from gateway.stores.link import StoreFault
from tests.stores.link.linked import ECHO, INCR, NAMES, call, linked, run, up
from tests.wire.faults import FaultProxy
from tests.wire.redis import RedisServer
from tests.wire.waiting import until

__all__: list[str] = []

A, B = NAMES.key("a", "key"), NAMES.key("b", "key")


@pytest.fixture
def proxy(redis_server: RedisServer) -> Iterator[FaultProxy]:
    """Return a fault proxy before an empty server."""
    with FaultProxy(redis_server.address) as proxy:
        yield proxy


async def test_a_script_is_run_and_a_command_sent(redis_server: RedisServer) -> None:
    """By TCP and by unix socket; the same script travels once a connection."""
    for url in (redis_server.url, f"redis+unix://{redis_server.unix}?database=1"):
        async with linked(url) as link:
            assert await run(link, INCR, [A], b"x") == [1, b"x"]
            assert await run(link, INCR, [A], b"y") == [2, b"y"]
            assert await call(link, b"GET", A) == b"2"
            assert await call(link, b"GET", B) is None
            assert await call(link, b"PING") == b"PONG"
            assert link.connections == 1
            assert not any(link.errors.values())
    assert redis_server.ask("GET", A) == b"2"


async def test_a_call_made_at_once_waits_for_the_first_connection(redis_server: RedisServer) -> None:
    """Nothing has failed yet, so the store is not known to be down; nobody has to wait before asking."""
    async with linked(redis_server.url, wait=False) as link:
        assert not link.up
        assert await run(link, INCR, [A], b"x") == [1, b"x"]


async def test_many_calls_share_a_connection(redis_server: RedisServer) -> None:
    """Pipelined: each reply goes to whoever asked for it."""
    async with linked(redis_server.url) as link:
        asked = [run(link, ECHO, [A], b"%d" % number) for number in range(900)]
        assert await asyncio.gather(*asked) == [b"%d" % number for number in range(900)]
        assert link.connections == 1


async def test_scripts_that_the_server_forgot_are_sent_again(redis_server: RedisServer) -> None:
    """NOSCRIPT says that it did not run: it heals by itself, for every call under way."""
    async with linked(redis_server.url) as link:
        assert await run(link, INCR, [A], b"x") == [1, b"x"]
        redis_server.ask("SCRIPT", "FLUSH")
        replies = await asyncio.gather(*[run(link, INCR, [A], b"x") for _ in range(3)])
        assert replies == [[2, b"x"], [3, b"x"], [4, b"x"]]
        assert link.errors["noscript"] >= 1


async def test_what_is_outstanding_is_bounded(proxy: FaultProxy) -> None:
    """A server that says nothing cannot make us keep what callers want of it without end."""
    async with linked(proxy.url) as link:
        proxy.freeze()
        asked = [run(link, ECHO, [A], b"x", within=0.05) for _ in range(1_200)]
        assert sum(one.done() for one in asked) == 200
        assert asked[-1].result() == StoreFault("down", "too many calls wait for the store")
        assert {answer.kind for answer in await asyncio.gather(*asked[:1000])} == {"timeout"}


async def test_a_reply_that_comes_too_late_is_handed_over(proxy: FaultProxy) -> None:
    """It may hold what has been charged; nobody else sees it, and the next call has its own."""
    async with linked(proxy.url) as link:
        proxy.delay(0.05)
        late: list[object] = []
        answer = await run(link, INCR, [A], b"x", within=0.02, late=late.append)
        assert answer == StoreFault("timeout", "the store did not answer in time")
        proxy.delay(0.0)
        assert await run(link, INCR, [A], b"y") == [2, b"y"]
        await until(lambda: late, "the late reply")
        assert late == [[1, b"x"]]
        assert link.errors["timeout"] == 1


async def test_known_to_be_down_is_answered_at_once(proxy: FaultProxy) -> None:
    """Inside the call; and the watchers hear when it goes and when it is back."""
    async with linked(proxy.url) as link:
        seen: list[bool] = []
        link.watchers.append(seen.append)
        proxy.down()
        await until(lambda: not link.up, "the link is down")
        await until(lambda: link.cause == "refused", "the cause")
        asked = run(link, INCR, [A], b"x")
        assert asked.done()
        assert asked.result().kind == "down"
        proxy.heal()
        await up(link)
        assert await run(link, INCR, [A], b"x") == [1, b"x"]
        assert (seen, link.cause) == ([False, True], "")


async def test_one_record_that_is_wrong_is_its_own_trouble(redis_server: RedisServer) -> None:
    """A wrong type, a script that fails: faults of that call; the link stays up for all others."""
    redis_server.ask("RPUSH", A, "x")
    async with linked(redis_server.url) as link:
        for _ in range(10):
            answer = await run(link, INCR, [A], b"x")
            assert answer.kind == "wrongtype"
            assert (await call(link, b"NOSUCH", A)).kind == "error"
        assert await run(link, INCR, [B], b"x") == [1, b"x"]
        assert link.up
        assert link.errors["wrongtype"] == 10


async def test_a_callback_that_fails_costs_nobody_else_a_reply(redis_server: RedisServer) -> None:
    """It is a bug of its owner, and reported as one."""
    reported: list[object] = []
    loop = asyncio.get_running_loop()
    loop.set_exception_handler(lambda _, context: reported.append(context["exception"]))
    async with linked(redis_server.url) as link:
        link.run(ECHO, [A], [b"x"], lambda _: 1 / 0, 1_000_000)  # type: ignore[arg-type]  # fails before it returns
        assert await run(link, ECHO, [A], b"y") == b"y"
    assert [type(error) for error in reported] == [ZeroDivisionError]


async def test_stopping_answers_whoever_waits(proxy: FaultProxy) -> None:
    """With `down`; and so does a link that was never started."""
    async with linked(proxy.url) as link:
        proxy.freeze()
        asked = run(link, ECHO, [A], b"x", within=10.0)
        await link.stop()
        assert asked.result().kind == "down"
        assert run(link, ECHO, [A], b"x").result().kind == "down"
        assert not link.up


async def test_a_server_in_a_script_without_end_is_left_alone(redis_server: RedisServer) -> None:
    """BUSY opens the circuit; the link is back by itself."""
    redis_server.ask("CONFIG", "SET", "lua-time-limit", "50")
    try:
        async with linked(redis_server.url) as link, linked(redis_server.url) as other:
            endless = call(other, b"EVAL", b"while true do end", b"0", within=9.0)
            while not link.errors["busy"]:
                await call(link, b"GET", A, within=0.02)
            await until(lambda: not link.up, "the link is down")
            redis_server.ask("SCRIPT", "KILL")
            await endless
            await up(link)
    finally:
        redis_server.ask("CONFIG", "SET", "lua-time-limit", "5000")


def test_a_gateway_that_was_busy_blames_no_store(proxy: FaultProxy, redis_server: RedisServer) -> None:
    """What has arrived meanwhile is read before anything is given up; uvloop runs timers between reads."""

    async def busy() -> None:
        async with linked(proxy.url, deadline="100ms") as link, linked(redis_server.url) as other:
            proxy.delay(0.02)
            asked = [run(link, ECHO, [A], b"x", within=0.1) for _ in range(10)]
            await asyncio.sleep(0.01)
            # As a request does that takes long to parse: between one read and the next.
            other.call([b"PING"], lambda _: time.sleep(1.1), 1_000_000)
            assert await asyncio.gather(*asked) == [b"x"] * 10
            assert link.up
            assert not any(link.errors.values())

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(busy())
