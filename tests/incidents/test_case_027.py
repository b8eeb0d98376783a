"""Case 27: the backstop is charged only for requests that pass the key's bucket."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from tests.wire.caller import request
from tests.wire.gateway import running, tenants, token
from tests.wire.ledger import balanced
from tests.wire.load import at_once, offer
from tests.wire.origin import Origin

__all__: list[str] = []

MODEST = tuple("bcdefghi")


@pytest.mark.soak
async def test_refused_traffic_of_one_takes_nothing_from_others(tmp_path: Path, up: Origin, soak: bool) -> None:
    """Eight tenants at 8/s are served in full beside one that offers twenty times the backstop and is refused."""
    rate, seconds = (2000.0, 10.0) if soak else (1000.0, 3.0)
    with running(tmp_path, up, {"tenants": tenants("a", *MODEST)}) as gateway:
        async with balanced(gateway, up) as books:
            noisy, *modest = await asyncio.gather(
                offer(gateway.address, request(token=token("a")), rate=rate, seconds=seconds),
                *(offer(gateway.address, request(token=token(name)), rate=8, seconds=seconds) for name in MODEST),
            )
            books.sent("a", round(rate * seconds))
            for name in MODEST:
                books.sent(name, round(8 * seconds))
        for name in MODEST:
            row = gateway.row(name)
            assert row is not None
            assert row["refused"] == {}
    assert [tally.statuses for tally in modest] == [{200: round(8 * seconds)}] * len(MODEST)
    assert noisy.limits() == {"key": noisy.statuses[429]}
    assert noisy.admitted <= 21 + 10 * noisy.elapsed


async def test_backstop_spends_one_token_for_each_admitted_request(tmp_path: Path, up: Origin) -> None:
    """After 500 requests refused by their own key, exactly what is left of the backstop can still be had."""
    config = {
        # Hardly any refill: what is spent stays spent.
        "backstop": {"quota": "1/min burst 60"},
        "tenants": [*tenants("a", quota="1/h burst 20"), *tenants("b", quota="1/h burst 500")],
    }
    with running(tmp_path, up, config) as gateway:
        async with balanced(gateway, up) as books:
            await offer(gateway.address, request(token=token("a")), rate=1000, seconds=0.5)
            rest = await at_once(gateway.address, [request(token=token("b"))] * 100)
            books.sent("a", 500)
            books.sent("b", 100)
    assert up.by_tenant()["a"] == 20
    # The share of a tenant alone may not leave the last few units to it (design 1.3).
    assert 60 - 20 - 15 <= rest.admitted <= 60 - 20 + 1
    assert "key" not in rest.limits()
