"""Case 47: an attack does not become tomorrow's limit."""

from __future__ import annotations

import pytest

from loadtest.sizing.world import DAY, KeyWorld

__all__: list[str] = []

pytestmark = pytest.mark.untraced


def office(at: int, peak: float) -> float:
    """Return traffic that has a day and a night."""
    return peak if 9 <= at % DAY // 3600 < 17 else peak / 4


def test_a_flood_teaches_nothing() -> None:
    """30 days at 40/s, then ten minutes of 5,000/s, mostly refused: the bucket is at most 1.5 times the old one."""
    world = KeyWorld()
    world.run(40, lambda at, _: office(at, 40))
    before = world.rate
    flood = world.today * DAY + 12 * 3600
    world.run(3, lambda at, _: 5000.0 if flood <= at < flood + 600 else office(at, 40))
    assert before == 80
    assert world.refused[flood // DAY] > 2_000_000
    assert world.rate == before
    assert world.sized is not None
    assert world.sized.offered > 1000  # for people to read


def test_a_flood_in_shadow_is_bounded() -> None:
    """Before it is enforced nothing is refused, so nothing is censored: a day still adds no more than a quarter."""
    world = KeyWorld()
    world.run(5, lambda at, _: office(at, 20))
    had = world.steps[-1].rate
    flood = world.today * DAY + 12 * 3600
    world.run(1, lambda at, _: 5000.0 if flood <= at < flood + 600 else office(at, 20))
    assert world.steps[-1].rate <= 1.25 * had


def test_a_slow_ramp_is_followed() -> None:
    """Five days, an eighth more each day, are followed without a refusal, and the growth is told."""
    world = KeyWorld()
    world.run(40, lambda at, _: office(at, 40))
    began = world.today
    world.run(5, lambda at, _: office(at, 40 * 1.125 ** (at // DAY - began + 1)))
    assert not sum(world.refused[day] for day in range(began, world.today))
    assert world.rate > 120
    assert world.sized is not None
    assert world.sized.grown > 1.5


def test_the_ceiling_is_never_passed() -> None:
    """However long it goes on."""
    world = KeyWorld()
    world.run(200, lambda _, quota: 0.85 * quota)
    assert world.rate == 0.5 * 10_000
