"""Two classes on one bucket: the reserve, the floor, and that neither costs anything alone."""

from __future__ import annotations

from fractions import Fraction

import pytest

from policies.kernels import gcra
from policies.kernels.gcra import Bucket
from policies.units import SECOND
from tests.policies.buckets import EPOCH, ask, per_us
from tests.policies.documents import Step

__all__: list[str] = []

CONTESTS = [
    # rate, burst, high cost, low cost
    (Fraction(10), 10.0, 1.0, 1.0),
    (Fraction(10), 20.0, 1.0, 5.0),
    (Fraction(10), 10.0, 1.0, 10.0),  # dearer than what the reserve leaves
    (Fraction(10), 10.0, 7.0, 10.0),
    (Fraction(10), 4.0, 1.0, 9.0),  # dearer than the bucket
    (Fraction(1), 1.0, 1.0, 1.0),  # no room for credit and a high ask side by side
    (Fraction(1000), 1000.0, 1.0, 1.0),
    (Fraction(1, 4), 1.0, 1.0, 1.0),
]


def _served(
    rate: Fraction, burst: float, high_cost: float, low_cost: float, *, low_every: int, high_every: int
) -> tuple[float, float, float]:
    """Let both classes ask every so often (0 is never), high first; return units served to each, and seconds."""
    bucket = Bucket(per_us(rate), burst, EPOCH)
    high, low = Step(high_cost, floor=0.05), Step(low_cost, low=True, reserve=burst / 4, floor=0.05)
    unit = int(SECOND / rate)
    span = int(max(low_cost / 0.05, high_cost) * unit * 6) + 4 * SECOND
    served, tick = [0.0, 0.0], max(1, min(unit // 4, SECOND // 4))
    for number in range(span // tick):
        now = EPOCH + number * tick
        for index, (step, every) in enumerate(((high, high_every), (low, low_every))):
            if every and number % every == 0 and ask(bucket, step, now) == 0:
                served[index] += step.cost
    return served[0], served[1], span / SECOND


@pytest.mark.parametrize(("rate", "burst", "high_cost", "low_cost"), CONTESTS)
def test_floor_holds_beside_saturating_high(rate: Fraction, burst: float, high_cost: float, low_cost: float) -> None:
    """Low asks beside high ones that take all they can get at least the floor, and high ones nearly all the rest."""
    high, low, seconds = _served(rate, burst, high_cost, low_cost, low_every=1, high_every=1)
    capacity = float(rate) * seconds
    assert low >= 0.05 * capacity - 2 * low_cost
    # What is dearer than the bucket is due when the bucket is full, and goes into debt for the rest.
    assert low <= 0.05 * capacity * max(1.0, low_cost / burst) + burst + 2 * low_cost
    assert high + low >= 0.9 * capacity - low_cost - burst


@pytest.mark.parametrize(("rate", "burst", "high_cost", "low_cost"), CONTESTS)
def test_either_class_alone_gets_everything(rate: Fraction, burst: float, high_cost: float, low_cost: float) -> None:
    """With nobody competing no class and no reserve refuses anything inside the bucket (case 43)."""
    high, _, seconds = _served(rate, burst, high_cost, low_cost, low_every=0, high_every=1)
    _, low, seconds = _served(rate, burst, high_cost, low_cost, low_every=1, high_every=0)
    assert high >= 0.98 * float(rate) * seconds - high_cost
    assert low >= 0.98 * float(rate) * seconds - low_cost


def test_obedient_low_caller_is_never_starved() -> None:
    """One low caller that comes back exactly as told, with the jitter and rounding of Retry-After, gets its floor."""
    bucket = Bucket(per_us(Fraction(1)), 4.0, EPOCH)
    high, low = Step(floor=0.05), Step(low=True, reserve=1.0, floor=0.05)
    due, served = EPOCH, 0
    for now in range(EPOCH, EPOCH + 600 * SECOND, SECOND // 4):
        ask(bucket, high, now)
        if now >= due:
            wait = ask(bucket, low, now)
            served += wait == 0
            due = now + -(-(wait + wait // 4) // SECOND) * SECOND
    assert served >= 600 * 0.05 * 0.7


def test_cheap_low_traffic_does_not_lend_its_life_to_a_dear_ask() -> None:
    """A dear low ask that never comes back is forgotten, though cheap ones go on: high asks are not held up for it."""
    bucket = Bucket(per_us(Fraction(10)), 10.0, EPOCH)
    high = Step(floor=0.05)
    dear, cheap = (Step(cost, low=True, reserve=2.5, floor=0.05) for cost in (10.0, 0.1))
    bucket.level = 10.0
    gcra.demand(bucket, high, EPOCH)
    ask(bucket, dear, EPOCH)
    served = 0.0
    for now in range(EPOCH, EPOCH + 120 * SECOND, SECOND // 20):
        if ask(bucket, high, now) == 0:
            served += 1
        if now % SECOND == 0:
            ask(bucket, cheap, now)
    assert served >= 120 * 10 * 0.9
    assert bucket.want == 0.1


def test_reserve_binds_for_a_second_after_high_demand() -> None:
    """Low asks leave the reserve alone only while a high one asked within the last second."""
    bucket = Bucket(per_us(Fraction(1, 1000)), 10.0, EPOCH)
    low = Step(low=True, reserve=2.5)
    gcra.demand(bucket, Step(), EPOCH)
    bucket.level = 7.0
    assert ask(bucket, low, EPOCH + SECOND - 1) == 1
    assert gcra.room(bucket, low, gcra.kept(bucket, low, EPOCH)) == 6.5
    assert ask(bucket, low, EPOCH + SECOND) == 0


def test_floor_of_everything_leaves_high_what_low_does_not_want() -> None:
    """With a floor of 1 all that is earned is credit, so a high ask waits until the credit has all that low wants."""
    bucket = Bucket(per_us(Fraction(10)), 10.0, EPOCH)
    high, low = Step(2.0, floor=1.0), Step(3.0, low=True, reserve=2.5, floor=1.0)
    gcra.demand(bucket, high, EPOCH)
    bucket.level = 9.0
    assert ask(bucket, low, EPOCH) == 3 * SECOND // 10
    assert ask(bucket, high, EPOCH) == 4 * SECOND // 10


@pytest.mark.parametrize(
    ("credit", "level", "admitted"),
    [
        (0.0, 0.0, True),  # nothing is due
        (0.5, 0.0, True),  # not ripe: the full bucket is high's
        (1.0, 0.0, False),  # ripe: it is low's
        (1.0, 0.5, False),
    ],
)
def test_ripe_credit_goes_first_in_a_bucket_too_small_for_both(credit: float, level: float, admitted: bool) -> None:
    """Where credit and a high ask do not fit side by side, the full bucket goes to whoever is due."""
    bucket = Bucket(per_us(Fraction(1, 1000)), 1.0, EPOCH)
    high, low = Step(floor=0.05), Step(low=True, reserve=0.25, floor=0.05)
    gcra.demand(bucket, high, EPOCH)
    bucket.level = 1.0
    gcra.refuse(bucket, low, EPOCH)
    bucket.level, bucket.credit = level, credit
    assert gcra.admits(bucket, high, EPOCH) is admitted


def test_give_back_returns_the_floors_credit() -> None:
    """A low charge given back returns the credit it was admitted by, up to what is wanted."""
    bucket, high, low = _contested()
    bucket.credit, bucket.credit_at = 1.0, EPOCH
    gcra.take(bucket, low, EPOCH)
    assert gcra.kept(bucket, high, EPOCH) == 0.0
    gcra.give_back(bucket, low, EPOCH)
    assert gcra.kept(bucket, high, EPOCH) == 1.0
    gcra.give_back(bucket, low, EPOCH)
    assert gcra.kept(bucket, high, EPOCH) == 1.0


def _contested() -> tuple[Bucket, Step, Step]:
    """Return an empty bucket of 10/s burst 10 that both classes want, and an ask of each."""
    bucket = Bucket(per_us(Fraction(10)), 10.0, EPOCH)
    high, low = Step(floor=0.05), Step(low=True, reserve=2.5, floor=0.05)
    gcra.demand(bucket, high, EPOCH)
    bucket.level = 10.0
    gcra.refuse(bucket, low, EPOCH)
    return bucket, high, low
