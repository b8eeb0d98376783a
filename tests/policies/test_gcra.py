"""The bucket kernel against exact arithmetic that shares no code with it."""

from __future__ import annotations

from fractions import Fraction

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from policies.kernels import gcra
from policies.kernels.gcra import Bucket
from policies.units import NEVER, SECOND
from tests.policies.documents import Step

__all__: list[str] = []

#: An instant like those of a real clock: level arithmetic must not depend on small numbers.
EPOCH = 1_790_000_000 * SECOND

DAY = 86_400 * SECOND

#: Units a second, from one a day to a million a second.
RATES = (
    Fraction(1, 86_400),
    Fraction(1, 60),
    Fraction(1, 2),
    Fraction(3),
    Fraction(10),
    Fraction(30_000),
    Fraction(10**6),
)


def ask(bucket: Bucket, step: Step, now: int) -> int:
    """Ask a bucket as a store does; return 0 if admitted, else the told wait."""
    gcra.demand(bucket, step, now)
    if gcra.admits(bucket, step, now):
        gcra.take(bucket, step, now)
        return 0
    return gcra.refuse(bucket, step, now)


def per_us(rate: Fraction) -> float:
    """Return a rate in units per microsecond."""
    return float(rate) / SECOND


class Exact:
    """A token bucket in rational numbers: tokens rise at the rate up to the burst; a full one lends what is missing."""

    def __init__(self, rate: Fraction, burst: Fraction) -> None:
        self.rate, self.burst = rate / SECOND, burst
        self.tokens, self.at = burst, EPOCH

    def tokens_at(self, now: int) -> Fraction:
        """Return the tokens at `now`."""
        return min(self.burst, self.tokens + self.rate * (now - self.at))

    def spare(self, cost: Fraction, now: int) -> Fraction:
        """Return by how much `cost` is covered at `now`; negative if it is not."""
        tokens = self.tokens_at(now)
        return max(tokens - cost, tokens - self.burst)

    def spend(self, cost: Fraction, now: int) -> None:
        """Take `cost` at `now`."""
        self.tokens, self.at = self.tokens_at(now) - cost, now


@st.composite
def histories(draw: st.DrawFn) -> tuple[Fraction, float, list[tuple[int, Step]]]:
    """Draw a rate, a burst, and asks of both classes at pauses around the time that one unit takes."""
    rate = draw(st.sampled_from(RATES))
    burst = draw(st.sampled_from((1.0, 2.5, 10.0, 100.0)))
    reserve = burst * draw(st.sampled_from((0.0, 0.25, 0.9)))
    floor = draw(st.sampled_from((0.0, 0.05, 0.5, 0.95))) if reserve else 0.0
    unit = int(SECOND / rate)
    pauses = st.one_of(st.integers(0, 3), st.integers(0, unit), st.integers(0, 3 * SECOND), st.integers(0, 8 * unit))
    costs = st.sampled_from((0.25, 1.0, 1.0, 1.0, 3.0, 10.0))
    rows = draw(st.lists(st.tuples(pauses, costs, st.booleans()), min_size=1, max_size=60))
    steps = [
        (pause, Step(cost, low=True, reserve=reserve, floor=floor) if low else Step(cost, floor=floor))
        for pause, cost, low in rows
    ]
    return rate, burst, steps


@given(histories())
def test_one_class_is_the_exact_token_bucket(history: tuple[Fraction, float, list[tuple[int, Step]]]) -> None:
    """Without a second class every answer is the rational bucket's, but for what a microsecond can decide."""
    rate, burst, steps = history
    bucket, exact, now = Bucket(per_us(rate), burst, EPOCH), Exact(rate, Fraction(burst)), EPOCH
    for pause, step in steps:
        now += pause
        cost = Fraction(step.cost)
        admitted = ask(bucket, Step(step.cost), now) == 0
        spare = exact.spare(cost, now)
        if abs(spare) > rate / SECOND + Fraction(1, 10**9):
            assert admitted == (spare >= 0)
        if admitted:
            exact.spend(cost, now)


