"""Case 69, on the link: a call that was given up never leaves its reply to another."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from functools import partial

import pytest

from gateway.stores.link import StoreFault
from tests.stores.link.linked import ECHO, NAMES, linked
from tests.wire.faults import FaultProxy
from tests.wire.redis import RedisServer
from tests.wire.waiting import until

__all__: list[str] = []

NAME = NAMES.key("a", "key")


@pytest.mark.soak
async def test_not_one_reply_goes_to_another(redis_server: RedisServer, soak: bool) -> None:
    """10,000 calls given up at random moments, over resets and stalls: every answer is one's own, and comes once."""
    calls, draw = (200_000 if soak else 10_000), random.Random(69)
    answers: Counter[int] = Counter()
    kinds: Counter[str] = Counter()
    wrong: list[object] = []

    def answer(number: int, reply: object) -> None:
        answers[number] += 1
        if isinstance(reply, StoreFault):
            kinds[reply.kind] += 1
        elif reply != b"%d" % number:
            wrong.append((number, reply))

    def late(number: int, reply: object) -> None:
        kinds["late"] += 1
        if reply != b"%d" % number:
            wrong.append((number, reply))

    with FaultProxy(redis_server.address) as proxy:
        proxy.delay(0.003)
        async with linked(proxy.url, deadline="100ms") as link:
            for number in range(calls):
                words, within = [b"%d" % number], draw.randrange(12_000)
                link.run(ECHO, [NAME], words, partial(answer, number), within, partial(late, number))
                if number % 50 == 0:
                    await asyncio.sleep(0.004)
                if number % 2_500 == 2_499:
                    proxy.reset() if number % 5_000 == 4_999 else proxy.cut(1_000)
            assert link.connections <= 1
            await until(lambda: len(answers) == calls, "all are answered")
            await asyncio.sleep(0.05)
    assert wrong == []
    assert len(answers) == calls
    assert set(answers.values()) == {1}
    # It was tried what it is about.
    assert min(kinds["timeout"], kinds["late"], kinds["reset"]) > 0
