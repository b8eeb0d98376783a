"""Class inside the share, and ceilings of classes over the whole service."""

from __future__ import annotations

import pytest

from policies.policy import ClassRule
from policies.units import NEVER, SECOND
from tests.clock import EPOCH
from tests.policies.shares import CLASSES, Ask, drain, press, service, share_of

__all__: list[str] = []

HIGH, LOW = Ask("mixed"), Ask("mixed", cls=1)
OTHERS = tuple(Ask(f"other-{index}") for index in range(4))


def test_low_asks_leave_the_reserve_while_high_ones_have_demand() -> None:
    """A quarter of the bucket is not for batch calls within a second of an interactive one; afterwards it is."""
    shares = service(500.0, 10.0)
    press(shares, OTHERS, 0.0, 2.0, 500.0)
    now = EPOCH + 2 * SECOND
    assert shares.take(LOW, now) is None
    assert shares.take(HIGH, now) is None
    drain(shares, LOW, now)
    share = share_of(shares, "mixed", now)
    assert 0.25 <= share.tokens / share.burst <= 0.25 + 1 / share.burst
    assert shares.take(HIGH, now) is None
    press(shares, OTHERS, 2.0, 4.0, 500.0)
    assert drain(shares, LOW, EPOCH + 4 * SECOND) >= 20


def test_low_alone_uses_all_of_the_share() -> None:
    """Beside other tenants, batch calls alone get what interactive ones would."""
    shares = service(500.0, 10.0)
    press(shares, (*OTHERS, LOW), 0.0, 3.0, 300.0)
    taken = press(shares, (*OTHERS, LOW), 3.0, 13.0, 300.0)
    assert taken[LOW] / 10 == pytest.approx(100, rel=0.05)


@pytest.mark.parametrize("cost", [1.0, 5.0])
def test_low_keeps_its_floor_beside_saturating_high(cost: float) -> None:
    """Interactive calls that would take everything leave batch calls 5 % of the share, whatever those cost."""
    shares = service(500.0, 10.0)
    low = Ask("mixed", cls=1, cost=cost)
    press(shares, (*OTHERS, HIGH, low), 0.0, 5.0, 300.0)
    taken = press(shares, (*OTHERS, HIGH, low), 5.0, 25.0, 300.0)
    assert taken[low] * cost / 20 == pytest.approx(5.0, rel=0.15)
    assert (taken[HIGH] + taken[low] * cost) / 20 == pytest.approx(100, rel=0.05)


def test_floor_is_forgotten_when_nobody_waits_for_it() -> None:
    """Once no batch call is to come back, interactive ones have the whole share again."""
    shares = service(500.0, 10.0)
    press(shares, (*OTHERS, HIGH, LOW), 0.0, 5.0, 300.0)
    press(shares, (*OTHERS, HIGH), 5.0, 8.0, 300.0)
    taken = press(shares, (*OTHERS, HIGH), 8.0, 18.0, 300.0)
    assert taken[HIGH] / 10 == pytest.approx(100, rel=0.03)


def test_class_without_reserve_keeps_no_floor() -> None:
    """With reserve 0 the classes compete as equals, and nothing is kept for anybody."""
    shares = service(500.0, 10.0, (ClassRule(0), ClassRule(1, reserve=0.0, floor=0.05)))
    press(shares, (*OTHERS, HIGH, LOW), 0.0, 3.0, 300.0)
    taken = press(shares, (*OTHERS, LOW, HIGH), 3.0, 13.0, 300.0)
    assert taken[HIGH] < taken[LOW]


def test_reserve_without_floor_may_starve_low_asks() -> None:
    """A floor of 0 is no floor: interactive calls that take everything leave nothing."""
    shares = service(500.0, 10.0, (ClassRule(0), ClassRule(1, reserve=0.25, floor=0.0)))
    press(shares, (*OTHERS, HIGH, LOW), 0.0, 3.0, 300.0)
    assert press(shares, (*OTHERS, HIGH, LOW), 3.0, 8.0, 300.0)[LOW] <= 2


