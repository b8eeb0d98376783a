"""Case 51: a hand-over always ends in a running request or in the next waiter."""

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


def arrived(up: Origin) -> int:
    """Return how many of the next came."""
    return sum(seen.target == b"/fresh" for seen in up.seen)


@pytest.mark.soak
async def test_cancelled_waiters_take_no_slot_with_them(tmp_path: Path, up: Origin, soak: bool) -> None:
    """200 callers of both classes queue for 10 slots and most leave around a release: the next 10 all run at once."""
    dice = random.Random(51)
    # A round lasts about as long as one answer, so that leaving falls on the hand-overs.
    up.on("/", Answer(delay=0.01))
    config = {
        "upstream": {"max_connections": SLOTS, "connect_timeout": "5s"},
        "backstop": {"quota": "100000/s"},
        "tenants": tenants("a", quota="100000/s"),
    }
    octets = [request(token=token("a"), fields=[("Evenhand-Class", cls)]) for cls in ("batch", "interactive")]

    async def one(caller: Caller, number: int) -> None:
        await caller.send(octets[number % 2])
        if number % 4:
            await asyncio.sleep(dice.random() * 0.05)
            caller.reset()
        else:
            assert (await caller.response()).status == 200
            caller.close()
        await caller.until_closed()

    with running(tmp_path, up, config) as gateway:
        async with balanced(gateway, up) as books:
            for _ in range(100 if soak else 6):
                callers = [await Caller.connect(gateway.address) for _ in range(200)]
                await asyncio.gather(*map(one, callers, range(200)))
                books.sent("a", 200)
                await until(lambda: gateway.metrics().sum("evenhand_in_flight") == 0, "nobody waits")
                up.hold()
                up.on("/fresh", Answer(held=True))
                before = arrived(up)
                asked = at_once(gateway.address, [each.replace(b" / ", b" /fresh ") for each in octets * 5])
                answering = asyncio.ensure_future(asked)
                # All of them before the first is answered: none waits for a slot.
                await until(lambda: arrived(up) == before + SLOTS, "all arrive")  # noqa: B023 - waited for at once
                up.release()
                fresh = await answering
                books.sent("a", SLOTS)
                assert fresh.statuses == {200: SLOTS}
                assert up.open <= SLOTS


async def test_no_waiter_outlives_its_deadline(tmp_path: Path, up: Origin) -> None:
    """While the slots are held, whoever waits gets its 503 after connect_timeout, is refused and pays nothing."""
    up.on("/hold", Answer(held=True))
    config = {
        "upstream": {"max_connections": 2, "connect_timeout": "600ms"},
        # Next to no refill: what is spent stays spent.
        "tenants": tenants("a", quota="1/h burst 5"),
    }
    with running(tmp_path, up, config) as gateway:
        async with balanced(gateway, up) as books:
            holding = [await Caller.connect(gateway.address) for _ in range(2)]
            for caller in holding:
                await caller.send(request(target="/hold", token=token("a")))
            await until(lambda: len(up.seen) == 2, "both slots are taken")
            waiting = await at_once(gateway.address, [request(token=token("a"))] * 3)
            assert waiting.statuses == {503: 3}
            assert waiting.limits() == {"connections": 3}
            up.release()
            for caller in holding:
                assert (await caller.response()).status == 200
                caller.close()
            # The three were given back: three more are admitted, and not a fourth.
            assert (await at_once(gateway.address, [request(token=token("a"))] * 4)).statuses == {200: 3, 429: 1}
            books.sent("a", 9)
