"""A gateway whose shared store fails as it is told: a real server, the fault proxy before it, a route for each posture.

Rules
1. It is started while the store is down, as after a power cut, and asked before the store is brought up.
2. Every test asks with tenants that nobody asked with before (`fresh`): nothing is leased of theirs.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tests.wire.caller import Caller, Response, request
from tests.wire.faults import FaultProxy
from tests.wire.gateway import START_SECONDS, Gateway, running, tenants, token
from tests.wire.origin import Origin, serving
from tests.wire.redis import RedisServer
from tests.wire.script import Answer
from tests.wire.waiting import SLACK, until

__all__ = ["NAMESPACE", "POSTURES", "Lost", "losing", "refused", "routes"]

POSTURES = ("open", "closed", "deny:30", "safe-capacity")
#: Other tests use the same server.
NAMESPACE = "lost"
_TENANTS = 250
_MARK = "evenhand-degraded"


def routes() -> list[dict[str, Any]]:
    """Return a route for each posture: `/open` and so on."""
    return [
        {"name": name, "path": f"/{name.partition(':')[0]}", "posture": name, "unlimited": "keys limit it"}
        for name in POSTURES
    ]


def refused(answer: Response) -> bool:
    """Return whether a posture refused; fail if anything but that or a served answer came, or if it is not marked."""
    assert answer.status in {200, 503}, answer
    assert answer.header("evenhand-refused") == (None if answer.status == 200 else "posture")
    assert answer.header(_MARK) == "store"
    return answer.status == 503


class Lost:
    """The gateway, the proxy, and the server behind it."""

    def __init__(self, gateway: Gateway, proxy: FaultProxy, server: RedisServer, up: Origin) -> None:
        self.gateway = gateway
        self.proxy = proxy
        self.server = server
        self.up = up
        self._fresh = iter(range(_TENANTS))
        #: What was answered before the store was ever up, on the route of each posture.
        self.first: list[Response] = []
        #: Whether the gauge said so, and how many requests were decided without it.
        self.first_up: float | None = None
        self.first_decided = 0.0

    def fresh(self) -> str:
        """Return a tenant that nobody asked with before: 10/s with burst 20."""
        return f"t{next(self._fresh)}"

    async def ask(self, posture: str, count: int = 1, tenant: str | None = None) -> list[Response]:
        """Ask on the route of a posture, one after another on one connection, as one tenant."""
        octets = request(target=f"/{posture.partition(':')[0]}", token=token(tenant or self.fresh()))
        async with contextlib.aclosing(_Line(self.gateway.address)) as line:
            return [await line.ask(octets) for _ in range(count)]

    async def begin(self) -> None:
        """Ask before the store is up, bring it up, and return once limits are counted: 2 s for each."""
        self.first_up = self.gateway.metrics().value("evenhand_store_up")
        self.first = [(await self.ask(posture))[0] for posture in POSTURES]
        self.first_decided = sum(self.decided().values())
        await until(lambda: "the store does not answer" in self.gateway.stderr, "it says that the store is missed")
        await self.heal(within=2.0 + SLACK)
        await self.counting(within=2.0 + SLACK)

    def standing(self) -> dict[str, Any]:
        """Return what the admin API says of the store."""
        found: dict[str, Any] = self.gateway.ask("/api/posture").json()["store"]
        return found

    def decided(self) -> dict[str, float]:
        """Return how many requests were decided without the store, by posture."""
        return self.gateway.metrics().by("posture", "evenhand_posture_decisions_total")

    async def lost(self, within: float = 2.0 + SLACK) -> None:
        """Return once the store is known to be down."""
        await until(lambda: not self.standing()["up"], "the store is known to be down", within)

    async def counting(self, within: float) -> list[Response]:
        """Ask one tenant on the closed route until it is served, and return what it got before."""
        tenant, deadline = self.fresh(), time.monotonic() + within
        before: list[Response] = []
        while (answer := (await self.ask("closed", 1, tenant))[0]).status != 200:
            before.append(answer)
            assert time.monotonic() < deadline, f"not within {within} s: limits are counted"
            await asyncio.sleep(0.01)
        assert answer.header(_MARK) is None
        return before

    async def heal(self, within: float = 2.0 + SLACK) -> None:
        """Undo every fault, and return once the store answers, and all was said of its absence."""
        self.proxy.heal()
        await until(lambda: self.standing()["up"], "the store answers again", within)
        await until(self._told, "it is said that the store answers again")

    def _told(self) -> bool:
        said = self.gateway.stderr
        return said.count("the store does not answer") == said.count("the store answers again")


class _Line:
    """One kept connection, made when it is first needed."""

    def __init__(self, address: str) -> None:
        self._address = address
        self._caller: Caller | None = None

    async def ask(self, octets: bytes) -> Response:
        if self._caller is None or self._caller.closed:
            self._caller = await Caller.connect(self._address)
        await self._caller.send(octets)
        return await self._caller.response("GET", 60.0)

    async def aclose(self) -> None:
        if self._caller is not None:
            self._caller.close()
            await self._caller.until_closed()


@contextlib.contextmanager
def losing(folder: Path, server: RedisServer) -> Iterator[Lost]:
    """Run it, started with the store down."""
    with serving() as up, FaultProxy(server.address) as proxy:
        up.on("/", Answer())
        proxy.down()
        config = {
            "store": {
                "url": proxy.url,
                "path": str(folder / "evenhand.sqlite3"),
                "namespace": NAMESPACE,
                "deadline": "250ms",
            },
            "backstop": {"quota": "10000/s burst 10000"},
            "routes": routes(),
            "tenants": tenants(*(f"t{number}" for number in range(_TENANTS))),
        }
        began = time.monotonic()
        with running(folder, up, config) as gateway:
            # The case says five seconds; a busy machine is given the harness's own.
            assert time.monotonic() - began < START_SECONDS
            lost = Lost(gateway, proxy, server, up)
            asyncio.run(lost.begin())
            yield lost