def test_high_asks_that_fit_never_meet_the_floor() -> None:
    """A batch call that was refused long ago takes nothing from interactive ones that find the bucket full."""
    shares = service(500.0, 10.0)
    press(shares, OTHERS, 0.0, 2.0, 500.0)
    shares.take(HIGH, EPOCH + 2 * SECOND)
    drain(shares, LOW, EPOCH + 2 * SECOND)
    press(shares, OTHERS, 2.0, 4.0, 500.0)
    assert drain(shares, HIGH, EPOCH + 4 * SECOND) >= 20


def test_class_sits_below_the_tenant() -> None:
    """A tenant that calls everything interactive gets no more than one that calls half of it batch."""
    shares = service(500.0, 50.0)
    greedy = Ask("greedy")
    asks = (*OTHERS, HIGH, LOW, greedy)
    press(shares, asks, 0.0, 3.0, 300.0)
    taken = press(shares, asks, 3.0, 13.0, 300.0)
    assert (taken[HIGH] + taken[LOW]) / taken[greedy] == pytest.approx(1.0, abs=0.05)


def test_ceiling_bounds_a_class_over_the_whole_service() -> None:
    """With a ceiling of 0.4, batch calls of all tenants get 40 % and are refused by `class`; the rest is for others."""
    shares = service(100.0, 10.0, (CLASSES[0], ClassRule(1, 0.25, 0.05, ceiling=0.4)))
    lows = tuple(Ask(f"low-{index}", cls=1) for index in range(4))
    press(shares, lows, 0.0, 3.0, 100.0)
    taken = press(shares, lows, 3.0, 13.0, 100.0)
    assert sum(taken.values()) / 10 == pytest.approx(40, rel=0.05)
    refusal = next(filter(None, (shares.take(lows[0], EPOCH + 13 * SECOND) for _ in range(50))))
    assert refusal.limit == "class"
    assert 0 < refusal.wait_us <= 60 * SECOND
    # What the class may not use, others can.
    assert press(shares, (*lows, Ask("high")), 13.0, 23.0, 100.0)[Ask("high")] / 10 == pytest.approx(60, rel=0.1)


def test_ceiling_is_shared_fairly_too() -> None:
    """Under the ceiling, a tenant with few batch calls is not refused because of one with many."""
    shares = service(1_000.0, 100.0, (CLASSES[0], ClassRule(1, 0.25, 0.05, ceiling=0.1)))
    many, few = Ask("many", cls=1), Ask("few", cls=1)
    press(shares, (many,), 0.0, 2.0, 1_000.0)
    served = 0
    for step in range(100):
        press(shares, (many,), 2.0 + step / 20, 2.05 + step / 20, 1_000.0)
        served += shares.take(few, EPOCH + int((2.05 + step / 20) * SECOND)) is None
    assert served == 100


def test_what_the_share_refuses_costs_the_ceiling_nothing() -> None:
    """All or none: the class gets back what it granted to an ask that the share then refused; given back, both do."""
    classes = (CLASSES[0], ClassRule(1, 0.25, 0.05, ceiling=0.9))
    shares = service(100.0, 10.0, classes)
    press(shares, (Ask("a"), Ask("b")), 0.0, 3.0, 300.0)
    now = EPOCH + 3 * SECOND
    refusals = [shares.take(Ask("a", cls=1), now) for _ in range(300)]
    assert {refusal.limit for refusal in refusals if refusal} == {"share"}
    assert shares.take(Ask("c", cls=1), now) is None
    held = share_of(shares, "c", now).tokens
    shares.give_back(Ask("c", cls=1), now, over=shares.over)
    assert share_of(shares, "c", now).tokens == pytest.approx(held + 1)


def test_ceiling_of_nothing_refuses_for_ever() -> None:
    """A class with ceiling 0 has no time at which it could be admitted."""
    shares = service(100.0, 10.0, (CLASSES[0], ClassRule(1, 0.25, 0.05, ceiling=0.0)))
    refusal = shares.take(Ask("a", cls=1), EPOCH)
    assert refusal is not None
    assert (refusal.limit, refusal.wait_us) == ("class", NEVER)
    assert shares.take(Ask("a"), EPOCH) is None
