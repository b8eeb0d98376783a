"""Case 9: a key's bucket is one bucket over all routes and methods (memory store, one process)."""

from __future__ import annotations

import itertools
from pathlib import Path

from tests.wire.caller import request
from tests.wire.gateway import running, tenants, token
from tests.wire.ledger import balanced
from tests.wire.load import at_once
from tests.wire.origin import Origin

__all__: list[str] = []


async def test_routes_and_methods_share_the_key_s_bucket(tmp_path: Path, up: Origin) -> None:
    """40 at once over eight routes and three methods admit exactly the burst of 20."""
    config = {
        "routes": [{"name": f"r{number}", "path": f"/r{number}/**"} for number in range(8)],
        # Next to no refill, so that the count is exact on a wall clock.
        "tenants": tenants("a", quota="1/h burst 20"),
    }
    places = itertools.cycle(itertools.product(range(8), ("GET", "POST", "DELETE")))
    octets = [request(method, f"/r{route}/x", token=token("a")) for route, method in itertools.islice(places, 40)]
    with running(tmp_path, up, config) as gateway:
        async with balanced(gateway, up) as books:
            tally = await at_once(gateway.address, octets)
            books.sent("a", 40)
    assert tally.statuses == {200: 20, 429: 20}
    assert tally.limits() == {"key": 20}
    assert len(up.seen) == 20
