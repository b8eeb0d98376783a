"""Case 43: with spare capacity no class and no reserve refuses anything inside the key's bucket."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from tests.wire.caller import request
from tests.wire.gateway import running, tenant, tenants, token
from tests.wire.ledger import balanced
from tests.wire.load import at_once, offer
from tests.wire.origin import Origin

__all__: list[str] = []

SECONDS = 3.0


@pytest.mark.parametrize("asked", ["batch", "interactive", None])
async def test_lone_key_uses_all_of_its_quota(tmp_path: Path, up: Origin, asked: str | None) -> None:
    """A at its full 10/s, with a burst as small as it gets, is admitted without exception in any class."""
    fields = [("Evenhand-Class", asked)] if asked else []
    with running(tmp_path, up, {"tenants": tenants("a", quota="10/s burst 10")}) as gateway:
        async with balanced(gateway, up) as books:
            tally = await offer(gateway.address, request(token=token("a"), fields=fields), rate=10, seconds=SECONDS)
            books.sent("a", 30)
    # What is sent a second late finds others that fill the bucket.
    assert tally.statuses == {200: 30} or tally.late > 0.8, tally.late
    assert {seen.header("evenhand-class") for seen in up.seen} == {asked or "interactive"}


@pytest.mark.parametrize("asked", ["batch", "interactive", None])
async def test_lone_key_uses_all_of_its_burst(tmp_path: Path, up: Origin, asked: str | None) -> None:
    """No part of the bucket is kept from a class while no other asks: exactly the burst of 20 is admitted."""
    fields = [("Evenhand-Class", asked)] if asked else []
    with running(tmp_path, up, {"tenants": tenants("a", quota="1/h burst 20")}) as gateway:
        async with balanced(gateway, up) as books:
            tally = await at_once(gateway.address, [request(token=token("a"), fields=fields)] * 21)
            books.sent("a", 21)
    assert tally.statuses == {200: 20, 429: 1}


async def test_sixty_percent_of_the_backstop_is_no_competition(tmp_path: Path, up: Origin) -> None:
    """While others use 60 of 100/s in the higher class, A's batch at its full 10/s is admitted without exception."""
    config = {"tenants": [tenant("a"), tenant("o", quota="100/s burst 100")]}
    batch = request(token=token("a"), fields=[("Evenhand-Class", "batch")])
    with running(tmp_path, up, config) as gateway:
        async with balanced(gateway, up) as books:
            mine, others = await asyncio.gather(
                offer(gateway.address, batch, rate=10, seconds=SECONDS),
                offer(gateway.address, request(token=token("o")), rate=60, seconds=SECONDS),
            )
            books.sent("a", 30)
            books.sent("o", 180)
    assert (mine.statuses, others.statuses) == ({200: 30}, {200: 180})
