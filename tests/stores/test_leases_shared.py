"""Leases in a real store, one server and a cluster: the contract of every store, and what takes several processes."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from itertools import count

import pytest

from gateway.config.sections import StoreSection
from gateway.ports import Store
from gateway.stores.leased.ledger import LinkLedger
from gateway.stores.leased.store import LeasedStore
from gateway.stores.link import Answer, Link, Script, open_link
from gateway.stores.names import Names
from policies.charge import Plan, Reading
from policies.kernels.fairshare import Shares
from policies.policy import PolicySet
from policies.units import SECOND, Micros
from tests.clock import StandingClock
from tests.stores.contract import StoreContract
from tests.wire.redis import RedisCluster, RedisServer

__all__: list[str] = []

_NUMBERS = count()
_SECONDS = 5.0
_TIME = b'redis.call("TIME")'
#: The server's clock as the last argument of the call.
_DRIVEN = b"{ math.floor(ARGV[#ARGV] / SECOND), ARGV[#ARGV] % SECOND }"


class DrivenLink:
    """A link whose server has the test's clock."""

    def __init__(self, link: Link, clock: StandingClock) -> None:
        self._link = link
        self._clock = clock
        self.address = link.address
        self.scripts: dict[str, Script] = {}

    @property
    def up(self) -> bool:
        """As the link."""
        return self._link.up

    def run(
        self,
        script: Script,
        keys: Sequence[bytes],
        args: Sequence[bytes],
        answer: Answer,
        within_us: Micros,
        late: Answer | None = None,
    ) -> None:
        """Run the script with the clock for an argument."""
        assert _TIME in script.source
        driven = Script.of(script.name, script.source.replace(_TIME, _DRIVEN))
        self._link.run(driven, keys, [*args, b"%d" % self._clock.at], answer, int(_SECONDS * SECOND), late)


class Waiting:
    """A leased store over a real link, as whoever waits for it sees it; it has a loop of its own."""

    def __init__(self, url: str, policies: PolicySet, now: Micros) -> None:
        self.loop = asyncio.new_event_loop()
        self.clock = StandingClock(now)
        names = Names(f"contract-{next(_NUMBERS)}")
        self.link = open_link(StoreSection(url=url), names)
        self.loop.run_until_complete(self._start())
        allowed = policies.backstop
        shares = Shares(
            allowed.rate.per_us, allowed.burst, policies.classes, policies.unlisted_weight, now,
            policies.max_unlisted_tenants,
        )  # fmt: skip
        ledger = LinkLedger(DrivenLink(self.link, self.clock), 1, SECOND)  # type: ignore[arg-type] # what it needs of one
        self.store = LeasedStore(
            policies, ledger, names, shares, self.loop, self.clock.now, max_keys=100, deadline=5 * SECOND
        )

    async def _start(self) -> None:
        await self.link.start()
        async with asyncio.timeout(_SECONDS):
            while not self.link.up:
                await asyncio.sleep(0.001)

    def close(self) -> None:
        """Close the link and the loop."""
        self.loop.run_until_complete(self.link.stop())
        self.loop.close()

    def take(self, asked: Plan, now: Micros) -> Reading:
        """Ask, wait, take."""
        self.clock.at = now
        return self.loop.run_until_complete(self._take(asked, now))

    async def _take(self, asked: Plan, now: Micros) -> Reading:
        told = asyncio.Event()
        if self.store.ask(asked, now, told.set) is not None:
            async with asyncio.timeout(_SECONDS):
                await told.wait()
            assert self.store.knows(asked, now)
        reading = self.store.take(asked, now)
        if asked.shadow:
            # What nobody waits for is there a moment later.
            await asyncio.sleep(0.01)
        return reading

    def give_back(self, asked: Plan, now: Micros, reading: Reading | None = None) -> None:
        """As the store."""
        self.store.give_back(asked, now, reading)

    def release(self, asked: Plan) -> None:
        """As the store."""
        self.store.release(asked)

    def rebuild(self, policies: PolicySet, now: Micros) -> None:
        """As the store."""
        self.store.rebuild(policies, now)


class RealContract(StoreContract):
    """The contract over real links, closed after each test."""

    reloads_at_once = False
    url = ""
    opened: list[Waiting]

    @pytest.fixture(autouse=True)
    def closing(self) -> Iterator[None]:
        """Close what a test opened."""
        self.opened = []
        yield
        for one in self.opened:
            one.close()

    def open(self, policies: PolicySet, now: Micros) -> Store:
        """Return a leased store with names of its own on the server, whose clock is the test's."""
        self.opened.append(Waiting(self.url, policies, now))
        return self.opened[-1]


class TestLeasedOnServer(RealContract):
    """The contract, on one server."""

    @pytest.fixture(autouse=True)
    def address(self, redis_process: RedisServer) -> None:
        """Note where it is."""
        self.url = redis_process.url


class TestLeasedOnCluster(RealContract):
    """The contract, on a cluster: what one plan asks lies in different slots."""

    @pytest.fixture(autouse=True)
    def address(self, redis_members: RedisCluster) -> None:
        """Note where it is."""
        self.url = redis_members.url
