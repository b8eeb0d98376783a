"""Case 25: a refusal costs nothing; a steady load over the rate converges to the rate (memory store)."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.wire.caller import request
from tests.wire.gateway import running, tenants, token
from tests.wire.ledger import balanced
from tests.wire.load import offer
from tests.wire.origin import Origin

__all__: list[str] = []


@pytest.mark.soak
async def test_steady_over_rate_gets_the_rate(tmp_path: Path, up: Origin, soak: bool) -> None:
    """Twice the rate, then far more of it, gets burst + rate x time, and every full second its share."""
    steady, flood = (30.0, 10.0) if soak else (6.0, 2.0)
    with running(tmp_path, up, {"tenants": tenants("a", "b", quota="5/s burst 5")}) as gateway:
        async with balanced(gateway, up) as books:
            twice = await offer(gateway.address, request(token=token("a")), rate=10, seconds=steady)
            books.sent("a", round(10 * steady))
            more = await offer(gateway.address, request(token=token("b")), rate=1000, seconds=flood)
            books.sent("b", round(1000 * flood))
    assert twice.admitted == pytest.approx(5 + 5 * twice.elapsed, abs=5 + 5 * twice.late)
    assert more.admitted == pytest.approx(5 + 5 * more.elapsed, abs=5)
    full = twice.per_second()[1 : int(steady)]
    # What was sent late found a bucket that had filled meanwhile.
    most = 6 + 5 * twice.late
    assert all(10 - most <= count <= most for count in full), (full, twice.late)
    assert twice.limits() == {"key": twice.statuses[429]}
