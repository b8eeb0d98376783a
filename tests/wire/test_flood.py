"""One tenant floods at ten times the backstop: everybody else is served as before, through a real gateway."""

from __future__ import annotations

import asyncio
import multiprocessing
import statistics
import time
from pathlib import Path

import pytest

from tests.wire.caller import Caller, request
from tests.wire.gateway import running, tenants, token
from tests.wire.load import offer
from tests.wire.origin import serving

__all__: list[str] = []

BACKSTOP = 100
LIGHT = tuple(f"light-{number}" for number in range(6))
PACE = 8.0


async def timed(address: str, name: str, seconds: float) -> list[float | None]:
    """Return the seconds each call of a light tenant took, at its own pace; None for one that was not served."""
    caller = await Caller.connect(address)
    sent, due = request("GET", "/x", token=token(name)), time.monotonic()
    took: list[float | None] = []
    for _ in range(int(PACE * seconds)):
        await asyncio.sleep(max(0.0, due - time.monotonic()))
        begun = time.monotonic()
        # Whoever is late does not hurry: that would be more than its pace.
        due = max(due, begun) + 1 / PACE
        await caller.send(sent)
        answer = await caller.response("GET", 60.0)
        took.append(time.monotonic() - begun if answer.status == 200 else None)
    caller.close()
    await caller.until_closed()
    return took


def flood(address: str, seconds: float) -> None:
    """Offer ten times the backstop, in a process of its own."""
    asyncio.run(
        offer(address, request("GET", "/x", token=token("flood")), rate=BACKSTOP * 10, seconds=seconds, connections=64)
    )


async def everybody(address: str, seconds: float) -> list[float | None]:
    """Return what all light tenants saw, together."""
    return [one for found in await asyncio.gather(*(timed(address, name, seconds) for name in LIGHT)) for one in found]


def quiet_and_flooded(address: str, seconds: float) -> tuple[list[float | None], list[float | None]]:
    """Return what the light tenants see alone, then beside the flood."""
    quiet = asyncio.run(everybody(address, seconds))
    flooding = multiprocessing.get_context("spawn").Process(target=flood, args=(address, seconds + 2))
    flooding.start()
    time.sleep(1.5)  # until it floods at its full rate
    flooded = asyncio.run(everybody(address, seconds))
    flooding.join()
    return quiet, flooded


def p99(took: list[float | None]) -> float:
    """Return the 99th percentile of those served."""
    served = sorted(one for one in took if one is not None)
    return served[int(len(served) * 0.99)]


@pytest.mark.soak
def test_a_flood_is_its_own_problem(tmp_path: Path, soak: bool) -> None:
    """The others' success is 100 %; at full size their p99 rises by at most 30 %, in the median of five rounds."""
    config = {
        "backstop": {"quota": f"{BACKSTOP}/s"},
        "tenants": tenants(*LIGHT, "flood", quota="100000/s"),
        "telemetry": {"admit_sample": 0.01},
    }
    with serving() as up, running(tmp_path, up, config) as gateway:
        rounds = [quiet_and_flooded(gateway.address, 6.0 if soak else 2.0) for _ in range(5 if soak else 1)]
        flooding = gateway.row("flood", "5m")
    assert flooding is not None
    assert sum(flooding["refused"].values()) > flooding["served"]
    for quiet, flooded in rounds:
        assert None not in quiet
        assert None not in flooded
    if soak:
        rises = [p99(flooded) / p99(quiet) for quiet, flooded in rounds]
        assert statistics.median(rises) <= 1.3, rises
