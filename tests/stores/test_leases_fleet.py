"""Several processes' leases in one real store, on one loop: what they admit together, and what it costs the store.

Time is the machine's here, so counts are compared with what the bucket granted in the time that passed.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import AsyncIterator, Sequence
from dataclasses import replace
from itertools import count

import pytest

from gateway.clock import Clock
from gateway.config.sections import StoreSection
from gateway.stores.process import SharedStore
from policies.charge import Plan
from policies.kernels.plain import PlainBackstop
from policies.units import SECOND
from tests.policies.documents import CLASSES, policy_set
from tests.stores.contract import charge, plan
from tests.wire.faults import FaultProxy
from tests.wire.redis import RedisServer
from tests.wire.waiting import until

__all__: list[str] = []

#: Ticks of a process, in seconds, as `serve` makes them.
TICK = 0.02
_NUMBERS = count()


class Process:
    """A process as far as its store goes: it asks, waits and takes as the pipeline does."""

    def __init__(self, section: StoreSection) -> None:
        self.clock = Clock()
        self.namespace = section.namespace
        plain = PlainBackstop(1.0, 1e9, CLASSES, 1.0, self.clock.now())
        self.store = SharedStore(section, policy_set(), self.clock.now, plain)
        self.waits = 0
        self.store.leases.noted = self._noted
        self.admitted = self.refused = self.postured = 0

    def _noted(self, waited: int) -> None:
        self.waits += 1

    def send(self, asked: Plan) -> None:
        """Let a request come."""
        now = self.clock.now()
        if self.store.ask(asked, now, lambda: self.send(asked)) is None:
            reading = self.store.take(asked, now)
            self.postured += bool(reading.posture)
            self.refused += bool(reading.refused)
            self.admitted += not reading.refused

    async def ticking(self) -> None:
        """Tick until cancelled."""
        while True:
            self.store.tick(self.clock.now())
            await asyncio.sleep(TICK)


@contextlib.asynccontextmanager
async def processes(number: int, server: RedisServer, **store: object) -> AsyncIterator[list[Process]]:
    """Run some processes on a store, in a namespace of their own."""
    told = {"url": server.url, "namespace": f"fleet{next(_NUMBERS)}", "deadline": "2s", **store}
    section = StoreSection.model_validate(told)
    found = [Process(section) for _ in range(number)]
    for one in found:
        await one.store.start()
    ticks = [asyncio.ensure_future(one.ticking()) for one in found]
    try:
        await until(lambda: all(one.store.up for one in found), "the store answers")
        yield found
    finally:
        for tick in ticks:
            tick.cancel()
        for one in found:
            await one.store.stop()


def key(rate: float, burst: float) -> Plan:
    """Return a plan of one key."""
    return plan(charge("key", rate, burst, bucket="limit=key,tenant=acme,credential=ci"), backstop=False)


async def offered(fleet: Sequence[Process], asked: Plan, rate: float, skew: Sequence[float], seconds: float) -> float:
    """Send `rate` a second, to each process its part; return the seconds that passed."""
    loop, draw, sent = asyncio.get_running_loop(), random.Random(9), 0
    begun = loop.time()
    while (passed := loop.time() - begun) < seconds:
        while sent < passed * rate:
            draw.choices(fleet, skew)[0].send(asked)
            sent += 1
        await asyncio.sleep(0.001)
    return passed


@pytest.mark.soak
@pytest.mark.parametrize("rate", [10, 100, 1000])
async def test_skewed_processes_admit_one_limit(redis_process: RedisServer, soak: bool, rate: int) -> None:
    """90 % here and the rest over three, at 1.5 times the limit: burst and rate are admitted, no more and hardly less.

    Once it is warm hardly anybody waits at 1,000/s, and a request costs a fiftieth of a command. How much less and how
    hardly is for the long run to say: of a short one a machine that stands still for a moment may take a good part
    (`test_leased_rounds.py` has it exactly, on a clock that stands).
    """
    if rate < 1000 and not soak:
        pytest.skip("takes its time")
    seconds, loop = (10.0 if soak else 0.5), asyncio.get_running_loop()
    async with processes(4, redis_process) as fleet:
        skew = [0.9, 0.034, 0.033, 0.033]
        begun = loop.time()
        # The burst is spent first: what follows is the rate.
        for _ in range(rate + 10):
            fleet[0].send(key(rate, rate))
        await offered(fleet, key(rate, rate), 1.5 * rate, skew, 0.5)
        waited, before = sum(one.waits for one in fleet), sum(one.admitted for one in fleet)
        commands = sum(one.store.link.commands for one in fleet)
        await offered(fleet, key(rate, rate), 1.5 * rate, skew, seconds)
        admitted, granted = sum(one.admitted for one in fleet), rate * (loop.time() - begun)
        assert sum(one.postured for one in fleet) == 0
        assert admitted <= rate + granted * 1.01 + 1
        # What is in pockets, or flowed in since the last round, is not lost: it is no more than 0.3 s of the rate.
        assert admitted >= (rate + granted * 0.97 - 0.3 * rate - 4 if soak else rate)
        if rate == 1000:
            waits, asks = (0.02, 0.05) if soak else (0.5, 0.25)
            assert sum(one.waits for one in fleet) - waited <= waits * (admitted - before)
            assert sum(one.store.link.commands for one in fleet) - commands <= asks * (admitted - before)


async def test_process_that_ends_leaves_what_it_held(redis_process: RedisServer) -> None:
    """Its pockets are back in the bucket when it has stopped, and its seats are free."""
    async with processes(2, redis_process) as (first, second):
        asked = key(1 / 3600, 1000)
        await offered([first], asked, 2000, [1], 0.4)
        await first.store.stop()
        spent = first.admitted
        for _ in range(1000):
            second.send(asked)
        await until(lambda: second.admitted + second.refused == 1000, "all are answered")
        assert spent + second.admitted == 1000


async def test_flood_of_keys_leaves_few_records(redis_process: RedisServer) -> None:
    """New keys beyond `max_keys` share a bucket, and all records are gone soon after the last ask (case 105)."""
    most = 50
    async with processes(1, redis_process, max_keys=most) as (one,):
        for number in range(2000):
            step = replace(charge("key", 10, 2, bucket=f"limit=key,anonymous=10.0.{number}"), overflow="key anonymous")
            one.send(plan(step, backstop=False))
            if not number % 100:
                await until(lambda: one.store.leases.waiting == 0, "all are answered")
        await until(lambda: one.store.leases.waiting == 0, "all are answered")
        with redis_process.client() as client:
            keys = list(client.scan_iter(f"{one.namespace}:*limit*"))
            left = [client.pttl(key) for key in keys]
        assert len(keys) <= 2 * most
        assert max(left) <= 2 * SECOND // 1000 + 1000
        assert one.store.keys <= most + 1


@pytest.mark.soak
async def test_case_033_cut_leaves_no_record_without_end(redis_process: RedisServer, soak: bool) -> None:
    """A reply that is cut anywhere: every record has an expiry, and the key is not locked (case 33)."""
    asked = key(1000, 1000)
    with FaultProxy(redis_process.address) as proxy:
        async with processes(1, redis_process, url=proxy.url) as (one,):
            for octets in range(0, 60, 1 if soak else 20):
                proxy.cut(octets)
                for _ in range(500):
                    one.send(asked)
                await until(lambda: one.store.leases.waiting == 0, "all are answered")
                with redis_process.client() as client:
                    assert [name for name in client.scan_iter(f"{one.namespace}:*") if client.pttl(name) == -1] == []
                await until(lambda: one.store.up, "the link is up again")
            admitted = one.admitted
            await offered([one], asked, 500, [1], 0.3)
            assert one.admitted > admitted
