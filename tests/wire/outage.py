"""An outage of the store under load, and what it costs under each posture.

Each posture has a route, eight light tenants well within their quota, and a heavy one that asks for thrice its own.

    settled --steady for `before`--> store fails --`outage`--> store heals --`after`--> figures

Figures, of one posture:
- over-admitted: what the heavy tenant got in the outage beyond its rate times the time, over that. Its burst was spent
  before.
- false refusals: what tenants should have had in the outage and did not get, over what they should have had.
- added p99: of an answer, over that of the steady time before.
- worst light: success of the light tenant that had the least in the outage.
- recovery: from the healing to the first answer with the store, of the last gateway. `late` is how many came without
  it after that, which happens where machine and callers are too busy for the deadline.
- afterwards: what the heavy tenant got in the two seconds after that, over its rate times two and what its bucket could
  have filled meanwhile; 1 is its limit, and above that is a burst.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import inf
from typing import Any

from tests.wire.caller import Caller, request
from tests.wire.gateway import tenants, token
from tests.wire.lost import POSTURES, routes

__all__ = ["HEAVY_RATE", "LIGHT", "Figures", "configured", "suffer"]

LIGHT = 8
LIGHT_PACE, LIGHT_RATE = 2.0, 10
HEAVY_PACE, HEAVY_RATE, HEAVY_BURST = 60.0, 20, 20
_AFTERWARDS = 2.0


@dataclass(frozen=True, slots=True)
class Asked:
    """One request: of which gateway, when it was sent, how long the answer took, and what it was."""

    address: str
    at: float
    took: float
    status: int
    marked: bool


@dataclass(frozen=True, slots=True)
class Figures:
    """What an outage cost under one posture; shares, seconds and counts."""

    posture: str
    asked: int
    failed: int
    over_admitted: float
    false_refusals: float
    added_p99: float
    worst_light: float
    all_light: float
    recovery: float
    late: int
    afterwards: float

    def row(self) -> str:
        """Return the row of a table."""
        return (
            f"| `{self.posture}` | {self.asked} | {self.failed} | {100 * self.over_admitted:.0f} % "
            f"| {100 * self.false_refusals:.1f} % | {1000 * self.added_p99:.1f} ms | {100 * self.worst_light:.1f} % "
            f"| {self.recovery:.2f} s | {self.late} | {self.afterwards:.2f} |"
        )


def _names(posture: str) -> tuple[str, list[str]]:
    word = posture.partition(":")[0]
    return f"heavy-{word}", [f"light-{word}-{number}" for number in range(LIGHT)]


def configured(scale: int = 1) -> dict[str, Any]:
    """Return the routes and tenants of all postures; `scale` divides every pace and quota."""
    heavy = [_names(posture)[0] for posture in POSTURES]
    light = [name for posture in POSTURES for name in _names(posture)[1]]
    return {
        "routes": routes(),
        "tenants": [
            *tenants(*heavy, quota=f"{HEAVY_RATE / scale}/s burst {HEAVY_BURST / scale}"),
            *tenants(*light, quota=f"{LIGHT_RATE / scale}/s burst {LIGHT_RATE / scale}"),
        ],
    }


async def _paced(address: str, octets: bytes, pace: float, ends: Callable[[], bool], found: list[Asked]) -> None:
    """Ask at an even pace on one kept connection until it ends."""
    caller = await Caller.connect(address)
    start, number = time.monotonic(), 0
    while not ends():
        await asyncio.sleep(max(0.0, start + number / pace - time.monotonic()))
        number += 1
        at = time.monotonic()
        await caller.send(octets)
        answer = await caller.response("GET", 60.0)
        marked = answer.header("evenhand-degraded") is not None
        found.append(Asked(address, at, time.monotonic() - at, answer.status, marked))
    caller.close()
    await caller.until_closed()


async def suffer(
    gateways: Mapping[str, Sequence[str]],
    fail: Callable[[], None],
    heal: Callable[[], None],
    *,
    before: float,
    outage: float,
    after: float,
    scale: int = 1,
) -> list[Figures]:
    """Load the gateways of each posture through an outage, every tenant all of them alike, and return its figures."""
    over = False
    found: dict[str, list[Asked]] = {}
    async with asyncio.TaskGroup() as callers:
        for posture, addresses in gateways.items():
            heavy, light = _names(posture)
            target = f"/{posture.partition(':')[0]}"
            for name, pace in ((heavy, HEAVY_PACE), *((one, LIGHT_PACE) for one in light)):
                asked = found[name] = []
                octets = request(target=target, token=token(name))
                for address in addresses:
                    callers.create_task(_paced(address, octets, pace / scale / len(addresses), lambda: over, asked))
        await asyncio.sleep(before)
        await asyncio.to_thread(fail)
        began = time.monotonic()
        await asyncio.sleep(outage)
        ended = time.monotonic()
        await asyncio.to_thread(heal)
        await asyncio.sleep(after)
        over = True
    return [_figures(posture, found, (began - before / 2, began, ended), scale) for posture in gateways]


def _figures(
    posture: str, found: Mapping[str, list[Asked]], instants: tuple[float, float, float], scale: int
) -> Figures:  # fmt: skip
    steady, began, ended = instants
    rate, burst = HEAVY_RATE / scale, HEAVY_BURST / scale
    heavy, light = _names(posture)
    during = {name: _between(found[name], began, ended) for name in (heavy, *light)}
    served = {name: sum(one.status == 200 for one in asked) for name, asked in during.items()}
    due = rate * (ended - began)
    should = {name: float(len(during[name])) for name in light} | {heavy: due}
    everybody = [one for name in (heavy, *light) for one in found[name]]
    firsts = {
        address: min((one.at for one in everybody if one.address == address and one.at >= ended and not one.marked),
                     default=inf)
        for address in {one.address for one in everybody}
    }  # fmt: skip
    back = max(firsts.values())
    got = sum(one.status == 200 for one in _between(found[heavy], back, back + _AFTERWARDS))
    filled = min(burst, max(0.0, due - served[heavy]))
    return Figures(
        posture=posture,
        asked=sum(map(len, during.values())),
        failed=sum(one.status not in {200, 429, 503} for one in everybody),
        over_admitted=max(0.0, served[heavy] - due) / due,
        false_refusals=sum(max(0.0, should[name] - served[name]) for name in should) / sum(should.values()),
        added_p99=_p99(one for asked in during.values() for one in asked) - _p99(_between(everybody, steady, began)),
        worst_light=min(served[name] / max(1, len(during[name])) for name in light),
        all_light=sum(served[name] for name in light) / sum(len(during[name]) for name in light),
        recovery=back - ended,
        late=sum(one.marked for one in everybody if one.at > back),
        afterwards=got / (rate * _AFTERWARDS + filled),
    )


def _between(asked: list[Asked], start: float, end: float) -> list[Asked]:
    return [one for one in asked if start <= one.at < end]


def _p99(asked: Iterable[Asked]) -> float:
    took = sorted(one.took for one in asked)
    return took[int(len(took) * 0.99)]
