"""Lua equals Python, step for step and bit for bit: 20,000 random steps of each kernel, a million under --soak."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from fractions import Fraction
from random import Random
from struct import pack

import pytest
import redis

from policies.kernels import gcra
from policies.kernels.gcra import Bucket
from policies.kernels.lease import RECENT, TICK, Record, Want, lease, prepare
from policies.kernels.seats import Table, allowance
from policies.units import SECOND
from tests.policies.buckets import EPOCH, per_us
from tests.policies.documents import Step
from tests.stores.lua.twins import Row, as_read, drive, packed_record, packed_table

__all__: list[str] = []

pytestmark = pytest.mark.untraced

RATES = [
    per_us(rate)
    for rate in (
        Fraction(1, 86_400), Fraction(1, 60), Fraction(1, 3), Fraction(3), Fraction(10), Fraction(333), Fraction(1000),
        Fraction(30_000), Fraction(10**6),
    )
]  # fmt: skip
BURSTS = (1.0, 2.5, 10.0, 20.0, 100.0, 1000.0)
COSTS = (0.0, 0.1, 0.25, 1.0, 1.0, 1.0, 3.0, 5.0, 40.0)
#: Steps of one history.
LONG = 500


def _clock(random: Random, rate_us: float, told: Sequence[int] = ()) -> Iterator[int]:
    """Yield instants: pauses around a tick, what a unit takes, and the last wait told; now and then a clock is set."""
    now, unit = EPOCH, int(1 / rate_us) if rate_us > 0 else SECOND
    while True:
        yield now
        draw = random.random()
        if draw < 0.1:
            now += max(0, (*told, RECENT)[-1 if random.random() < 0.1 else 0] - random.randrange(2))
        elif draw < 0.7:
            now += random.choice((0, 1, random.randrange(200_000), random.randrange(2 * unit + 1)))
        elif draw < 0.97:
            now += random.choice(
                (random.randrange(3 * SECOND), random.randrange(12 * unit + 1), TICK, SECOND, 3 * SECOND)
            )
        else:
            now += random.choice((-1, -11 * SECOND, -3600 * SECOND, -172_800 * SECOND, 172_800 * SECOND, 40 * unit))


def _limits(random: Random) -> tuple[float, float]:
    return (0.0 if random.random() < 0.1 else random.choice(RATES)), random.choice(BURSTS)


@pytest.mark.soak
def test_gcra_is_the_kernel(client: redis.Redis, soak: bool) -> None:
    """Asks of two classes, returns and reloads on one bucket leave the same ten numbers and tell the same wait."""
    for seed in range((1_000_000 if soak else 20_000) // LONG):
        random = Random(seed)
        rate_us, burst = _limits(random)
        reserve, floor = burst * random.choice((0.0, 0.25, 0.9)), random.choice((0.0, 0.05, 0.5, 0.95, 1.0))
        told: list[int] = []
        clock, bucket = _clock(random, rate_us, told), Bucket(rate_us, burst, EPOCH)
        rows: list[Row] = []
        expected: list[bytes] = []
        for now, _ in zip(clock, range(LONG), strict=False):
            act = random.choices((0, 1, 2), (90, 8, 2))[0] if rows else 0
            if act == 2:
                rate_us, burst = _limits(random)
            step = Step(random.choice(COSTS), low=random.random() < 0.5, reserve=reserve, floor=floor)
            rows.append((now, act, rate_us, burst, step.cost, float(step.low), reserve, floor))
            told[:] = [_gcra(bucket, act, step, rate_us, burst, now)]
            expected.append(pack("<11d", *told, *as_read(bucket)))
        assert drive(client, "gcra", rows) == expected, seed


def _gcra(bucket: Bucket, act: int, step: Step, rate_us: float, burst: float, now: int) -> int:
    if act == 1:
        gcra.give_back(bucket, step, now)
    elif act == 2:
        gcra.resize(bucket, rate_us, burst, now)
    else:
        gcra.demand(bucket, step, now)
        if not gcra.admits(bucket, step, now):
            return gcra.refuse(bucket, step, now)
        gcra.take(bucket, step, now)
    return 0


@pytest.mark.soak
def test_lease_is_the_kernel(client: redis.Redis, soak: bool) -> None:
    """Whatever several processes want, give back and spent, on whatever bucket: the same grants, waits and record."""
    for seed in range((1_000_000 if soak else 20_000) // LONG):
        random = Random(seed)
        limits = _limits(random)
        reserve, floor = random.choice((0.0, 0.25, 0.9)), random.choice((0.0, 0.05, 0.5, 0.95, 1.0))
        dearest, processes = random.choice((1.0, 5.0, 40.0)), random.choice((1, 2, 4, 40))
        record: Record | None = None
        rows: list[Row] = []
        expected: list[bytes] = []
        told: list[int] = []
        for now, _ in zip(_clock(random, limits[0], told), range(LONG), strict=False):
            if random.random() < 0.01:
                limits = _limits(random)
            process, want = random.randint(1, processes), _want(random, reserve * limits[1], floor)
            rows.append((now, process, dearest, *limits, *want))
            record = prepare(record, *limits, want, dearest, now)
            grant = lease(record, process, want, now)
            told[:] = [max(grant.high_wait_us, grant.low_wait_us)]
            expected.append(pack("<6d", *grant) + packed_record(record))
        assert drive(client, "lease", rows) == expected, seed


def _want(random: Random, reserve: float, floor: float) -> Want:
    high_cost, low_cost = random.choice(COSTS), random.choice(COSTS)
    if random.random() < 0.4:
        high_cost = 0.0
    return Want(
        high=high_cost + random.choice((0.0, 0.0, 1.0, 2.7, 27.0)),
        high_cost=high_cost,
        low=low_cost + random.choice((0.0, 0.0, 1.0, 2.7, 27.0)),
        low_cost=low_cost,
        reserve=reserve,
        floor=floor,
        back=random.choice((0.0, 0.0, 0.0, 0.3, 2.0)),
        spent=random.choice((0.0,) * 9 + (7.0,)),
        seed=random.choice((0.0, 3.0, 1e9)),
    )


@pytest.mark.soak
def test_seats_are_the_kernel(client: redis.Redis, soak: bool) -> None:
    """Whatever processes hold and want of whatever limit, renewed or not: the same allowances and entries."""
    for seed in range((1_000_000 if soak else 20_000) // LONG):
        random = Random(seed)
        limit, processes, table = random.choice((0, 1, 2, 3, 10, 100)), random.choice((1, 2, 5, 12)), Table()
        rows: list[Row] = []
        expected: list[bytes] = []
        for now, _ in zip(_clock(random, 1e-5), range(LONG), strict=False):
            if random.random() < 0.01:
                limit = random.choice((0, 1, 2, 3, 10, 100))
            process, ttl = random.randint(1, processes), 3 * SECOND
            held, want = random.choice((0, 0, 1, 2, 5)), random.choice((0, 1, 1, 2, 7, 200))
            rows.append((now, process, ttl, held, want, limit))
            expected.append(pack("<2d", *allowance(table, process, held, want, limit, ttl, now)) + packed_table(table))
        assert drive(client, "seats", rows) == expected, seed
