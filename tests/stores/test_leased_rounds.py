"""Rounds of leases: what is asked ahead, what goes back, and what several processes have together."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.stores.leased.pockets import IDLE, ROUND
from policies.units import SECOND, Micros
from tests.clock import StandingClock
from tests.policies.documents import policy_set
from tests.stores.contract import EPOCH, as_batch, charge, plan
from tests.stores.leases import Patient, opened
from tests.stores.leasing import House, key, level

__all__: list[str] = []


@pytest.fixture
def house() -> House:
    """Return a process alone."""
    return House(StandingClock(EPOCH))


def test_idle_pocket_goes_back_and_is_forgotten(house: House) -> None:
    """A process that nobody asks holds nothing after two seconds, and knows nothing of the key once it is full."""
    for _ in range(50):
        house.many(10, key(1000, 1000))
        house.rest(ROUND // 5)
    assert house.admitted == 500
    house.rest(IDLE + 2 * ROUND)
    assert level(house) == 0.0
    calls = house.ledger.calls
    house.rest(2 * SECOND)
    assert house.ledger.calls == calls
    assert house.store.keys == 0


def test_after_an_idle_minute_there_is_one_burst(house: House) -> None:
    """Four processes that were busy and then idle have one bucket together, not one each and another in the store."""
    houses = [house, *(House(house.clock, house) for _ in range(3))]
    for number, one in enumerate(houses[1:], 2):
        one.ledger.process = number
    for _ in range(30):
        for one in houses:
            one.many(5, key(100, 100))
        house.rest(ROUND // 2, *houses[1:])
    house.rest(60 * SECOND, *houses[1:])
    before = sum(one.admitted for one in houses)
    for _ in range(10):
        for one in houses:
            one.many(50, key(100, 100))
    assert sum(one.admitted for one in houses) - before == 100


def test_client_spread_over_processes_sees_one_limit(house: House) -> None:
    """Whoever goes round four processes gets the burst once, wherever it asks."""
    houses = [house, *(House(house.clock, house) for _ in range(3))]
    for number, one in enumerate(houses[1:], 2):
        one.ledger.process = number
    for number in range(200):
        houses[number % 4].many(1, key(1 / 3600, 20))
    assert sum(one.admitted for one in houses) == 20


def test_batch_leaves_the_reserve_while_interactive_asks(house: House) -> None:
    """A quarter of the bucket is kept for the higher class, whichever process asks."""
    other = House(house.clock, house)
    high, low = key(1, 20), plan(as_batch(charge("key", 1, 20)), backstop=False)
    house.many(1, high)
    other.many(30, low)
    assert other.admitted == 14
    house.many(30, high)
    assert house.admitted == 6


def test_dry_bucket_is_asked_for_by_rounds(house: House) -> None:
    """Of a hammered key nobody waits: while it is refused, rounds fetch what flows in."""
    house.many(2000, key(1000, 1000))
    waited = len(house.waits)
    for _ in range(100):
        house.many(40, key(1000, 1000))
        house.rest(ROUND // 5)
    assert len(house.waits) == waited
    assert 1000 + 1600 <= house.admitted <= 1000 + 2000


def test_steady_demand_never_waits_and_costs_few_calls(house: House) -> None:
    """900/s of a limit of 1,000/s: nobody waits once it is warm, at a twentieth of a call a request, and all get in."""

    def second() -> None:
        for _ in range(50):
            house.many(18, key(1000, 1000))
            house.rest(ROUND // 5)

    second()
    waited, calls, admitted = len(house.waits), house.ledger.calls, house.admitted
    second()
    second()
    assert len(house.waits) == waited
    assert (house.ledger.calls - calls) / (house.admitted - admitted) < 0.01
    assert house.refused == 0


@settings(max_examples=40)
@given(
    st.lists(st.tuples(st.integers(0, 200_000), st.integers(0, 2), st.integers(1, 12)), min_size=1, max_size=60),
    st.sampled_from([(5.0, 5.0), (50.0, 20.0), (1000.0, 100.0)]),
)
def test_processes_together_never_have_more_than_the_bucket(
    steps: list[tuple[int, int, int]], quota: tuple[float, float]
) -> None:
    """Whatever three processes ask, and when: admitted by then is at most the burst and what flowed in."""
    first = House(StandingClock(EPOCH))
    houses = [first, House(first.clock, first)]
    houses.append(House(first.clock, houses[1]))
    rate, burst = quota
    for pause, which, count in steps:
        if pause > ROUND:
            first.rest(pause, *houses[1:])
        houses[which].many(count, key(rate, burst))
        bound = burst + rate * (first.clock.at - EPOCH) / SECOND
        assert sum(one.admitted for one in houses) <= bound + 1e-6
        assert all(one.store.waiting == 0 and one.unknown == 0 for one in houses)


def test_what_a_posture_goes_by(house: House) -> None:
    """How much of the leases was here, and what a bucket still owes: from what was heard last."""
    other = House(house.clock, house)
    for _ in range(10):
        house.many(3, key(100, 100))
        other.many(1, key(100, 100))
        house.rest(ROUND // 5, other)
    assert house.store.part("key") == pytest.approx(0.75, abs=0.15)
    assert other.store.part("key") == pytest.approx(0.25, abs=0.15)
    assert house.store.part("unheard of") == house.store.owed("unheard of", EPOCH) == 0.0
    house.many(200, key(100, 100))
    assert house.store.owed("key", house.clock.at) == pytest.approx(1.0, abs=0.1)
    assert house.store.owed("key", house.clock.at + SECOND // 2) == pytest.approx(0.5, abs=0.1)


def test_closing_gives_everything_back(house: House) -> None:
    """What a process that ends holds is there for the others at once."""
    for _ in range(10):
        house.many(10, key(100, 100))
        house.rest(ROUND // 5)
    house.rest(ROUND)
    held = level(house)
    house.store.close()
    house.turns.settle()
    assert level(house) < held


def test_ten_thousand_warm_keys_are_looked_at_in_slices() -> None:
    """A round over many keys gives the loop its turn between slices of half a millisecond."""

    class Ticking(StandingClock):
        def now(self) -> Micros:
            self.at += 40
            return self.at

    clock = Ticking(EPOCH)
    store, turns, _ = opened(policy_set(), clock, max_keys=20_000)
    patient = Patient(store, turns)
    for number in range(2_000):
        patient.take(plan(charge("key", 10, 20, bucket=f"address={number}"), backstop=False), clock.now())
    clock.at += ROUND
    store.tick(clock.now())
    slices = 1
    while turns.turn():
        slices += 1
    assert slices > 10


@pytest.mark.soak
@pytest.mark.parametrize("rate", [0.5, 3.0, 7.0, 10.0, 333.0, 1000.0])
def test_case_029_rate_holds_through_a_loop_that_jitters(soak: bool, rate: float) -> None:
    """Half as much again is offered, and rounds come up to 50 ms late: what is admitted is the rate (case 29)."""
    seconds = 300 if soak else max(4, min(60, int(2000 / rate)))
    house, draw = House(StandingClock(EPOCH)), random.Random(29)
    asked, owed, end = key(rate, max(rate, 5.0)), 0.0, EPOCH + seconds * SECOND
    while house.clock.at < end:
        pause = draw.randrange(1_000, 50_000)
        house.clock.at += pause
        owed += 1.5 * rate * pause / SECOND
        house.many(int(owed), asked)
        owed -= int(owed)
        house.store.tick(house.clock.at)
        house.turns.settle()
    bound = rate * seconds + max(rate, 5.0)
    # At the end some of it is in the bucket, or in a pocket, for the next round.
    assert 0.99 * bound - 0.3 * rate - 1 <= house.admitted <= bound + 1


@pytest.mark.parametrize("step", [-11, -3600, -172_800, 3600])
def test_case_031_clock_of_the_store_that_steps_refuses_nobody(house: House, step: int) -> None:
    """8/s of 10/s, and the store's clock is set: nobody is refused, and nobody told a long wait (case 31)."""
    for tenth in range(80):
        if tenth == 40:
            house.ledger.ahead = step * SECOND
        house.many(tenth % 5 != 0, key())
        house.rest(ROUND)
    assert (house.admitted, house.refused) == (64, 0)
    house.many(40, key())
    assert 0 < house.admitted - 64 <= 21
    assert max(house.told) <= 2 * SECOND


@pytest.mark.parametrize(("offered", "seconds", "least", "most"), [(10, 30, 150, 160), (1000, 10, 50, 60)])
def test_case_025_steady_over_rate_gets_the_rate(
    house: House, offered: int, seconds: int, least: int, most: int
) -> None:
    """5/s with a burst of 5, however much more is asked: each second after the first has its five (case 25)."""
    counts: list[int] = []
    for _ in range(seconds):
        before = house.admitted
        for _ in range(50):
            owed = offered / 50
            house.many(int(owed) or int(draw_one(owed, house)), key(5, 5))
            house.rest(ROUND // 5)
        counts.append(house.admitted - before)
    assert least <= house.admitted <= most
    assert all(4 <= count <= 6 for count in counts[1:])


def draw_one(part: float, house: House) -> bool:
    """Return true in that part of the fiftieths of a second."""
    return (house.clock.at // (ROUND // 5)) % round(1 / part) == 0
