"""A number from the past, as a table: what it is, what held it, and where it came from."""

from __future__ import annotations

from typing import Any

import pytest

from policies.policy import Mode
from policies.sizing_past import Day, Hour, Peak, default_burst, same_day, summarise
from tests.policies.documents import quota
from tests.policies.pasts import NANO, SIZING, TODAY, calm, in_force, sized

__all__: list[str] = []

MONTH = range(1, 31)
PEAK = Peak(500, 5, 500)


@pytest.mark.parametrize(
    ("what", "days", "had", "expected", "terms"),
    [
        ("peak times multiplier", calm(40, MONTH), 80, 80, ["peak", "multiplier"]),
        ("a step up is bounded by a day", calm(100, [1]), 80, 100, ["peak", "multiplier", "growth per day"]),
        ("so is a step down", calm(10, MONTH), 80, 72, ["peak", "multiplier", "shrink per day"]),
        ("never below the floor", calm(1, MONTH), 5, 5, ["peak", "multiplier", "shrink per day", "floor"]),
        ("never above the ceiling", calm(400, MONTH), 490, 500, ["peak", "multiplier", "growth per day", "ceiling"]),
        ("a window old enough is forgotten", calm(40, [40]), 80, 72, ["idle", "shrink per day"]),
        ("the last day of the window is not", calm(40, [30]), 80, 80, ["peak", "multiplier"]),
        ("nor the same day of last month", calm(40, [31]), 80, 80, ["peak", "multiplier"]),
        ("nor of the month before", calm(40, [59]), 80, 80, ["peak", "multiplier"]),
        ("today does not count", calm(400, [0]), 80, 72, ["idle", "shrink per day"]),
        ("idle, it is what it started with", [], 21, 20, ["idle"]),
        ("idle, it never rises", [], 15, 15, ["idle"]),
    ],
)
def test_the_number(what: str, days: list[Day], had: float, expected: float, terms: list[str]) -> None:
    """Peak times multiplier, held in by what a day allows, by floor and ceiling."""
    found = sized(days, in_force(had))
    assert float(found.quota.rate.per_second) == expected
    assert [term.name for term in found.terms] == terms
    assert sum(term.delta for term in found.terms) == expected * NANO
    assert (found.mode, found.provenance) == (Mode.ENFORCE, "sized")


@pytest.mark.parametrize(
    ("taught", "expected"),
    [
        (lambda n: Day(n, held=PEAK, held_reached=PEAK), 80),  # holds
        (lambda n: Day(n, held=Peak(38, 5, 40), held_reached=PEAK), 80),
        (lambda n: Day(n, held=Peak(38, 5, 40), held_reached=Peak(38, 5, 40)), 76),  # and no higher than its use
        (lambda n: Day(n, reached=PEAK, sustained=Peak(40, 5, 40)), 100),  # on 30 days it is a habit
    ],
)
def test_what_is_censored_holds(taught: Any, expected: float) -> None:
    """Usage in a censored hour keeps the number where it is; it never raises it."""
    found = sized([taught(TODAY - ago) for ago in MONTH], in_force(80))
    assert float(found.quota.rate.per_second) == expected


@pytest.mark.parametrize(("times", "expected"), [(1, 80), (2, 80), (3, 100)])
def test_what_is_reached_on_three_days_is_a_peak(times: int, expected: float) -> None:
    """A nightly job of ten seconds is followed; what happened once or twice is not."""
    burst = [Day(TODAY - ago, reached=PEAK, offered=500) for ago in range(2, 2 + times)]
    found = sized(calm(40, [1, *range(5, 31)]) + burst, in_force(80))
    assert float(found.quota.rate.per_second) == expected
    assert found.peak_rule == ("reached on three days" if times == 3 else "sustained")


def test_growth_over_a_month() -> None:
    """It is three times the highest number in force 30 or more days ago, or what a younger key started with."""
    steps = in_force(10, [60]) + in_force(30, [40]) + in_force(20, [35]) + in_force(88, [3])
    assert float(sized(calm(300, MONTH), steps).quota.rate.per_second) == 90
    young = sized(calm(300, range(1, 11)), in_force(55, [1]), age=10)
    assert float(young.quota.rate.per_second) == 60
    assert young.flagged
    assert young.grown == 3
    assert not sized(calm(40, MONTH), in_force(80)).flagged


def test_a_month_that_got_smaller_shrinks_by_the_day() -> None:
    """The cap over a month never takes away more than a day may."""
    found = sized(calm(300, MONTH), in_force(10, [60]) + in_force(100, [3]))
    assert float(found.quota.rate.per_second) == 90


