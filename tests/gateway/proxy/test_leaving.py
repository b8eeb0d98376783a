"""Whoever leaves, and whenever: the other side is told at once, and the books have one end. In every shell."""

from __future__ import annotations

import asyncio
import itertools
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.gateway.proxy.house import A
from tests.gateway.proxy.reach import until
from tests.gateway.proxy.shells import Shell, behind, every_shell
from tests.wire.caller import Caller, call, request
from tests.wire.origin import Origin, serving
from tests.wire.script import HANG, Answer
from tests.wire.waiting import SLACK

__all__: list[str] = []

T = A.token


@pytest.fixture
def origin() -> Iterator[Origin]:
    """Run the scripted upstream."""
    with serving() as up:
        yield up


CUTS: list[tuple[Any, float | None, Any]] = list(
    itertools.product(("length", "chunked"), (0.0, 0.01, 0.5, 0.99, None), ("reset", "close"))
)


@every_shell
async def test_case_083_a_cut_answer_is_never_complete(tmp_path: Path, origin: Origin, shell: Shell) -> None:
    """Wherever the upstream dies, the caller sees an error or a broken transfer, and the books its failure."""
    async with behind(shell, tmp_path, origin) as gateway:
        for framing, part, ending in CUTS:
            whole = sum(len(octets) for _wait, octets in Answer(body=b"x" * 50_000, framing=framing).pieces("GET"))
            cut = whole - 1 if part is None else int(whole * part)
            origin.then(Answer(body=b"x" * 50_000, framing=framing, cut=cut, ending=ending))
            answer = await call(gateway.address, request(token=T))
            whole_answer = (answer.status, answer.complete)
            assert whole_answer in ((502, True), (200, False), (0, False)), (framing, part, ending)
        await gateway.settled(len(CUTS))
        assert {end[0] for end in gateway.books.ends} == {"upstream_error"}


LEAVING = list(itertools.product(("GET", "POST"), ("close", "reset"), (0.0, 0.02, 0.1)))


@every_shell
async def test_case_087_the_upstream_call_ends_with_its_caller(tmp_path: Path, origin: Origin, shell: Shell) -> None:
    """Whether waiting for the head or with a body sent: the upstream sees the close soon, the books say aborted."""
    origin.on("/", HANG)
    async with behind(shell, tmp_path, origin) as gateway:
        for count, (method, how, after) in enumerate(LEAVING, 1):
            async with await Caller.connect(gateway.address) as caller:
                await caller.send(request(method, token=T, body=b"abc" if method == "POST" else None))
                await until(lambda: len(origin.seen) >= count)  # noqa: B023 - waited for within the turn
                await asyncio.sleep(after)
                getattr(caller, how)()
                await gateway.settled(count, within=1.0 + SLACK)
            await until(lambda: origin.open == 0, 1.0 + SLACK)
        assert gateway.books.ends == [("aborted", 0, "")] * len(LEAVING)
    assert len(origin.seen) == len(LEAVING)


@every_shell
async def test_case_087_a_caller_that_cuts_a_running_response_was_served(
    tmp_path: Path, origin: Origin, shell: Shell
) -> None:
    """The upstream call ends at once, and the outcome is the response's own."""

    def endless() -> Iterator[bytes]:
        while True:
            yield b"x" * 1000

    origin.on("/", Answer(body=endless, framing="chunked", gap=0.01))
    async with behind(shell, tmp_path, origin) as gateway:
        async with await Caller.connect(gateway.address) as caller:
            await caller.send(request(token=T))
            await caller.head()
        await gateway.settled(1, within=1.0 + SLACK)
        assert gateway.books.ends == [("served", 200, "")]
        await until(lambda: origin.open == 0, 1.0 + SLACK)


@every_shell
async def test_many_callers_leave_at_random(tmp_path: Path, origin: Origin, shell: Shell) -> None:
    """200 requests, a third cut at random moments, some answers cut by the upstream: every one ends once."""
    rng = random.Random(7)
    answers = [Answer(delay=0.01), Answer(body=b"y" * 100_000, framing="chunked"), Answer(cut=30, ending="reset"), HANG]
    origin.on("/", lambda seen: answers[int(seen.target[1:]) % 4])
    async with behind(shell, tmp_path, origin) as gateway:
        before = len(asyncio.all_tasks())

        async def one(number: int) -> None:
            method, body = ("POST", b"z" * 3000) if number % 2 else ("GET", None)
            async with await Caller.connect(gateway.address) as caller:
                await caller.send(request(method, f"/{number}", token=T, body=body))
                if number % 4 == 3 or rng.random() < 0.3:
                    await asyncio.sleep(rng.random() * 0.05)
                    caller.reset() if rng.random() < 0.5 else caller.close()
                else:
                    await caller.response()

        for start in range(0, 200, 50):
            await asyncio.gather(*(one(number) for number in range(start, start + 50)))
        await gateway.settled(len({seen.target for seen in origin.seen}))
        await until(lambda: len(asyncio.all_tasks()) <= before)
        ids = [one.request_id for one in gateway.books.settled]
        assert len(ids) == len(set(ids)) <= 200
        assert {end[0] for end in gateway.books.ends} == {"served", "upstream_error", "aborted"}
