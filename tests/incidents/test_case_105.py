"""Case 105: state is created only after verification, is bounded, and what is configured keeps its own."""

from __future__ import annotations

import random
from functools import partial
from pathlib import Path

import pytest

from tests.wire.caller import request
from tests.wire.gateway import running, tenants, token
from tests.wire.ledger import balanced
from tests.wire.load import at_once, offer
from tests.wire.origin import Origin
from tests.wire.tokens import pat

__all__: list[str] = []

MAX_KEYS = 100
METHODS = ("GET", "PUT", "POST", "PURGE", "LOCK", "REPORT", "MKCOL", "SEARCH")


def strange(number: int) -> bytes:
    """Return a request whose token and path nobody has seen before."""
    draw = random.Random(number)
    secret = draw.choice([pat(f"unknown {number}").token, f"eyJ{number}.e30.x", f"sk-{number}", ""])
    method = draw.choice(METHODS)
    return request(method, f"/{draw.random()}/{number}?{draw.random()}", token=secret or None)


def numbered(base: int, index: int) -> bytes:
    """Return the request with this number, of one address's first `base` and its own `index`."""
    return strange(base + index)


@pytest.mark.soak
async def test_new_key_per_request_is_bounded(tmp_path: Path, up: Origin, soak: bool) -> None:
    """Thousands of new tokens, paths and addresses neither grow the store nor touch a configured key."""
    addresses, each = (5000, 20) if soak else (400, 8)
    config = {"store": {"max_keys": MAX_KEYS}, "backstop": {"quota": "100000/s"}, "tenants": tenants("a")}
    with running(tmp_path, up, config) as gateway:
        async with balanced(gateway, up) as books:
            await offer(gateway.address, strange, rate=1000, seconds=0.2)
            before = gateway.memory()
            sent = list[int]()
            for number in range(addresses):
                source = f"127.{1 + number // 65536}.{number // 256 % 256}.{number % 256}"
                mine = partial(numbered, number * each)
                tally = await offer(
                    gateway.address, mine, rate=100000, seconds=each / 100000, connections=1, source=source
                )
                sent += [answer.status for _, answer in tally.answers]
            grown = gateway.memory() - before
            keys = gateway.metrics().sum("evenhand_keys")
            named = await at_once(gateway.address, [request(token=token("a"))] * 20)
            books.sent("a", 20)
            rows = {row["tenant"]: row["offered"] for row in gateway.fairness()["tenants"]}
            books.sent("anonymous", rows["anonymous"])
            if rows.get("rejected"):
                books.sent("rejected", rows["rejected"])
            books.rejected(200 + len(sent) - rows["anonymous"] - rows.get("rejected", 0))
        assert {row["tenant"] for row in gateway.fairness()["tenants"]} <= {"a", "anonymous", "rejected"}
        assert gateway.metrics().sum("evenhand_overflow_requests_total") > 0
    assert named.statuses == {200: 20}
    assert keys <= MAX_KEYS + 10
    assert grown < 50 << 20
