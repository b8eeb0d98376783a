"""Connections are shared: reused, bounded, handed over in order, and never lost to a caller that left."""

from __future__ import annotations

import asyncio
import random
import socket

import pytest

from gateway.proxy.pool import TICK
from tests.gateway.proxy.reach import Told, ask, get, on_both_loops, reaching, received, sent, until
from tests.wire.origin import serving
from tests.wire.script import HANG, Answer


@on_both_loops
async def test_reuse_is_last_in_first_out_and_idle_connections_expire() -> None:
    """One call at a time keeps to one connection, so the others run into keepalive_timeout."""
    with serving() as origin:
        origin.on("/slow", Answer(delay=0.05))
        async with reaching(origin, keepalive_timeout="600ms") as upstream:
            calls = [ask(upstream, target="/slow") for _ in range(5)]
            for told in calls:
                await told.end()
            assert upstream.stats().idle == 5
            for _ in range(10):
                await get(upstream)
                await asyncio.sleep(0.1)
            assert (upstream.stats().idle, origin.open) == (1, 1)
            await until(lambda: upstream.stats().idle == 0)
            await until(lambda: origin.open == 0)
        assert len(origin.connections) == 5


@pytest.mark.parametrize(("keys", "most"), (({"max_connections": 3}, 3), ({"concurrency": 2}, 2)))
@on_both_loops
async def test_limits_hold_and_the_line_is_first_come_first_served(keys: dict[str, int], most: int) -> None:
    """Never more connections, or requests in flight, than allowed; the order of arrival is kept."""
    with serving() as origin:
        origin.on("/", Answer(delay=0.01))
        async with reaching(origin, **keys) as upstream:
            calls = [ask(upstream, target=f"/{number:02}") for number in range(20)]
            stats = upstream.stats()
            assert (stats.connecting, stats.waiting) == (most, 20 - most)
            for told in calls:
                assert (await told.end()).kind == "done"
        assert len(origin.connections) == most
        arrived = [int(seen.target[1:]) for seen in origin.seen]
        assert all(abs(place - number) < most for place, number in enumerate(arrived))


@pytest.mark.parametrize("keys", ({"max_connections": 1}, {"concurrency": 1}))
@on_both_loops
async def test_waiting_too_long_is_told_as_connections(keys: dict[str, int]) -> None:
    """503 after connect_timeout in the line, and nothing was sent: the charge can be given back."""
    with serving() as origin:
        origin.on("/hang", HANG)
        async with reaching(origin, connect_timeout="500ms", **keys) as upstream:
            hanging = ask(upstream, target="/hang")
            await sent(hanging)
            told = await get(upstream)
            assert told.failure is not None
            assert (told.kind, told.failure.status, told.sent) == ("connections", 503, 0)
            assert hanging.call is not None
            hanging.silent = True
            hanging.call.cancel()
            assert (await get(upstream)).kind == "done"


@on_both_loops
async def test_freed_connection_serves_a_call_that_is_still_connecting() -> None:
    """It need not wait for its own connection, which becomes an idle one; here connecting would never end."""
    with serving() as origin, socket.create_server(("127.0.0.1", 0), backlog=0) as hole, socket.socket() as filler:
        filler.connect(hole.getsockname())
        origin.on("/slow", Answer(delay=0.2))
        address = f"http://127.0.0.1:{hole.getsockname()[1]}"
        async with reaching(origin.address, address, connect_timeout="5s") as upstream:
            first = ask(upstream, target="/slow")
            second = ask(upstream, target="/slow")
            third = ask(upstream, target="/slow")
            for told in (first, second, third):
                assert (await told.end()).kind == "done"


@on_both_loops
async def test_cancel_ends_a_call_at_once_wherever_it_is() -> None:
    """Waiting, connecting, before the head, in the body: the socket closes and nothing more is told."""
    with serving() as origin:
        origin.on("/hang", HANG)
        origin.on("/stream", Answer(body=lambda: [b"x"] * 1000, framing="chunked", gap=0.01))
        async with reaching(origin, max_connections=1) as upstream:
            for target in ("/hang", "/stream"):
                told, waiting = ask(upstream, target=target), ask(upstream)
                await (sent(told) if target == "/hang" else received(told, 2))
                for each in (waiting, told):
                    assert each.call is not None
                    each.silent = True
                    each.call.cancel()
                    each.call.cancel()
                    each.call.write(b"ignored")
                    each.call.finish()
                    each.call.pause()
                    each.call.resume()
                assert (upstream.stats().active, upstream.stats().waiting) == (0, 0)
                await until(lambda: origin.open == 0)
            connecting = ask(upstream)
            assert connecting.call is not None
            connecting.silent = True
            connecting.call.cancel()
            await until(lambda: upstream.stats().connecting == 0)
            assert (await get(upstream)).kind == "done"


