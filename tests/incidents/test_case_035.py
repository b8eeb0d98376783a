"""Case 35: admission is one atomic step, for tokens and for seats (memory store, one process)."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from tests.wire.caller import request
from tests.wire.gateway import running, tenants, token
from tests.wire.ledger import balanced
from tests.wire.load import at_once
from tests.wire.origin import Origin
from tests.wire.script import Answer
from tests.wire.waiting import until

__all__: list[str] = []


@pytest.mark.soak
async def test_barrier_of_requests_gets_exactly_the_burst(tmp_path: Path, up: Origin, soak: bool) -> None:
    """500 requests of one key released together on a fresh bucket of 20: exactly 20 are admitted, in every round."""
    names = [f"t{number}" for number in range(40 if soak else 3)]
    # Next to no refill, so that the count is exact on a wall clock.
    config = {"backstop": {"quota": "100000/s"}, "tenants": tenants(*names, quota="1/h burst 20")}
    with running(tmp_path, up, config) as gateway:
        async with balanced(gateway, up) as books:
            for name in names:
                tally = await at_once(gateway.address, [request(token=token(name))] * 500)
                assert tally.statuses == {200: 20, 429: 480}
                assert tally.limits() == {"key": 480}
                books.sent(name, 500)
    assert up.by_tenant() == dict.fromkeys(names, 20)


async def test_upstream_never_sees_an_eleventh_in_flight(tmp_path: Path, up: Origin) -> None:
    """500 at once on 10 seats while the upstream holds each: 10 are admitted, and the seats are free again after."""
    up.on("/", Answer(held=True))
    config = {"backstop": {"quota": "100000/s"}, "tenants": tenants("a", quota="100000/s", concurrency=10)}
    with running(tmp_path, up, config) as gateway:
        async with balanced(gateway, up) as books:
            for turn in (1, 2):
                up.hold()
                asked = asyncio.ensure_future(at_once(gateway.address, [request(token=token("a"))] * 500))
                refused = 490 * turn
                await until(
                    lambda: gateway.metrics().sum("evenhand_requests_total", outcome="refused") >= refused,  # noqa: B023 - waited for at once
                    "all others are refused",
                    60,
                )
                up.release()
                tally = await asked
                assert tally.statuses == {200: 10, 429: 490}
                assert tally.limits() == {"concurrency": 490}
                books.sent("a", 500)
    assert len(up.seen) == 20