@given(histories())
def test_no_interval_admits_more_than_burst_and_rate(history: tuple[Fraction, float, list[tuple[int, Step]]]) -> None:
    """Over any interval of length t, whatever the classes, at most max(burst, dearest cost) + rate x t is admitted."""
    rate, burst, steps = history
    bucket, now = Bucket(per_us(rate), burst, EPOCH), EPOCH
    admitted: list[tuple[int, Fraction]] = []
    for pause, step in steps:
        now += pause
        if ask(bucket, step, now) == 0:
            admitted.append((now, Fraction(step.cost)))
    dearest = max((cost for _, cost in admitted), default=Fraction(0))
    for first, (start, _) in enumerate(admitted):
        total = Fraction(0)
        for end, cost in admitted[first:]:
            total += cost
            assert total <= max(Fraction(burst), dearest) + rate / SECOND * (end - start + 1) + Fraction(1, 10**6)


@given(histories(), st.booleans(), st.sampled_from((0.25, 1.0, 3.0, 10.0)))
def test_wait_is_exact(history: tuple[Fraction, float, list[tuple[int, Step]]], low: bool, cost: float) -> None:
    """Refused now means: refused until one microsecond before the told wait is over, admitted when it is."""
    rate, burst, steps = history
    bucket, now = Bucket(per_us(rate), burst, EPOCH), EPOCH
    for pause, step in steps:
        now += pause
        ask(bucket, step, now)
    like = next((step for _, step in steps if step.low), Step())
    step = Step(cost, low=True, reserve=like.reserve, floor=like.floor) if low else Step(cost, floor=like.floor)
    wait = ask(bucket, step, now)
    assume(wait > 0)
    assert not gcra.admits(bucket, step, now)
    assert not gcra.admits(bucket, step, now + wait - 1)
    assert gcra.admits(bucket, step, now + wait)
    assert not any(gcra.admits(bucket, step, now + wait * part // 64) for part in range(64))


@given(histories())
def test_wait_is_the_first_chance(history: tuple[Fraction, float, list[tuple[int, Step]]]) -> None:
    """With both classes at play there is no earlier admission than the told one: every microsecond was looked at."""
    _, burst, steps = history
    # A unit takes 20 us; the mark of a high ask still lasts a second, so the horizon is short of it.
    bucket, now = Bucket(0.05, burst, EPOCH), EPOCH
    for pause, step in steps:
        now += pause % 40
        wait = ask(bucket, step, now)
        for instant in range(now, now + min(wait, 400)):
            assert not gcra.admits(bucket, step, instant)


@given(histories())
def test_refusal_changes_no_level(history: tuple[Fraction, float, list[tuple[int, Step]]]) -> None:
    """What was refused leaves level and stamp exactly as they were."""
    rate, burst, steps = history
    bucket, now = Bucket(per_us(rate), burst, EPOCH), EPOCH
    for pause, step in steps:
        now += pause
        before = bucket.level, bucket.stamp
        if ask(bucket, step, now):
            assert (bucket.level, bucket.stamp) == before


@given(histories(), st.lists(st.integers(-2 * DAY, 2 * DAY), min_size=60, max_size=60))
def test_stepping_clock_mints_nothing(
    history: tuple[Fraction, float, list[tuple[int, Step]]], jumps: list[int]
) -> None:
    """However the clock steps, at most the burst and the rate over its furthest reach are admitted."""
    rate, burst, steps = history
    bucket, latest = Bucket(per_us(rate), burst, EPOCH), EPOCH
    total = dearest = Fraction(0)
    for (_, step), jump in zip(steps, jumps, strict=False):
        now = EPOCH + jump
        latest = max(latest, now)
        if ask(bucket, step, now) == 0:
            total += Fraction(step.cost)
            dearest = max(dearest, Fraction(step.cost))
    assert total <= max(Fraction(burst), dearest) + rate / SECOND * (latest - EPOCH) + Fraction(1, 1000)


def test_step_back_costs_no_tokens() -> None:
    """A clock that steps back leaves what was there, and goes on where it was once it has caught up."""
    bucket = Bucket(per_us(Fraction(10)), 20.0, EPOCH)
    for _ in range(5):
        assert ask(bucket, Step(), EPOCH) == 0
    for back in (11 * SECOND, 3600 * SECOND, 2 * DAY):
        assert gcra.level_at(bucket, EPOCH - back) == 5.0
        assert ask(bucket, Step(), EPOCH - back) == 0
        bucket.level -= 1.0
    assert gcra.level_at(bucket, EPOCH + SECOND // 2) == 0.0


@pytest.mark.parametrize("rate", RATES, ids=str)
def test_rate_holds_within_a_tenth_of_a_percent(rate: Fraction) -> None:
    """A caller that comes back exactly as told gets the rate, from 1/d to 1,000,000/s: no remainder is lost."""
    bucket, now, rounds = Bucket(per_us(rate), 10.0, EPOCH), EPOCH, 2000
    for _ in range(10):
        ask(bucket, Step(), now)
    for _ in range(rounds):
        now += ask(bucket, Step(), now)
        assert ask(bucket, Step(), now) == 0
    assert float(Fraction(now - EPOCH, SECOND) * rate) == pytest.approx(rounds, rel=1e-3)


@pytest.mark.parametrize(
    ("rate", "burst", "cost", "seconds"),
    [
        (10, 20.0, 1.0, 0),
        (10, 20.0, 20.0, 0),
        (10, 20.0, 50.0, 0),
    ],
)
def test_full_bucket_admits_any_cost(rate: int, burst: float, cost: float, seconds: int) -> None:
    """A full bucket admits any cost; what is missing is a debt that is paid before the next."""
    bucket = Bucket(per_us(Fraction(rate)), burst, EPOCH)
    assert ask(bucket, Step(cost), EPOCH + seconds) == 0
    assert ask(bucket, Step(), EPOCH) == pytest.approx(max(0.0, (cost + 1 - burst) / rate * SECOND), abs=1)


def test_zero_rate_admits_nothing_ever() -> None:
    """`0/s` refuses everything, now and for ever."""
    bucket = Bucket(0.0, 10.0, EPOCH)
    assert ask(bucket, Step(), EPOCH) == NEVER
    assert not gcra.admits(bucket, Step(), EPOCH + 10**6 * DAY)
    gcra.give_back(bucket, Step(), EPOCH)
    assert ask(bucket, Step(), EPOCH + DAY) == NEVER


@given(histories())
def test_give_back_is_as_if_never_taken(history: tuple[Fraction, float, list[tuple[int, Step]]]) -> None:
    """A charge given back leaves the level it would have had, and never more than full."""
    rate, burst, steps = history
    bucket, twin, now = Bucket(per_us(rate), burst, EPOCH), Bucket(per_us(rate), burst, EPOCH), EPOCH
    for pause, step in steps:
        now += pause
        gcra.take(bucket, step, now)
        gcra.give_back(bucket, step, now + pause)
        now += pause
        assert gcra.level_at(bucket, now) == pytest.approx(gcra.level_at(twin, now), abs=1e-9)


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


@pytest.mark.parametrize(
    ("before", "level", "after", "expected"),
    [
        ((10.0, 20.0), 0.0, (100.0, 200.0), 0.0),  # full stays full
        ((10.0, 20.0), 20.0, (100.0, 200.0), 200.0),  # empty stays empty
        ((10.0, 20.0), 20.0, (1.0, 2.0), 2.0),
        ((10.0, 20.0), 30.0, (10.0, 40.0), 60.0),  # and a debt stays one
        ((10.0, 0.0), 5.0, (10.0, 40.0), 5.0),  # without a burst there is nothing to scale by
        ((0.0, 10.0), 7.0, (5.0, 20.0), 20.0),  # what had no rate starts empty
        ((10.0, 10.0), 7.0, (0.0, 10.0), float("inf")),
    ],
)
def test_resize_scales_the_level(
    before: tuple[float, float], level: float, after: tuple[float, float], expected: float
) -> None:
    """A change of burst keeps the part that is spent."""
    bucket = Bucket(before[0] / SECOND, before[1], EPOCH)
    bucket.level = level
    gcra.resize(bucket, after[0] / SECOND, after[1], EPOCH)
    assert (bucket.level, bucket.rate_us, bucket.burst) == (expected, after[0] / SECOND, after[1])


def test_resize_settles_at_the_old_rate_first() -> None:
    """What was earned before a change of rate was earned at the old one."""
    bucket = Bucket(10.0 / SECOND, 20.0, EPOCH)
    bucket.level = 20.0
    gcra.resize(bucket, 1000.0 / SECOND, 20.0, EPOCH + SECOND)
    assert gcra.level_at(bucket, EPOCH + SECOND) == pytest.approx(10.0)
    gcra.resize(bucket, 1.0 / SECOND, 20.0, EPOCH)
    assert bucket.stamp == EPOCH + SECOND


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
    assert gcra.room(bucket, low, EPOCH) == 6.5
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