@on_both_loops
async def test_case_051_hand_over_ends_in_a_running_call_or_in_the_next() -> None:
    """200 callers for 10 slots, most leaving at a random moment around a release: the next 10 run at once."""
    dice = random.Random(51)
    with serving() as origin:
        async with reaching(origin, max_connections=10, connect_timeout="5s") as upstream:
            for _ in range(15):
                calls = [ask(upstream, target=f"/{number}") for number in range(200)]

                async def leave(told: Told) -> None:
                    await asyncio.sleep(dice.random() * 0.02)
                    if not told.over.is_set() and told.call is not None:
                        told.silent = True
                        told.call.cancel()

                await asyncio.gather(*(leave(told) for told in dice.sample(calls, 150)))
                for told in calls:
                    assert told.silent or (await told.end()).kind == "done"
                assert upstream.stats().waiting == 0
                fresh = [ask(upstream) for _ in range(10)]
                assert upstream.stats().waiting <= 10
                for told in fresh:
                    assert (await told.end()).kind == "done"
            await until(lambda: origin.open <= 10)


@on_both_loops
async def test_case_077_cancelled_calls_give_their_slots_back() -> None:
    """2,000 calls on 10 slots, 60 % aborted before, during and after connecting, the connections cut every so often."""
    dice = random.Random(77)
    with serving() as origin:
        origin.on("/", lambda _: Answer(delay=dice.choice((0, 0, 0.002, 0.01))))
        most = 0
        async with reaching(origin, max_connections=10, connect_timeout="10s") as upstream:

            async def one() -> None:
                nonlocal most
                await asyncio.sleep(dice.random() * 2)
                told = ask(upstream)
                stats = upstream.stats()
                most = max(most, stats.active + stats.idle + stats.connecting)
                if dice.random() < 0.6:
                    await asyncio.sleep(dice.choice((0, 0, 0.0005, 0.003, 0.02)))
                    if not told.over.is_set() and told.call is not None:
                        told.silent = True
                        told.call.cancel()
                else:
                    assert (await told.end()).kind in {"done", "reset", "refused"}  # cut, maybe while connecting
                if dice.random() < 0.01:
                    origin.cut_all()

            await asyncio.gather(*(one() for _ in range(2000)))
            assert most <= 10
            ten = [ask(upstream) for _ in range(10)]
            for told in ten:
                assert (await told.end()).kind == "done"
            await until(lambda: origin.open <= 10)


@on_both_loops
async def test_case_081_every_exit_frees_the_seat() -> None:
    """Calls end by a response, a time-out, a reset, an endless stream that is left: the seats are free at once."""
    with serving() as origin:
        origin.on("/hang", HANG)
        origin.on("/reset", Answer(raw=b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nxx", ending="reset"))
        origin.on("/stream", Answer(body=lambda: [b"x"] * 1000, framing="chunked", gap=0.005))
        async with reaching(origin, concurrency=3, first_byte_timeout="100ms", connect_timeout="9s") as upstream:
            for _ in range(4):
                calls = [ask(upstream, target=target) for target in ("/", "/hang", "/reset", "/stream", "/nothing")]
                stream = calls[3]
                await received(stream, 2)
                assert stream.call is not None
                stream.silent = True
                stream.call.cancel()
                for told in calls:
                    assert told.silent or (await told.end()).over.is_set()
                three = [ask(upstream) for _ in range(3)]
                assert upstream.stats().waiting == 0
                for told in three:
                    assert (await told.end()).kind == "done"


@on_both_loops
async def test_deadlines_cost_no_timer_of_their_own() -> None:
    """One timer serves all calls, and none runs once the last connection is gone."""
    with serving() as origin:
        async with reaching(origin, keepalive_timeout="100ms") as upstream:
            await asyncio.gather(*(get(upstream) for _ in range(20)))
            await until(lambda: upstream.stats().idle == 0)
            await asyncio.sleep(2 * TICK)
            assert upstream._pool._timer is None
            assert (await get(upstream)).kind == "done"
