"""Seats of several processes: who may have how many, and when they come free."""

from __future__ import annotations

import pytest

from gateway.stores.leased.places import SEATS_FOR
from gateway.stores.leased.pockets import ROUND
from policies.charge import Plan, SeatCharge
from policies.units import SECOND
from tests.clock import StandingClock
from tests.stores.contract import EPOCH, plan
from tests.stores.leasing import House

__all__: list[str] = []


def seated(limit: int) -> Plan:
    """Return a plan of one seat of so many."""
    return plan(seats=(SeatCharge("tenant=acme", limit),), backstop=False)


@pytest.fixture
def two() -> tuple[House, House]:
    """Return two processes on one store."""
    first = House(StandingClock(EPOCH))
    return first, House(first.clock, first)


def test_seats_are_as_many_as_the_limit_over_all(two: tuple[House, House]) -> None:
    """A hundred at once at each of two processes take ten seats together (case 35)."""
    for one in two:
        one.many(100, seated(10))
    assert sum(one.admitted for one in two) == 10
    assert sum(one.refused for one in two) == 190


def test_seat_that_comes_free_is_taken_again_without_the_store(two: tuple[House, House]) -> None:
    """Within its allowance a process decides alone."""
    first, _ = two
    first.many(3, seated(10))
    calls = first.ledger.calls
    for _ in range(5):
        first.store.release(seated(10))
        first.many(1, seated(10))
    assert (first.admitted, first.ledger.calls) == (8, calls)


def test_unused_seats_go_to_who_waits_for_them(two: tuple[House, House]) -> None:
    """Once a process has none in use, another that was refused has them within half a second."""
    first, other = two
    first.many(10, seated(10))
    other.many(1, seated(10))
    assert (first.admitted, other.admitted) == (10, 0)
    for _ in range(10):
        first.store.release(seated(10))
    for _ in range(5):
        first.rest(ROUND, other)
        other.many(1, seated(10))
    assert other.admitted >= 1


def test_seats_in_use_stay_ours_for_as_long_as_they_are(two: tuple[House, House]) -> None:
    """A request that lasts longer than an allowance keeps its seat: it is renewed."""
    first, other = two
    first.many(10, seated(10))
    first.rest(5 * SEATS_FOR, other)
    other.many(5, seated(10))
    assert other.admitted == 0


def test_seats_of_a_dead_process_come_free(two: tuple[House, House]) -> None:
    """Whoever does not renew loses its seats when its lease ends, and knows that it has (case 81)."""
    first, other = two
    first.many(10, seated(10))
    other.rest(SEATS_FOR + ROUND)
    other.many(10, seated(10))
    assert other.admitted == 10
    assert not first.store.knows(seated(10), first.clock.at) or first.store.take(seated(10), first.clock.at).refused


def test_lowered_limit_holds_at_once_here(two: tuple[House, House]) -> None:
    """Nobody new gets in until fewer are in than the new limit allows."""
    first, _ = two
    first.many(10, seated(10))
    for _ in range(6):
        first.store.release(seated(10))
    first.many(3, seated(5))
    assert first.admitted == 11


def test_roomy_limit_is_held_a_little_ahead(two: tuple[House, House]) -> None:
    """Of a limit with plenty of room as many again are held as are in use, so that growth does not wait each time."""
    first, _ = two
    for _ in range(64):
        first.many(1, seated(10_000))
    assert first.admitted == 64
    assert first.ledger.calls < 12


def test_part_of_the_seats_is_what_a_posture_goes_by(two: tuple[House, House]) -> None:
    """The part that is allowed to this process."""
    first, other = two
    first.many(4, seated(10))
    other.many(6, seated(10))
    assert first.store.part("tenant=acme") == pytest.approx(0.4)
    assert other.store.part("tenant=acme") == pytest.approx(0.6)


def test_silent_store_leaves_nobody_a_seat(two: tuple[House, House]) -> None:
    """Who needs the store for a seat and gets no answer is for a posture to decide."""
    first, _ = two
    first.ledger.up = False
    first.many(1, seated(10))
    assert (first.unknown, first.admitted) == (1, 0)


def test_idle_places_are_forgotten(two: tuple[House, House]) -> None:
    """Nothing is asked for a holder that has nobody in and nobody waiting; closing gives up what is left."""
    first, other = two
    first.many(4, seated(10))
    for _ in range(4):
        first.store.release(seated(10))
    first.rest(SECOND, other)
    calls = first.ledger.calls
    first.rest(3 * SECOND, other)
    assert first.ledger.calls == calls
    first.many(2, seated(10))
    first.store.release(seated(10))
    first.store.close()
    first.turns.settle()
    other.many(9, seated(10))
    assert other.admitted == 9


def test_seats_taken_without_the_store_are_told_when_it_is_back(two: tuple[House, House]) -> None:
    """Whoever a posture let in holds its seat like anybody else, as soon as the store hears of it."""
    first, other = two
    first.ledger.up = False
    for _ in range(4):
        first.store.occupy(seated(10), first.clock.at)
    first.rest(SECOND, other)
    first.ledger.up = True
    first.rest(2 * ROUND, other)
    other.many(10, seated(10))
    assert other.admitted == 6
    assert first.store.in_use("tenant=acme") == 4
    assert first.store.in_use("nobody") == 0
