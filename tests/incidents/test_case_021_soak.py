"""Case 21 at its full size: bad tokens cost their sender little, those beside it nothing, and tell nothing apart."""

from __future__ import annotations

import asyncio
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from gateway.identity.jobs import JobRegistry
from gateway.identity.resolver import build_resolver
from tests.gateway.proxy.house import House, head, write
from tests.wire.caller import request
from tests.wire.gateway import Gateway, running, tenant, token
from tests.wire.load import Tally, offer
from tests.wire.origin import Origin
from tests.wire.tokens import pat

__all__: list[str] = []

BAD_RATE = 200
ROUNDS = 5
#: p99 of each round, alone and beside the flood.
MINE: dict[bool, list[float]] = {False: [], True: []}
PROBES: dict[bool, list[float]] = {False: [], True: []}


@pytest.fixture
def gateway(tmp_path: Path, origin: Origin) -> Iterator[Gateway]:
    """Run a gateway with one good tenant."""
    config = {"tenants": [tenant("a", quota="1000/s burst 1000")], "backstop": {"quota": "10000/s"}}
    with running(tmp_path, origin, config) as one:
        yield one


def p99(tally: Tally, began: float) -> float:
    """Return the 99th percentile of the time from request to answer, in milliseconds."""
    took = sorted(answer.ended - began - at for at, answer in tally.answers)
    return 1000 * took[min(len(took) - 1, int(0.99 * len(took)))]


@pytest.mark.soak
@pytest.mark.parametrize("number", range(ROUNDS))
async def test_a_good_tenant_beside_a_flood_of_bad_tokens(
    gateway: Gateway, up: Origin, soak: bool, number: int, capsys: pytest.CaptureFixture[str]
) -> None:
    """200 bad tokens a second: the good tenant's and the probes' p99 at most double, by the median of five rounds."""
    if number and not soak:
        pytest.skip("one round without --soak")
    for flooded in (False, True):
        named, probed = await _round(gateway, 20.0 if soak else 1.0, flooded=flooded)
        MINE[flooded].append(named)
        PROBES[flooded].append(probed)
    alone, beside, quiet, busy = (statistics.median(kept[flooded]) for kept in (MINE, PROBES) for flooded in kept)
    told = f"p99 of the good tenant {alone:.2f} ms alone, {beside:.2f} ms beside; of probes {quiet:.2f} and {busy:.2f}"
    with capsys.disabled():
        sys.stdout.write(f"\n{number + 1} rounds: {told}\n")
    if len(MINE[True]) == ROUNDS:
        assert beside <= 2 * alone
        assert busy <= 2 * quiet


async def _round(gateway: Gateway, seconds: float, *, flooded: bool) -> tuple[float, float]:
    """Return the p99 of the good tenant and of probes."""
    loads = [
        offer(gateway.address, request(token=token("a")), rate=50, seconds=seconds),
        offer(gateway.admin, request(target="/livez", host=gateway.admin), rate=5, seconds=seconds),
    ]
    if flooded:
        made = [request(token=pat(f"unknown {time.monotonic()} {n}").token) for n in range(int(BAD_RATE * seconds))]
        loads.append(offer(gateway.address, made.__getitem__, rate=BAD_RATE, seconds=seconds))
    began = time.monotonic()
    named, probed, *flood = await asyncio.gather(*loads)
    assert set(named.statuses) == set(probed.statuses) == {200}
    for bad in flood:
        assert set(bad.statuses) <= {401, 429}
        assert bad.statuses.total() == BAD_RATE * seconds
    return p99(named, began), p99(probed, began)


@pytest.mark.soak
def test_failures_cost_the_same(tmp_path: Path, soak: bool, capsys: pytest.CaptureFixture[str]) -> None:
    """Unknown, expired, revoked, and a job that has ended: CPU medians within 50 us, one body, by the whole line."""
    past = "expires = 2020-01-01T00:00:00Z"
    more = f'[[tenants]]\nid = "late"\n[[tenants.credentials]]\nid = "c"\npat = "{pat("late").digest}"\n{past}\n'
    house = House(write(tmp_path, auth='rejected_quota = "1000000/s burst 1000000"', more=more))
    registry = JobRegistry(tmp_path / "jobs.sqlite3", house.clock)
    house.pipeline.reload(house.policies, build_resolver(house.settings, house.clock, registry))
    job, ended = registry.register("acme", "p", "1", 60_000_000)
    registry.end(job.id)
    kinds: dict[str, Callable[[int], str]] = {
        "unknown": lambda n: pat(f"unknown {n}").token,
        "expired": lambda _: pat("late").token,
        "revoked": lambda n: pat(f"revoked {n}").token,  # as a reload leaves it: nowhere
        "ended": lambda _: ended,
    }
    took: dict[str, list[int]] = {name: [] for name in kinds}
    bodies = set()
    for n in range(2000 if soak else 300):
        for name, make in kinds.items():
            asked = head(token=make(n))
            began = time.thread_time_ns()
            told = house.ask(asked)
            took[name].append(time.thread_time_ns() - began)
            assert told.status == 401
            bodies.add(told.body.replace((told.field("x-request-id") or "").encode(), b""))
    medians = {name: statistics.median(times) / 1000 for name, times in took.items()}
    with capsys.disabled():
        sys.stdout.write(f"\nCPU of a bad token, median, in us: {medians}\n")
    assert len(bodies) == 1
    assert max(medians.values()) - min(medians.values()) < 50
