"""The origin's capacity: it slows above it, then fails, then does less."""

from __future__ import annotations

import pytest

from gateway.demo.origin import Capacity
from policies.units import SECOND, Micros

__all__: list[str] = []

BASE = 8_000


def offered(per_second: float, capacity: Capacity, seconds: float, start: Micros = 0) -> list[Micros | None]:
    """Return the answers to requests that come evenly."""
    count = int(per_second * seconds)
    return [capacity.offer(start + int(n * SECOND / per_second)) for n in range(count)]


@pytest.mark.parametrize("part", (0.1, 0.5, 0.99, 1.0))
def test_below_its_capacity_it_answers_in_its_base_time(part: float) -> None:
    """Nothing queues, nothing fails."""
    answers = offered(100 * part, Capacity(100, BASE), 10)
    assert all(answer is not None and answer <= BASE + 1000 for answer in answers)


def test_above_its_capacity_it_slows_first() -> None:
    """Each answer waits for those before it, up to its patience; until then all are answered."""
    answers = offered(125, Capacity(100, BASE, 400_000), 1)
    assert None not in answers
    times = [answer for answer in answers if answer is not None]
    assert times == sorted(times)
    assert times[0] == BASE
    assert 240_000 < times[-1] < 260_000


@pytest.mark.parametrize(("overload", "least", "most"), ((1.25, 0.95, 0.99), (2.0, 0.85, 0.92), (10.0, 0.0, 0.1)))
def test_then_it_fails_and_does_less_the_more_is_asked(overload: float, least: float, most: float) -> None:
    """Failing is work too, so what is served falls as the overload grows."""
    capacity = Capacity(100, BASE)
    offered(100 * overload, capacity, 10)
    answers = offered(100 * overload, capacity, 10, start=10 * SECOND)
    assert least <= sum(answer is not None for answer in answers) / 1000 <= most


def test_it_recovers_when_it_is_left_alone() -> None:
    """Its queue is bounded, so a second after an overload it is as good as new."""
    capacity = Capacity(100, BASE)
    offered(5000, capacity, 10)
    assert capacity.offer(11 * SECOND) == BASE


def test_its_capacity_can_be_changed() -> None:
    """The demo tells it once it has measured the machine."""
    capacity = Capacity(1)
    capacity.per_second = 1000
    assert None not in offered(900, capacity, 2)
