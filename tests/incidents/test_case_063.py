"""Case 63: a store that accepts and never answers costs a few requests their deadline, and then nobody any time."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest

from tests.wire.faults import FaultProxy
from tests.wire.lost import Lost, refused
from tests.wire.waiting import SLACK

__all__: list[str] = []

DEADLINE = 0.25


@pytest.mark.parametrize(
    "silent",
    [FaultProxy.freeze, FaultProxy.swallow, lambda proxy: proxy.delay(0.6)],
    ids=["frozen", "packets dropped", "too late"],
)
async def test_nobody_waits_for_a_silent_store(lost: Lost, silent: Callable[[FaultProxy], None]) -> None:
    """The first few wait for the deadline, then the posture answers at once; it is known, told, and over within 2 s."""
    silent(lost.proxy)
    tenant, slow = lost.fresh(), 0
    for number in range(60):
        asked = time.monotonic()
        (answer,) = await lost.ask("open", 1, lost.fresh() if number < 6 else tenant)
        assert not refused(answer)
        slow += time.monotonic() - asked >= DEADLINE
    await lost.lost()
    assert lost.standing()["cause"] == "timeout"
    # Were each to wait it would be 60. The circuit opens after five failures; a busy machine may be slow besides.
    assert slow <= 30
    await lost.heal(within=2.0 + SLACK)
    await lost.counting(within=1.0 + SLACK)


async def test_a_slow_store_is_a_healthy_one(lost: Lost) -> None:
    """An answer within the deadline counts, however near to it: nothing is decided by a posture."""
    before = lost.decided()
    lost.proxy.delay(0.01)
    for _ in range(3):
        (answer,) = await lost.ask("closed")
        assert (answer.status, answer.header("evenhand-degraded")) == (200, None)
    assert lost.standing()["up"]
    assert lost.decided() == before
