"""Case 79: a kept connection that turns out closed costs a safe request one retry, and any other one a 502."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from pathlib import Path

import pytest

from tests.wire.caller import Caller, request
from tests.wire.gateway import running, tenants, token
from tests.wire.ledger import balanced
from tests.wire.origin import Origin, Seen
from tests.wire.script import Answer, Ending

__all__: list[str] = []


async def one_by_one(address: str, method: str, count: int, gap: float = 0.0, spread: float = 0.0) -> Counter[int]:
    """Send `count` requests of A over one connection, each with a number of its own, and return the statuses."""
    statuses, dice = Counter[int](), random.Random(79)
    async with await Caller.connect(address) as caller:
        for number in range(count):
            body = b"x" if method == "POST" else None
            await caller.send(request(method, f"/{method}/{number}", token=token("a"), body=body))
            statuses[(await caller.response(method)).status] += 1
            await asyncio.sleep(gap + spread * dice.random())
    return statuses


def arrivals(up: Origin, method: str) -> Counter[bytes]:
    """Return how often each request of `method` arrived."""
    return Counter(seen.target for seen in up.seen if seen.method == method)


@pytest.mark.parametrize("ending", ["close", "reset"])
async def test_get_is_sent_again_and_post_is_not(tmp_path: Path, up: Origin, ending: Ending) -> None:
    """The upstream ends every second request on a connection without a word: no GET fails, no POST arrives twice."""

    def script(seen: Seen) -> Answer:
        return Answer() if len(seen.connection.seen) == 1 else Answer(raw=b"", ending=ending)

    up.on("/", script)
    # Exactly as much as is sent: a retry that was charged would leave somebody out.
    config = {
        "upstream": {"retry_budget": 1.0, "keepalive_timeout": "2s"},
        "tenants": tenants("a", quota="1/h burst 40"),
        "backstop": {"quota": "100000/s"},
    }
    with running(tmp_path, up, config) as gateway:
        async with balanced(gateway, up) as books:
            assert await one_by_one(gateway.address, "GET", 20) == {200: 20}
            assert sorted(arrivals(up, "GET").values()) == [1] + [2] * 19
            posted = await one_by_one(gateway.address, "POST", 20)
            assert set(posted) == {200, 502}
            assert posted[502] >= 9
            assert set(arrivals(up, "POST").values()) == {1}
            assert (await one_by_one(gateway.address, "GET", 1)) == {429: 1}
            books.sent("a", 41)
            books.retries = 19
        row = gateway.row("a")
        assert row is not None
        assert row["upstream_error"] == posted[502]


@pytest.mark.soak
async def test_upstream_that_closes_what_idles(tmp_path: Path, up: Origin, soak: bool) -> None:
    """GETs and POSTs just when the upstream closes: no GET fails, a POST is never sent twice, each costs one."""
    up.idle_close, count = 0.1, 600 if soak else 40
    config = {
        "upstream": {"keepalive_timeout": "1s"},
        "tenants": tenants("a", quota=f"1/h burst {2 * count}"),
        "backstop": {"quota": "100000/s"},
    }
    with running(tmp_path, up, config) as gateway:
        async with balanced(gateway, up) as books:
            got, posted = await asyncio.gather(
                one_by_one(gateway.address, "GET", count, 0.097, 0.005),
                one_by_one(gateway.address, "POST", count, 0.097, 0.005),
            )
            books.sent("a", 2 * count)
            books.retries = count
    assert got == {200: count}
    assert set(posted) <= {200, 502}
    assert set(arrivals(up, "POST").values()) == {1}
