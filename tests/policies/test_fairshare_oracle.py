"""The fair backstop against exact max-min, over random demand; and without sharing, which must come out unfair."""

from __future__ import annotations

from fractions import Fraction
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from policies.kernels.fairshare import Shares
from policies.kernels.plain import PlainBackstop
from policies.units import SECOND
from tests.clock import EPOCH
from tests.oracle import exact_maxmin
from tests.policies.patterns import CLASSES, WINDOW, Pattern, Window, play

__all__: list[str] = []

pytestmark = pytest.mark.untraced

#: How far a tenant may be from its exact part: a part of it, and so many bursts of its share bucket.
TOLERANCE = Fraction(1, 20)
BURSTS = 2


def astray(pattern: Pattern, window: Window) -> float:
    """Return by how many share bursts, beyond 5 %, the worst tenant misses what exact max-min gives it.

    What is shared out is what was handed out in the window. A tenant's demand is what it offered, as far as its own
    bucket, as it stood, let that through. The few tokens that are stored when the window begins are nobody's share:
    whoever asks first may take them.
    """
    tenants = pattern.tenants
    seconds = WINDOW * SECOND
    demands = [
        min(offered, tokens + tenant.own_rate_us * seconds)
        for tenant, offered, tokens in zip(tenants, window.offered, window.tokens, strict=True)
    ]
    weights = [tenant.weight for tenant in tenants]
    parts = exact_maxmin(demands, weights, sum(window.taken))
    level = max(float(part) / weight for part, weight in zip(parts, weights, strict=True)) / WINDOW
    return max(
        (max(taken - float(part) - window.stored, float(part) - taken) - float(TOLERANCE * part))
        / max(20.0, 0.25 * level * weight)
        for taken, part, weight in zip(window.taken, parts, weights, strict=True)
    )


def fair_windows(pattern: Pattern) -> list[Window]:
    """Return what the fair backstop made of a pattern, once the stored burst is spent."""
    shares = Shares(pattern.capacity / SECOND, pattern.burst, CLASSES, 1.0, EPOCH)
    windows = play(pattern, shares, lambda now: shares.view(now).tokens, EPOCH)
    return [window for window in windows if window.stored <= 0.06 * pattern.capacity]


@settings(max_examples=1_000, derandomize=True, database=None)
@given(
    seed=st.integers(0, 2**32 - 1),
    tenants=st.sampled_from((2, 3, 5, 8, 12, 20)),
    capacity=st.sampled_from((300.0, 500.0, 1_000.0)),
    seconds=st.sampled_from((0.1, 0.5, 1.0, 2.0)),
    changes=st.lists(st.floats(0.3, 1.8), max_size=2, unique=True),
)
def test_shares_are_exact_max_min(
    seed: int, tenants: int, capacity: float, seconds: float, changes: list[float]
) -> None:
    """Over any 2 s that start 1 s after demand last changed, nobody is off by more than 5 % plus two share bursts."""
    pattern = Pattern.draw(Random(seed), tenants, capacity, seconds, [0.0, *sorted(changes)])
    for window in fair_windows(pattern):
        assert astray(pattern, window) <= BURSTS


def test_one_bucket_for_all_is_not() -> None:
    """The control: with one plain bucket the same check fails for at least a fifth of the patterns."""
    failed = 0
    for seed in range(40):
        random = Random(seed)
        pattern = Pattern.draw(random, random.choice((2, 5, 8, 20)), 1_000.0, 0.5, [0.0])
        plain = PlainBackstop(pattern.capacity / SECOND, pattern.burst, CLASSES, 1.0, EPOCH)
        failed += any(astray(pattern, window) > BURSTS for window in play(pattern, plain, lambda _: 0.0, EPOCH))
    assert failed >= 8


@pytest.mark.parametrize(
    ("demands", "weights", "supply", "parts"),
    [
        ((5, 5, 5), (1, 1, 1), 9, (3, 3, 3)),
        ((1, 5, 5), (1, 1, 1), 9, (1, 4, 4)),
        ((1, 5, 5), (1, 1, 3), 9, (1, 3, 5)),
        ((1, 2, 3), (1, 1, 1), 9, (1, 2, 3)),
        ((0, 7), (1, 2), 6, (0, 6)),
    ],
)
def test_oracle_is_right_where_anybody_can_see_it(
    demands: tuple[int, ...], weights: tuple[int, ...], supply: int, parts: tuple[int, ...]
) -> None:
    """Max-min of a few numbers, by hand."""
    assert exact_maxmin(demands, weights, supply) == [Fraction(part) for part in parts]