def test_it_is_learnt_first() -> None:
    """Until `learn` of history a key has what it started with, in shadow; what comes next is worked out already."""
    found = sized(calm(12, range(1, 7)), in_force(22, [1]), age=6)
    assert (found.mode, found.provenance, float(found.quota.rate.per_second)) == (Mode.SHADOW, "initial", 20)
    assert float(found.next_quota.rate.per_second) == 24
    assert sized(calm(12, range(1, 8)), in_force(22, [1]), age=7).mode is Mode.ENFORCE
    assert sized(calm(12, [1]), age=0, learn_us=0).mode is Mode.ENFORCE


def test_a_new_key_starts_with_what_its_tenant_has() -> None:
    """Enforced if that is, and growth counts from there."""
    found = sized(calm(500, [1]), age=1, start=quota(60, 70), enforced=True)
    assert (found.mode, found.provenance, float(found.quota.rate.per_second)) == (Mode.ENFORCE, "inherited", 60)
    assert float(found.next_quota.rate.per_second) == 75


def test_the_floor_gives_way_to_the_ceiling() -> None:
    """Where the ceiling is below the floor, it holds."""
    assert float(sized(calm(40, MONTH), in_force(80), backstop=quota(6, 6)).quota.rate.per_second) == 3


@pytest.mark.parametrize(
    ("had", "peak", "expected"),
    [(33.3333, 40, "41.66"), (72, 1, "64.8"), (58.32, 1, "52.49"), (0.0777777, 0.0001, "0.07")],
)
def test_numbers_are_short(had: float, peak: float, expected: str) -> None:
    """Four digits, so that RateLimit-Policy can be read; never further down than a day allows."""
    found = sized(calm(peak, MONTH), in_force(had), floor=quota(0, 1))
    assert f"{float(found.quota.rate.per_second):.9g}" == expected or found.quota.rate.per_second * NANO % 10**3 == 0


@pytest.mark.parametrize(
    ("second", "had", "expected"),
    [(60, 120, 120), (90, 120, 150), (500, 400, 500), (1, 80, 80), (1, 200, 180)],
)
def test_burst(second: float, had: float, expected: float) -> None:
    """It is the best second times the multiplier, bounded as the rate is, and at least a second of the rate."""
    found = sized(calm(40, MONTH, second), in_force(80, burst=had))
    assert found.quota.burst == expected


def test_default_burst() -> None:
    """A second of the rate, one unit, and the dearest route, whichever is the most."""
    assert [default_burst(quota(rate).rate.per_second, dearest) for rate, dearest in ((8, 1), (0, 1), (2, 5))] == [
        8,
        1,
        5,
    ]


@pytest.mark.parametrize(("own", "starved"), [([1, 2], False), ([1, 2, 7], True), ([1, 2, 8], False)])
def test_starved(own: list[int], starved: bool) -> None:
    """A key limited on three of the last seven days is starved, and there is a proposal: what it asks for."""
    days = [Day(TODAY - ago, held=PEAK, held_reached=PEAK, own=True, offered=123.4) for ago in own]
    found = sized(days, in_force(80))
    assert found.starved is starved
    assert (found.proposal is None) is not starved
    if found.proposal is not None:
        assert float(found.proposal.rate.per_second) == 130
        assert found.proposal.burst == 130
    assert float(found.quota.rate.per_second) == 80


@pytest.mark.parametrize(
    ("day", "today", "expected"),
    [
        (20_513, 20_544, True),  # 1 March, 1 April
        (20_485, 20_544, True),  # 1 February
        (20_454, 20_544, False),  # 1 January: too long ago
        (20_512, 20_543, True),  # 28 February, 31 March: both are the last
        (20_500, 20_544, False),
        (20_514, 20_544, True),  # 2 March: a day beside it
        (19_782, 19_813, True),  # 29 February and 31 March 2024
    ],
)
def test_same_day_of_the_month(day: int, today: int, expected: bool) -> None:
    """The same day of an earlier month, or one beside it; the last day is the last, however long the month."""
    assert same_day(day, today) is expected


def test_a_day_is_the_best_of_its_hours() -> None:
    """Sustained is the sixth slot of an hour, reached the first; the best second leaves two freaks out."""
    slots = tuple((float(rate), float(rate * 2)) for rate in (90, 70, 60, 50, 45, 40, 30, 20))
    hours = [
        Hour(1, slots, offered=95),
        Hour(2, slots[:5], offered=90),
        Hour(3, ((200.0, 900.0),) * 8, censored=3, offered=800, own=True),
        Hour(4, (), offered=5),
    ]
    found = summarise(7, hours)
    assert found == Day(
        7,
        sustained=Peak(40, 1, 120),
        reached=Peak(90, 2, 180),
        held=Peak(200, 3, 900),
        held_reached=Peak(200, 3, 900),
        censored=3,
        own=True,
        offered=800,
    )
    assert summarise(7, []) == Day(7)


def test_the_defaults_are_those_of_the_design() -> None:
    """So that the tables here speak of what is shipped."""
    assert (SIZING.multiplier, SIZING.max_growth_per_day, SIZING.max_growth_per_month) == (2.0, 1.25, 3.0)
