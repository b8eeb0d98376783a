"""A kept connection can be closed at any moment. Who pays for it: nobody, if the request may be sent again."""

from __future__ import annotations

import asyncio
import time

import pytest

from gateway.proxy.retry import RetryBudget
from tests.gateway.proxy.reach import Told, ask, get, on_both_loops, reaching, sent
from tests.wire.origin import Origin, serving
from tests.wire.script import Answer

_DROP = Answer(raw=b"", ending="close")
_RESET = Answer(raw=b"", ending="reset")


@pytest.mark.parametrize("drop", (_DROP, _RESET))
@pytest.mark.parametrize(
    ("method", "length", "body"), (("GET", 0, b""), ("PUT", 5, b"hello"), ("PUT", None, b"hello"), ("DELETE", 0, b""))
)
@on_both_loops
async def test_case_079_idempotent_call_is_repeated_once(
    drop: Answer, method: str, length: int | None, body: bytes
) -> None:
    """On a kept connection, with not one octet of a response: sent again on a new one, told as sent once."""
    with serving() as origin:
        origin.then(Answer(), drop, Answer(body=b"second"))
        async with reaching(origin) as upstream:
            await get(upstream)
            told = ask(upstream, method, "/x", length=length, body=body)
            assert told.call is not None
            told.call.finish()
            await told.end()
            assert (told.kind, told.sent, bytes(told.body)) == ("done", 1, b"second")
            assert upstream.stats().repeated == 1
        assert [bytes(seen.body) for seen in origin.seen] == [b"", body, body]
        assert len(origin.connections) == 2


@on_both_loops
async def test_second_attempt_is_the_last() -> None:
    """A new connection that is closed as well is a failure: 502."""
    with serving() as origin:
        origin.then(Answer(), _DROP, _DROP, Answer())
        async with reaching(origin) as upstream:
            await get(upstream)
            assert (await get(upstream)).kind == "reset"
        assert len(origin.seen) == 3


@pytest.mark.parametrize(
    ("method", "script", "idempotent"),
    (
        ("POST", _DROP, False),
        ("POST", _RESET, False),
        ("GET", Answer(raw=b"H", ending="close"), True),
        ("GET", Answer(interim=((100, ()),), raw=b"", ending="close"), True),
    ),
)
@on_both_loops
async def test_case_079_nothing_is_sent_twice_that_may_not_be(method: str, script: Answer, idempotent: bool) -> None:
    """Not a POST, and nothing of which one octet was answered."""
    with serving() as origin:
        origin.then(Answer(), script, Answer())
        async with reaching(origin) as upstream:
            await get(upstream)
            told = await ask(upstream, method, "/", idempotent=idempotent).end()
            assert told.kind in {"reset", "truncated"}
            assert told.status == 0
        assert len(origin.seen) == 2


@on_both_loops
async def test_new_connection_is_no_stale_one() -> None:
    """Closed without an answer on its first request: the upstream's doing, told at once."""
    with serving() as origin:
        origin.then(_DROP)
        async with reaching(origin) as upstream:
            assert (await get(upstream)).kind == "reset"
        assert len(origin.seen) == 1


@on_both_loops
async def test_body_larger_than_what_is_kept_is_not_repeated() -> None:
    """64 KiB are kept for a repetition and no more, whoever asks."""
    with serving() as origin:
        origin.then(Answer(), _DROP)
        async with reaching(origin) as upstream:
            await get(upstream)
            told = ask(upstream, "PUT", length=70_000, body=b"b" * 60_000)
            await sent(told)
            assert told.call is not None
            told.call.write(b"b" * 10_000)
            assert (await told.end()).kind == "reset"
        assert len(origin.seen) == 2


@on_both_loops
async def test_body_under_way_is_repeated_and_goes_on() -> None:
    """What was written is written again on the new connection, and the rest follows there."""
    with serving() as origin:
        origin.then(Answer(), Answer(raw=b"", ending="close", early=True))
        async with reaching(origin) as upstream:
            await get(upstream)
            told = ask(upstream, "PUT", length=None, body=b"first")
            assert told.call is not None
            while not upstream.stats().repeated:
                await asyncio.sleep(0.001)
            told.call.write(b" second")
            told.call.finish()
            assert (await told.end()).kind == "done"
            assert told.sent == 1
        assert bytes(origin.seen[-1].body) == b"first second"


@on_both_loops
async def test_repetition_has_a_slot_of_its_own_and_a_place() -> None:
    """With one connection and others in line, the repeated call goes first and nobody is lost."""
    with serving() as origin:
        origin.then(Answer(), _DROP)
        async with reaching(origin, max_connections=1) as upstream:
            await get(upstream)
            calls = [ask(upstream, target=f"/{number}") for number in range(4)]
            for told in calls:
                assert (await told.end()).kind == "done"
        assert [seen.target for seen in origin.seen] == [b"/", b"/0", b"/0", b"/1", b"/2", b"/3"]


@on_both_loops
async def test_case_079_upstream_that_closes_its_idle_connections() -> None:
    """GETs just when the upstream closes: none fails. POSTs fail as 502 at most, and none arrives twice."""
    with serving(Origin()) as origin:
        origin.idle_close = 0.03
        # Whatever share of them meets a closed connection: the budget has a test of its own.
        async with reaching(origin, retry_budget=1.0) as upstream:

            async def lane(method: str, lane: int) -> list[Told]:
                told = []
                for number in range(25):
                    told.append(await ask(upstream, method, f"/{method}/{lane}/{number}").end())
                    await asyncio.sleep(0.028 + (number % 5) * 0.001)
                return told

            lanes = await asyncio.gather(*(lane(method, number) for number in range(4) for method in ("GET", "POST")))
        for calls in lanes[::2]:
            assert {told.kind for told in calls} == {"done"}
        for told in (told for calls in lanes[1::2] for told in calls):
            assert told.failure is None or (told.failure.status, told.kind) == (502, "reset")
        posts = [seen.target for seen in origin.seen if seen.method == "POST"]
        assert len(posts) == len(set(posts))


@on_both_loops
async def test_post_avoids_a_connection_known_to_be_closed() -> None:
    """The FIN is in the kernel and the loop has not read it yet: a look costs less than a lost POST."""
    with serving() as origin:
        async with reaching(origin) as upstream:
            await get(upstream)
            origin.cut_all()
            while origin.open:
                time.sleep(0.01)  # the loop must not run in between
            time.sleep(0.1)  # the socket is closed just after that is noted
            assert (await ask(upstream, "POST").end()).kind == "done"
        assert len(origin.seen) == 2


@pytest.mark.parametrize(
    ("ratio", "calls", "seconds", "granted"),
    ((0.0, 1000, 100.0, 0), (0.1, 0, 0.0, 10), (0.1, 100, 0.0, 20), (0.1, 0, 3.0, 40), (1.0, 10_000, 60.0, 50)),
)
def test_budget(ratio: float, calls: int, seconds: float, granted: int) -> None:
    """Repetitions <= ratio x calls + 10 a second, 10 at once at the start; never more saved than connections."""
    budget = RetryBudget(ratio, 50, now=0.0)
    for _ in range(calls):
        budget.deposit()
    assert sum(budget.withdraw(seconds) for _ in range(100)) == granted


@on_both_loops
async def test_without_budget_nothing_is_repeated() -> None:
    """retry_budget = 0 switches repetition off."""
    with serving() as origin:
        origin.then(Answer(), _DROP)
        async with reaching(origin, retry_budget=0) as upstream:
            await get(upstream)
            assert (await get(upstream)).kind == "reset"
        assert len(origin.seen) == 2
