"""Case 7: preflights are charged separately and are bounded."""

from __future__ import annotations

from pathlib import Path

from tests.wire.caller import call, request
from tests.wire.gateway import running, tenants, token
from tests.wire.ledger import balanced
from tests.wire.load import at_once, offer
from tests.wire.origin import Origin

__all__: list[str] = []

PREFLIGHT = request("OPTIONS", fields=[("Origin", "https://app.example.com"), ("Access-Control-Request-Method", "PUT")])


async def test_preflights_take_from_nobody_else(tmp_path: Path, up: Origin) -> None:
    """After 500 preflights A has its whole burst, a caller without a credential its own, and the upstream saw few."""
    with running(tmp_path, up, {"tenants": tenants("a")}) as gateway:
        async with balanced(gateway, up) as books:
            asked = await offer(gateway.address, PREFLIGHT, rate=250, seconds=2.0)
            named = await at_once(gateway.address, [request(token=token("a"))] * 20)
            nameless = await call(gateway.address, request())
            books.sent("anonymous", 501)
            books.sent("a", 20)
    assert named.statuses == {200: 20}
    assert nameless.status == 200
    arrived = sum(seen.method == "OPTIONS" for seen in up.seen)
    assert 50 <= arrived <= 51 + 10 * asked.elapsed
