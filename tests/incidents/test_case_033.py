"""Case 33: a process that dies in the middle leaves nothing behind that locks a key (memory store)."""

from __future__ import annotations

import asyncio
import contextlib
import random
import signal
from pathlib import Path

import pytest

from tests.wire.caller import call, request
from tests.wire.gateway import running, tenants, token
from tests.wire.ledger import balanced
from tests.wire.load import at_once
from tests.wire.origin import Origin
from tests.wire.script import Answer
from tests.wire.waiting import until

__all__: list[str] = []


@pytest.mark.soak
async def test_killed_gateway_starts_with_whole_buckets_and_free_seats(tmp_path: Path, up: Origin, soak: bool) -> None:
    """Killed with requests in flight and the quota spent: the next process owes nobody anything, and locks nobody."""
    dice = random.Random(33)
    up.on("/hold", Answer(delay=5.0))
    config = {"tenants": tenants("a", quota="1/h burst 20", concurrency=3)}
    octets = request(token=token("a"))
    with running(tmp_path, up, config) as gateway:
        for _ in range(50 if soak else 2):
            holding = [
                asyncio.create_task(call(gateway.address, request(target="/hold", token=token("a")))) for _ in range(3)
            ]
            await until(lambda: len(up.seen) == 3, "the seats are taken")
            await asyncio.sleep(dice.random() * 0.1)
            assert (await call(gateway.address, octets)).status == 429
            gateway.end(signal.SIGKILL)
            for task in holding:
                with contextlib.suppress(ConnectionError):
                    assert not (await task).complete
            up.forget()
            up.on("/hold", Answer(delay=5.0))
            gateway.start()
        async with balanced(gateway, up) as books:
            seated = await at_once(gateway.address, [octets] * 3)
            books.sent("a", 3)
    assert seated.statuses == {200: 3}
