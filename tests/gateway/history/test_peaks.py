"""Hours from slots: what is kept of one, and what censors it."""

from __future__ import annotations

import math
from collections.abc import Iterable

import pytest

from gateway.history.peaks import KeyPeaks, sealed_before
from policies.sizing_past import Hour

__all__: list[str] = []

#: An hour on the hour, in epoch seconds, and its number.
NINE, NUMBER = 1_774_947_600, 493_041


def hours(
    slots: Iterable[tuple[int, float]],
    refused: Iterable[int] = (),
    quota: float = math.inf,
    until: int = 3,
    *,
    own: bool = True,
) -> list[Hour]:
    """Return the hours of slots given as (seconds after nine, units); `refused` are slots that were limited."""
    peaks = KeyPeaks(10)
    turned = set(refused)
    for at, units in sorted([*slots, *((at, 0.0) for at in turned)]):
        hit = at in turned
        peaks.add(NINE + at, units, units / 5, units + hit, refused=hit, own=hit and own, quota=quota)
    return list(peaks.seal(NUMBER + until))


def test_eight_highest_are_kept() -> None:
    """In order, as rates, each with its best second."""
    (hour,) = hours([(10 * n, float(n)) for n in range(1, 20)])
    assert hour == Hour(NUMBER, tuple((n / 10, n / 5) for n in range(19, 11, -1)), 0, 1.9)


@pytest.mark.parametrize(
    ("refused", "quota", "censored", "own"),
    [([], math.inf, 0, False), ([1200], math.inf, 1, True), ([1200, 1210], math.inf, 2, True), ([], 10.0, 1, True),
     ([], 10.3, 0, False)],
)  # fmt: skip
def test_an_event_censors_the_hour(refused: list[int], quota: float, censored: int, own: bool) -> None:
    """One refusal, or one slot above 90 % of the quota, and none of the hour is free."""
    (hour,) = hours([(100, 92.0), (200, 50.0)], refused, quota)
    assert (hour.censored, hour.own) == (censored, own)
    assert hour.slots[0][0] == 9.2


def test_whose_limit_it_was_is_told_apart() -> None:
    """A refusal by somebody else's limit censors as well, and is no hunger of this key."""
    (hour,) = hours([(100, 92.0)], [1200], own=False)
    assert (hour.censored, hour.own) == (1, False)


@pytest.mark.parametrize(
    ("event", "first", "second"),
    [
        (3600 + 10, [9.0], [8.0, 7.0, 0.0]),  # just after ten: the half hour before it goes
        (3600 + 1810, [9.5, 9.0], [8.0, 7.0, 0.0]),  # after half past: too far away
        (1810, [9.5, 9.0, 0.0], [7.0]),  # and the half hour after an event
        (10, [9.5, 9.0, 0.0], [8.0, 7.0]),
    ],
)
def test_an_event_reaches_half_an_hour(event: int, first: list[float], second: list[float]) -> None:
    """A ramp to the limit across the hour teaches nothing on its way."""
    found = hours([(100, 90.0), (3500, 95.0), (3700, 80.0), (7000, 70.0)], [event])
    assert [[rate for rate, _ in hour.slots] for hour in found] == [first, second]
    assert [hour.censored for hour in found] == ([1, 0] if event < 3600 else [0, 1])


def test_what_was_asked_for_is_kept_apart() -> None:
    """The highest slot with what was refused stands beside, even where no slot counts."""
    found = hours([(3500, 95.0)], [3600])
    assert found[0] == Hour(NUMBER, (), 0, 9.5)


def test_an_hour_is_sealed_once_and_half_an_hour_late() -> None:
    """And nothing of it is left behind when the key falls silent."""
    assert sealed_before(NINE + 5399) == NUMBER
    assert sealed_before(NINE + 5400) == NUMBER + 1
    peaks = KeyPeaks(10)
    peaks.add(NINE + 3500, 5.0, 1.0, 5.0, refused=False, own=False, quota=math.inf)
    assert [len(list(peaks.seal(NUMBER + sealed))) for sealed in (0, 1, 1, 2)] == [0, 1, 0, 0]
    assert peaks.empty


def test_slots_of_another_length_are_put_together() -> None:
    """With `peak_interval` a minute, six parts are one slot."""
    peaks = KeyPeaks(60)
    for part in range(12):
        peaks.add(NINE + 10 * part, 30.0, float(part), 30.0, refused=False, own=False, quota=math.inf)
    assert list(peaks.seal(NUMBER + 1)) == [Hour(NUMBER, ((3.0, 11.0), (3.0, 5.0)), 0, 3.0)]
