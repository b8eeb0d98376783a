"""Case 119: health, readiness and metrics are outside all limits, but cheap."""

from __future__ import annotations

import asyncio
from pathlib import Path

from tests.wire.caller import call, request
from tests.wire.gateway import running, tenants, token
from tests.wire.ledger import balanced
from tests.wire.load import at_once, offer
from tests.wire.origin import Origin

__all__: list[str] = []


async def test_probes_are_answered_while_the_backstop_is_empty(tmp_path: Path, up: Origin) -> None:
    """With nothing left of the service's capacity, every probe is 200 and none is counted."""
    config = {"backstop": {"quota": "1/h burst 10"}, "tenants": tenants("a", quota="100/s burst 100")}
    with running(tmp_path, up, config) as gateway:
        async with balanced(gateway, up) as books:
            drained = await at_once(gateway.address, [request(token=token("a"))] * 40)
            assert drained.limits().keys() <= {"", "share", "backstop"}
            assert (await call(gateway.address, request(token=token("a")))).status == 429
            books.sent("a", 41)
            for _ in range(20):
                for path in ("/livez", "/readyz", "/metrics"):
                    assert gateway.ask(path).status == 200


async def test_flood_of_probes_takes_nothing_from_tenants(tmp_path: Path, up: Origin) -> None:
    """Probes at hundreds a second are all answered, and a tenant beside them is served in full."""
    with running(tmp_path, up, {"tenants": tenants("a")}) as gateway:
        async with balanced(gateway, up) as books:
            probes, named = await asyncio.gather(
                offer(gateway.admin, request(target="/livez", host=gateway.admin), rate=500, seconds=2.0),
                offer(gateway.address, request(token=token("a")), rate=9, seconds=2.0),
            )
            books.sent("a", 18)
    assert probes.statuses == {200: 1000}
    assert named.statuses == {200: 18}
