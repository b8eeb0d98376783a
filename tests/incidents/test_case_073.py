"""Case 73, on the link: many processes come back to a store one after the other."""

from __future__ import annotations

import asyncio
import time
from contextlib import AsyncExitStack

import pytest

from tests.stores.link.linked import linked, up
from tests.wire.faults import FaultProxy
from tests.wire.redis import RedisServer
from tests.wire.waiting import until

__all__: list[str] = []

PROCESSES = 16
#: What the store accepts in a second once it is back.
PER_SECOND = 50


@pytest.mark.soak
async def test_a_store_that_returns_is_not_stormed(redis_server: RedisServer, soak: bool) -> None:
    """Four instances of four workers: one attempt each per step of its back-off, at most 50/s when it is back."""
    down = 30.0 if soak else 0.8
    with FaultProxy(redis_server.address) as proxy:
        proxy.accept_at_most(0)
        async with AsyncExitStack() as stack:
            links = [await stack.enter_async_context(linked(proxy.url, wait=False)) for _ in range(PROCESSES)]
            began = time.monotonic()
            await asyncio.sleep(down)
            # 0, 50 ms, 100 ms and so on to 0.75 s, half of which may be drawn: never above that, nor all together.
            assert len(proxy.attempts) <= PROCESSES * (6 + (time.monotonic() - began) / 0.375)
            back = time.monotonic()
            proxy.accept_at_most(PER_SECOND)
            for link in links:
                await up(link, 30.0)
            await until(lambda: proxy.open == PROCESSES, "all are connected")
            since = [at - back for at in proxy.attempts if at >= back]
            assert max(sum(start <= at < start + 1.0 for at in since) for start in since) <= PER_SECOND
