"""The short way of a batch ask decides as the long way does."""

from __future__ import annotations

from copy import deepcopy

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from policies.kernels.fairshare import Shares
from policies.units import SECOND, Micros
from tests.clock import EPOCH
from tests.policies.shares import Ask, service

__all__: list[str] = []

HIGH, LOW, DEAR = Ask("mixed"), Ask("mixed", cls=1), Ask("mixed", cls=1, cost=7.0)
OTHER = Ask("other")

steps = st.lists(
    st.tuples(
        st.sampled_from([LOW, LOW, LOW, DEAR, HIGH, OTHER]),
        st.integers(1, 60),
        st.sampled_from([0, 1_000, 20_000, 300_000, 1_100_000, 5_000_000]),
    ),
    min_size=1,
    max_size=12,
)


def outcome(shares: Shares) -> tuple[float, ...]:
    """Return what an ask of the mixed tenant leaves behind, but for how its demand was counted."""
    member = shares._members["mixed"]
    taken = shares.over, shares._arrival, member.arrival
    if (low := member.low) is None:
        return taken
    return *taken, low.brim, low.due(shares._line.virtual_base, shares._line.solved_us)


def long_way(shares: Shares, ask: Ask, now: Micros) -> object:
    """Take without ever looking for the short way."""
    return shares._take_tracked(shares._roster.meet(ask, now), ask, now)


@pytest.mark.interpreted
@pytest.mark.untraced
@settings(max_examples=60, deadline=None)
@given(steps=steps, rate=st.sampled_from([20.0, 100.0, 500.0]))
def test_short_way_decides_as_the_long_way_does(steps: list[tuple[Ask, int, int]], rate: float) -> None:
    """From any state of bucket, reserve, floor and debt, a batch ask comes out the same, and so does what it leaves."""
    shares, now = service(rate, 10.0), EPOCH
    for ask, times, gap in steps:
        now += gap
        shares.take(LOW, now)
        for _ in range(times):
            now += 500
            shares.tick(now)
            if ask.cls:
                twin = deepcopy(shares)
                told, said = long_way(twin, ask, now), shares.take(ask, now)
                assert told == said
                assert outcome(twin) == pytest.approx(outcome(shares), rel=1e-9, abs=1e-9)
            else:
                shares.take(ask, now)


def test_batch_ask_of_a_full_bucket_goes_the_short_way() -> None:
    """Its demand is counted with that of the light ones, until an interactive ask is made; a second later again."""
    shares = service()
    line = shares._line
    shares.take(LOW, EPOCH)
    shares.take(LOW, EPOCH + 1)
    assert line.light == 2.0
    shares.take(HIGH, EPOCH + 2)
    shares.take(LOW, EPOCH + 3)
    assert (line.light, len(line.fresh)) == (2.0, 1)
    shares.tick(EPOCH + SECOND)
    shares.take(LOW, EPOCH + SECOND + 3)
    assert line.light == 1.0
