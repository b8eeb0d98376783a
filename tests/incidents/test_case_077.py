"""Case 77: after any pattern of aborts the pool returns to idle."""

from __future__ import annotations

import asyncio
import random
from pathlib import Path

import pytest

from tests.wire.caller import Caller, request
from tests.wire.gateway import running, tenants, token
from tests.wire.ledger import balanced
from tests.wire.load import at_once
from tests.wire.origin import Origin
from tests.wire.script import Answer
from tests.wire.waiting import until

__all__: list[str] = []

SLOTS = 10


@pytest.mark.soak
async def test_aborted_calls_eat_no_slots(tmp_path: Path, up: Origin, soak: bool) -> None:
    """60 % aborted before, during and after connecting: then 10 requests at once succeed, on at most 10 connections."""
    count, dice = 20_000 if soak else 1_500, random.Random(77)
    # Half of the answers end their connection, so that new ones are made all the time.
    up.on("/", lambda _: Answer(delay=dice.random() * 0.01, ending=dice.choice(("keep", "close"))))
    config = {
        "upstream": {"max_connections": SLOTS, "connect_timeout": "10s"},
        "backstop": {"quota": "100000/s"},
        "tenants": tenants("a", quota="100000/s"),
    }
    octets, left = request(token=token("a")), 0

    async def one() -> None:
        nonlocal left
        caller = await Caller.connect(gateway.address)
        await caller.send(octets)
        if dice.random() < 0.6:
            await asyncio.sleep(dice.choice((0.0, 0.001, 0.01, 0.05)) * dice.random())
            dice.choice((caller.reset, caller.close))()
            left += 1
        else:
            assert (await caller.response(within=60)).status in {200, 502}
            caller.close()
        await caller.until_closed()

    async def lane() -> None:
        for _ in range(count // 50):
            await one()

    with running(tmp_path, up, config) as gateway:
        async with balanced(gateway, up) as books:
            await asyncio.gather(*(lane() for _ in range(50)))
            books.sent("a", count)
            books.retries = count
            assert left > count // 2
            up.on("/", Answer(held=True))
            before = len(up.seen)
            asked = asyncio.ensure_future(at_once(gateway.address, [octets] * SLOTS))
            # All of them before the first is answered: none waits for a slot.
            await until(lambda: len(up.seen) == before + SLOTS, "all arrive")
            up.release()
            fresh = await asked
            books.sent("a", SLOTS)
            assert fresh.statuses == {200: SLOTS}
            assert up.open <= SLOTS
        row = gateway.row("a", "24h")
        assert row is not None
        assert row["refused"] == {}
