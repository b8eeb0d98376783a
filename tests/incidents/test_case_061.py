"""Case 61: an answer that says "not this server" costs the requests in flight, and the connection; never more."""

from __future__ import annotations

import asyncio

import pytest

from tests.wire.lost import Lost, refused
from tests.wire.waiting import SLACK

__all__: list[str] = []


@pytest.mark.parametrize("word", ["READONLY", "LOADING", "MASTERDOWN", "CLUSTERDOWN"])
async def test_a_demoted_server_is_left(lost: Lost, word: str) -> None:
    """Old connections answer so for ever, new ones reach a healthy server: counting goes on at once, by those."""
    before, attempts = lost.decided().get("closed", 0.0), len(lost.proxy.attempts)
    lost.proxy.rewrite(lambda _: f"-{word} not here\r\n".encode(), fresh=False)
    answers = await asyncio.gather(*(lost.ask("closed") for _ in range(3)))
    in_flight = sum(refused(answer) for (answer,) in answers if answer.header("evenhand-degraded"))
    assert in_flight >= 1
    reconnecting = [refused(answer) for answer in await lost.counting(within=1.0 + SLACK)]
    assert lost.decided()["closed"] - before == in_flight + len(reconnecting)
    assert len(lost.proxy.attempts) > attempts
