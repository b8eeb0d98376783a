"""Case 39: a limit divided between processes that lost their store still admits, and all together stay within it."""

from __future__ import annotations

import asyncio
import contextlib
import time
from itertools import pairwise
from pathlib import Path

import pytest

from gateway.config.sections import StoreSection
from gateway.stores.process import SharedStore
from policies.charge import Charge, Plan, ShareCharge
from policies.request import Class
from policies.units import SECOND, Micros
from tests.policies.documents import policy_set, quota
from tests.wire.faults import FaultProxy
from tests.wire.redis import RedisServer
from tests.wire.waiting import until

__all__: list[str] = []

PROCESSES, FRACTION, SECONDS = 5, 0.2, 60


def asked(rate: float) -> Plan:
    """Return a plan of one key that may have `rate` a second."""
    key = Charge("key", "limit=key,tenant=acme,credential=ci", rate / SECOND, max(1.0, rate), 1.0, Class.INTERACTIVE)
    share = ShareCharge("acme", 1.0, True, 1.0, Class.INTERACTIVE, rate / SECOND, max(1.0, rate))
    return Plan("acme", "ci", Class.INTERACTIVE, 1.0, (key,), (), (), share)


def now() -> Micros:
    """Return the time."""
    return time.time_ns() // 1000


@pytest.mark.parametrize(
    ("rate", "backstop"), [(3.0, 1000.0), (1000.0, 2.0)], ids=["a key of 3/s", "a backstop of 2/s"]
)
async def test_nothing_is_divided_to_nothing(redis_server: RedisServer, rate: float, backstop: float) -> None:
    """Five processes at a fifth: each admits once in 1/(its part), and none is refused for ever."""
    policies = policy_set(backstop=quota(backstop, backstop), safe_fraction=FRACTION)
    with FaultProxy(redis_server.address) as proxy:
        section = StoreSection.model_validate({"url": proxy.url, "path": str(Path.cwd() / "unused")})
        stores = [SharedStore(section, policies, now) for _ in range(PROCESSES)]
        for store in stores:
            await store.start()
        ticking = asyncio.ensure_future(_tick(stores))
        await until(lambda: all(one.leases.processes() == PROCESSES for one in stores), "they know of each other")
        proxy.down()
        await until(lambda: not any(store.up for store in stores), "the store is known to be down")
        ticking.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await ticking
        # Time is an argument: what follows is a minute of asking in a moment.
        start, plan, step = now() + 10 * SECOND, asked(rate), SECOND // 10
        admitted = [
            [n for n in range(SECONDS * 10) if not store.take(plan, start + n * step).refused] for store in stores
        ]
        for store in stores:
            await store.stop()
    own = min(rate, backstop) * FRACTION / PROCESSES
    for turns in admitted:
        assert len(turns) >= own * SECONDS - 1
        assert max(later - before for before, later in pairwise(turns)) <= 10 / own + 10
    # The parts are the greater of a last share and 1/N, so they add up to less than two; each has a burst of its own.
    assert sum(map(len, admitted)) <= 2 * own * PROCESSES * SECONDS + 2 * PROCESSES


async def _tick(stores: list[SharedStore]) -> None:
    while True:
        for store in stores:
            store.tick(now())
        await asyncio.sleep(0.01)
