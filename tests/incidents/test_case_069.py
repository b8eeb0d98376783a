"""Case 69: callers go away while their limits are asked of a slow store; nobody gets another's answer.

The link alone, over ten thousand calls given up, is in `test_case_069_link.py`.
"""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from pathlib import Path

from tests.wire.caller import Caller, request
from tests.wire.faults import FaultProxy
from tests.wire.fleet import fleet
from tests.wire.gateway import tenants, token
from tests.wire.load import at_once
from tests.wire.origin import Origin
from tests.wire.redis import RedisServer

__all__: list[str] = []

EMPTY = [f"a{number}" for number in range(40)]
FULL = [f"b{number}" for number in range(40)]
#: Requests of each tenant; half of the callers go away about when an answer that takes 100 ms could be there.
EACH = 4
PATIENCE = 0.2


async def leaving(address: str, tenant: str, draw: random.Random) -> tuple[str, int]:
    """Ask once, for as long as patience lasts; the status, 0 for whoever went away."""
    caller = await Caller.connect(address)
    try:
        await caller.send(request(token=token(tenant)))
        async with asyncio.timeout(draw.choice((draw.uniform(0.0, PATIENCE), 10.0))):
            return tenant[0], (await caller.response()).status
    except TimeoutError:
        return tenant[0], 0
    finally:
        caller.reset()


async def test_nobody_gets_the_answer_of_one_who_left(tmp_path: Path, up: Origin, redis_server: RedisServer) -> None:
    """Empty buckets admit nobody and full ones refuse nobody, whoever gave up before and beside them."""
    draw = random.Random(69)
    with FaultProxy(redis_server.address) as proxy:
        config = {
            "store": {"url": proxy.url, "deadline": "1s", "posture": "closed"},
            "backstop": {"quota": "100000/s"},
            "tenants": [*tenants(*EMPTY, quota="1/h burst 1"), *tenants(*FULL, quota="1000/s burst 1000")],
        }
        with fleet(tmp_path, up, config, 2) as two:
            first, second = (one.address for one in two.gateways)
            assert (await at_once(first, [request(token=token(name)) for name in EMPTY])).statuses == {200: len(EMPTY)}
            proxy.delay(0.05)
            asked = [leaving(second, name, draw) for name in (EMPTY + FULL) * EACH]
            draw.shuffle(asked)
            seen = Counter(await asyncio.gather(*asked))
            proxy.heal()
            assert {count for name, count in up.by_tenant().items() if name in EMPTY} == {1}
            assert seen.keys() == {("a", 429), ("b", 200), ("a", 0), ("b", 0)}
            assert proxy.open <= 2 * 4
