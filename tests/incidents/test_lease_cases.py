"""Cases 9, 25, 33, 35 and 81 with limits in a shared store: four gateways, one Redis.

Case 105 is in `tests/stores/test_leases_shared.py`; 29 and 31, which need a clock that can be driven, with the kernels
in `tests/stores/test_leased.py`.
"""

from __future__ import annotations

import asyncio
import signal
import time
from collections.abc import Iterator

import pytest

from tests.wire.caller import Caller, request
from tests.wire.fleet import Fleet, fleet
from tests.wire.gateway import tenant, tenants, token
from tests.wire.load import at_once
from tests.wire.origin import Origin
from tests.wire.redis import RedisServer
from tests.wire.script import Answer
from tests.wire.toml import Document
from tests.wire.waiting import SLACK, until

__all__: list[str] = []

SPREAD, STEADY, HUNDRED, SEATED, PLANTED, KILLED = (
    "spread", "steady", "hundred", "seated", "planted", "killed",
)  # fmt: skip
BARRIERS = {1: "barrier", 4: "barriers"}
#: Seats of a process that died are free again by then.
SEATS_SECONDS = 2.0
CONNECTIONS = 3


def config(server: RedisServer) -> Document:
    """Return what all gateways are told."""
    return {
        "store": {"url": server.url, "max_connections": CONNECTIONS, "deadline": "500ms"},
        "backstop": {"quota": "100000/s"},
        "tenants": [
            *tenants(SPREAD, *BARRIERS.values(), quota="1/h burst 20"),
            *tenants(STEADY, PLANTED, quota="5/s burst 5"),
            tenant(HUNDRED, quota="100/s burst 100"),
            *tenants(SEATED, KILLED, quota="100000/s", concurrency=10),
        ],
    }


def connected(server: RedisServer) -> set[str]:
    """Return the connections that the server has, without the one that asks."""
    with server.client() as client:
        return {one["id"] for one in client.client_list()} - {str(client.client_id())}


@pytest.fixture(scope="module")
def others(redis_process: RedisServer) -> set[str]:
    """Return the connections of before the fleet: the server is lent to other tests too."""
    return connected(redis_process)


@pytest.fixture(scope="module")
def four(
    tmp_path_factory: pytest.TempPathFactory, origin: Origin, redis_process: RedisServer, others: set[str]
) -> Iterator[Fleet]:
    """Run four gateways for the module."""
    redis_process.clear()
    with fleet(tmp_path_factory.mktemp("fleet"), origin, config(redis_process)) as found:
        yield found


def unbounded(server: RedisServer) -> list[bytes]:
    """Return the records that have no expiry."""
    with server.client() as client:
        return [key for key in client.scan_iter(count=1000) if client.pttl(key) == -1]


async def test_009_bucket_is_one_over_routes_methods_and_processes(four: Fleet, up: Origin) -> None:
    """40 at once over 8 routes, 3 methods and 4 processes: the burst of 20 is admitted once (case 9)."""
    asked = [
        request(("GET", "PUT", "DELETE")[number % 3], f"/route-{number % 8}", token=token(SPREAD))
        for number in range(40)
    ]
    tally = await four.at_once(asked)
    assert tally.statuses == {200: 20, 429: 20}
    assert up.by_tenant() == {SPREAD: 20}


@pytest.mark.parametrize("processes", [1, 4])
async def test_035_barrier(four: Fleet, up: Origin, processes: int) -> None:
    """500 released together on a new bucket of 20: exactly 20 are admitted, wherever they come in (case 35)."""
    octets = [request(token=token(BARRIERS[processes]))] * 500
    tally = await Fleet(four.gateways[:processes]).at_once(octets)
    assert tally.statuses == {200: 20, 429: 480}
    assert tally.limits() == {"key": 480}


