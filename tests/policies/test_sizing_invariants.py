"""What holds of every sized quota, whatever a tenant did: lives of thousands of synthetic tenants, day by day."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from policies.policy import Sized
from policies.sizing_past import Day, Past, Step, size
from tests.policies.documents import quota
from tests.policies.pasts import BACKSTOP, NANO, SIZING, TODAY, days, life

__all__: list[str] = []

START = quota(20, 20)
#: Four digits: a number may be off by so much.
ROUNDING = 1.001


def lived(taught: Sequence[Day], start: float = 20.0) -> list[Sized]:
    """Return the number of each day of a life."""
    steps: list[Step] = []
    found = []
    for each in range(1, len(taught) + 1):
        past = Past(taught[:each], steps, TODAY, quota(start, start))
        one = size(SIZING, BACKSTOP, past, TODAY + each)
        steps.append(Step(TODAY + each, sum(term.delta for term in one.terms), one.next_quota.burst))
        found.append(one)
    return found


def rate(one: Sized) -> float:
    """Return the number that a past comes to."""
    return float(one.next_quota.rate.per_second)


@pytest.mark.untraced
@given(life(), st.floats(1, 400))
def test_every_day_is_bounded(taught: list[Day], start: float) -> None:
    """At most x 1.25 a day up and x 0.9 down, at most x 3 in 30 days, between floor and ceiling, terms adding up."""
    numbers = lived(taught, start)
    rates = [start, *map(rate, numbers)]
    for before, after in pairwise(rates):
        assert after <= max(before * 1.25 * ROUNDING, 5.0)
        assert after >= min(before * 0.9 / ROUNDING, 500.0)
        assert 5.0 <= after <= 500.0
    for index, one in enumerate(numbers):
        highest = max(rates[: max(1, index + 1 - 29)])
        assert rate(one) <= max(highest * 3, rates[index]) * ROUNDING or rate(one) == 5.0
        assert sum(term.delta for term in one.terms) == one.next_quota.rate.per_second * NANO


@given(st.lists(days(0, free=False), min_size=1, max_size=40), st.floats(5, 500))
def test_censored_samples_never_raise(taught: list[Day], start: float) -> None:
    """However much was used or asked for in censored hours, no number rises by it."""
    numbers = lived([replace(day, number=TODAY + each) for each, day in enumerate(taught)], start)
    rates = [start, *map(rate, numbers)]
    assert all(after <= before * ROUNDING for before, after in pairwise(rates))


@pytest.mark.untraced
@given(life(40), st.integers(0, 39), st.data())
def test_one_day_moves_a_number_by_a_day_at_most(taught: list[Day], when: int, data: st.DataObject) -> None:
    """Whatever happens on one day, the number of the next is within what a day allows of what it would have been."""
    other = list(taught)
    other[when] = data.draw(days(TODAY + when))
    usual, strange = lived(taught[: when + 1])[-1], lived(other[: when + 1])[-1]
    assert 0.9 / 1.25 / ROUNDING <= rate(strange) / rate(usual) <= 1.25 / 0.9 * ROUNDING


@settings(max_examples=50)
@given(life(35), st.floats(0, 1e6))
def test_what_was_offered_teaches_nothing(taught: list[Day], offered: float) -> None:
    """Numbers are the same whatever was asked for and refused."""
    louder = [replace(day, offered=day.offered + offered) for day in taught]
    assert list(map(rate, lived(louder))) == list(map(rate, lived(taught)))
