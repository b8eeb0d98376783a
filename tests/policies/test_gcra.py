"""The bucket kernel against exact arithmetic that shares no code with it."""

from __future__ import annotations

from fractions import Fraction

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from policies.kernels import gcra
from policies.kernels.gcra import Bucket
from policies.units import NEVER, SECOND
from tests.policies.buckets import EPOCH, ask, per_us
from tests.policies.documents import Step

__all__: list[str] = []

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


def test_wait_finds_a_turn_of_a_microsecond() -> None:
    """The full bucket is a high ask's for the instant before the credit ripens, however short that is."""
    bucket = Bucket(0.05, 1.0, EPOCH)
    high, low = Step(0.25, floor=0.95), Step(1.0, low=True, reserve=0.25, floor=0.95)
    for now, step in ((0, high), (0, low), (1, high), (8, high), (16, high)):
        ask(bucket, step, EPOCH + now)
    assert ask(bucket, high, EPOCH + 16) == 5


@pytest.mark.parametrize("off", [0, 1, 2, 3, 10, 1_000, 900_000])
@pytest.mark.parametrize("late", [True, False])
def test_wait_is_found_from_a_guess_that_is_off(off: int, late: bool) -> None:
    """However far the first guess is off, the turn that is found is the microsecond at which the answer changes."""
    bucket, step = Bucket(1e-6, 1.0, EPOCH), Step(1.0)
    assert ask(bucket, step, EPOCH) == 0
    guess = EPOCH + SECOND + (off if late else -off)
    found = gcra._exact(bucket, step, EPOCH, guess)
    assert gcra.admits(bucket, step, found)
    assert not gcra.admits(bucket, step, found - 1)


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


@given(
    st.lists(st.tuples(st.sampled_from(RATES), st.sampled_from([0.5, 1.0, 3.0])), min_size=1, max_size=3),
    st.lists(st.tuples(st.integers(-1_000, 400_000), st.sampled_from([0.3, 1.0, 4.0])), max_size=30),
)
def test_several_at_once_are_each_by_itself(
    sizes: list[tuple[Fraction, float]], asks: list[tuple[int, float]]
) -> None:  # fmt: skip
    """What is written out for many buckets of high asks does to each what the single steps do."""
    many = tuple(Bucket(per_us(rate), burst, EPOCH) for rate, burst in sizes)
    single = tuple(Bucket(per_us(rate), burst, EPOCH) for rate, burst in sizes)
    now = EPOCH
    for pause, cost in asks:
        now += pause
        step = Step(cost)
        left: list[float] = []
        agreed = gcra.agree(many, cost, now)
        assert agreed is all(gcra.admits(bucket, step, now) for bucket in single)
        if agreed:
            gcra.take_all(many, cost, now, left)
            for bucket in single:
                gcra.demand(bucket, step, now)
                gcra.take(bucket, step, now)
            assert left == pytest.approx([bucket.burst - bucket.level for bucket in single])
            assert [bucket.high_at for bucket in many] == [now] * len(many)
        assert [(bucket.level, bucket.stamp) for bucket in many] == [(one.level, one.stamp) for one in single]


def test_several_do_not_agree_where_a_low_ask_waits() -> None:
    """What a waiting low ask is owed is looked at closely, by whoever looks at charges."""
    bucket = Bucket(1.0, 10.0, EPOCH)
    bucket.low_until = EPOCH + 1
    assert not gcra.agree((bucket,), 1.0, EPOCH)
    assert gcra.agree((bucket,), 1.0, EPOCH + 1)