async def test_035_seats_over_four_processes(four: Fleet, up: Origin) -> None:
    """200 at once on 10 seats while the upstream holds each: never an eleventh, and all seats are free again after."""
    up.on("/", Answer(held=True))
    before = four.sum("evenhand_requests_total", outcome="refused")
    asked = asyncio.ensure_future(four.at_once([request(token=token(SEATED))] * 200))
    await until(
        lambda: four.sum("evenhand_requests_total", outcome="refused") >= before + 190, "all others are refused", 60
    )
    up.release()
    tally = await asked
    assert tally.statuses == {200: 10, 429: 190}
    assert tally.limits() == {"concurrency": 190}
    assert len(up.seen) == 10
    await until(lambda: four.sum("evenhand_in_flight") == 0, "all requests have ended")


async def test_033_planted_record_heals(four: Fleet, up: Origin, redis_process: RedisServer) -> None:
    """A record without expiry and with a huge count locks nobody out, and none lacks an expiry for long (case 33)."""
    await four.at_once([request(token=token(PLANTED))] * 10)
    assert unbounded(redis_process) == []
    with redis_process.client() as client:
        (key,) = [key for key in client.scan_iter() if b":own:" in key and PLANTED.encode() in key]
        client.set(key, b"\xff" * 120)
    gateway, ends = four.gateways[0], time.monotonic() + 5 / 5 + 1 + SLACK
    while not (await at_once(gateway.address, [request(token=token(PLANTED))])).admitted:
        assert time.monotonic() < ends, "locked out"
        await asyncio.sleep(0.05)
    assert unbounded(redis_process) == []


async def test_025_steady_callers_get_their_rate_and_hardly_wait(
    four: Fleet, up: Origin, redis_process: RedisServer, others: set[str]
) -> None:
    """Twice its rate evenly over four processes, and 1.5 times it with 90 % at one: each gets its rate (case 25).

    Hardly anybody of the faster one waits, and no process has more connections than it may.
    """
    steady, hundred = request(token=token(STEADY)), request(token=token(HUNDRED))
    await four.offer(hundred, rates=[60, 7, 7, 7], seconds=0.7, connections=1)
    waited, start = four.sum("evenhand_store_wait_seconds_count"), time.monotonic()
    slow, fast = await asyncio.gather(
        four.offer(steady, rates=[2.5] * 4, seconds=2.5, connections=1),
        four.offer(hundred, rates=[135, 5, 5, 5], seconds=2.0, connections=1),
    )
    # Whoever could not send that fast has got all.
    assert min(5 + 5 * slow.elapsed - 3, len(slow.answers)) <= slow.admitted <= 5 + 5 * slow.elapsed + 1
    bound = 100 + 100 * (time.monotonic() - start)
    assert min(bound * 0.9 - 100, len(fast.answers)) <= fast.admitted <= bound * 1.01
    assert four.sum("evenhand_store_wait_seconds_count") - waited < 20 + len(slow.answers)
    # One that was just closed may still be there.
    await until(lambda: len(connected(redis_process) - others) <= 4 * CONNECTIONS, "no more connections than allowed")


async def test_081_seats_of_a_killed_process_come_free(four: Fleet, up: Origin, redis_process: RedisServer) -> None:
    """Ten seats held by a process that is killed are another's within the lease; no record is left without expiry.

    The last test of the fleet: one of it is gone then (cases 81 and 33).
    """
    up.on("/", Answer(delay=30.0))
    up.on("/quick", Answer())
    other, *_, doomed = four.gateways
    quick = [request(target="/quick", token=token(KILLED))] * 3
    held = [await Caller.connect(doomed.address) for _ in range(10)]
    for caller in held:
        await caller.send(request(token=token(KILLED)))
    await until(lambda: len(up.seen) == 10, "all seats are taken")
    assert (await at_once(other.address, quick)).limits() == {"concurrency": 3}
    doomed.end(signal.SIGKILL)
    assert unbounded(redis_process) == []
    for caller in held:
        caller.reset()
    ends = time.monotonic() + SEATS_SECONDS + 1 + SLACK
    while (await at_once(other.address, quick)).admitted < 3:
        assert time.monotonic() < ends, "no seat came free"
        await asyncio.sleep(0.1)
