"""Pasts of keys, in as few words as a row of a table."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from hypothesis import strategies as st

from policies.policy import Quota, Sized, Sizing
from policies.sizing_past import Day, Past, Peak, Step, size
from tests.policies.documents import policy_set, quota

__all__ = ["BACKSTOP", "NANO", "SIZING", "TODAY", "calm", "days", "in_force", "life", "sized"]

SIZING: Sizing = policy_set().sizing
BACKSTOP = quota(1000, 1000)
NANO = 10**9
#: 2026-04-01.
TODAY = 20_544


def calm(rate: float, ago: Iterable[int], second: float | None = None) -> list[Day]:
    """Return uncensored days that sustained `rate`, so many days ago."""
    peak = Peak(rate, 5, rate if second is None else second)
    return [Day(TODAY - each, sustained=peak, reached=peak, offered=rate) for each in ago]


def in_force(rate: float, ago: Iterable[int] = (90,), burst: float | None = None) -> list[Step]:
    """Return that `rate` has been in force since so many days ago."""
    return [Step(TODAY - each, int(rate * NANO), rate if burst is None else burst) for each in ago]


def sized(days: Iterable[Day] = (), steps: Iterable[Step] = (), age: int = 100, **changes: Any) -> Sized:
    """Return what a past comes to today. `changes` go to the sizing, `start`, `enforced`, `backstop` elsewhere."""
    start: Quota | None = changes.pop("start", None)
    enforced = changes.pop("enforced", False)
    backstop = changes.pop("backstop", BACKSTOP)
    past = Past(list(days), list(steps), TODAY - age, start, enforced)
    return size(replace(SIZING, **changes), backstop, past, TODAY)


def _peaks() -> st.SearchStrategy[Peak]:
    rate = st.one_of(st.just(0.0), st.floats(0.01, 5000))
    return st.builds(lambda units, best: Peak(units, 7, units * best), rate, st.floats(1, 10))


def days(number: int, *, free: bool = True) -> st.SearchStrategy[Day]:
    """Return what a day may have taught; without `free`, a day on which every hour was censored."""
    none = st.just(Peak())
    return st.builds(
        Day,
        st.just(number),
        sustained=_peaks() if free else none,
        reached=_peaks() if free else none,
        held=_peaks(),
        held_reached=_peaks(),
        censored=st.integers(0, 360),
        own=st.booleans(),
        offered=st.floats(0, 10_000),
    )


@st.composite
def life(draw: st.DrawFn, length: int = 70) -> list[Day]:
    """Return some days of a tenant, most of them alike, some strange."""
    usual = draw(_peaks())
    strange = draw(st.dictionaries(st.integers(0, length - 1), days(0), max_size=12))
    plain = Day(0, sustained=usual, reached=usual, offered=usual.rate)
    return [replace(strange.get(each, plain), number=TODAY + each) for each in range(length)]
