"""The leased store on the kernels: the contract of every store, and who waits, for what, and what comes of it."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.ports import Store
from gateway.stores.leased.pockets import IDLE, ROUND
from gateway.stores.leased.store import LeasedStore
from gateway.stores.link import StoreFault
from policies.charge import NEVER, Plan, Refusal
from policies.policy import PolicySet
from policies.units import SECOND, Micros
from tests.clock import StandingClock
from tests.policies.documents import policy_set
from tests.stores.contract import EPOCH, StoreContract, as_batch, charge, plan
from tests.stores.leases import HandTurns, KernelLedger, Patient, opened

__all__: list[str] = []

#: The longest that a request waits.
DEADLINE = SECOND // 50


class TestLeased(StoreContract):
    """The contract, with the kernels for a store: the clock stands, so everything is exact."""

    reloads_at_once = False

    def open(self, policies: PolicySet, now: Micros) -> Store:
        """Return a new leased store, for which every take waits if it has to."""
        store, turns, _ = opened(policies, StandingClock(now))
        return Patient(store, turns)


class House:
    """One process, or one of several on the same `records`; it asks, is resumed and takes as the pipeline does."""

    def __init__(self, clock: StandingClock, beside: House | None = None, max_keys: int = 1000) -> None:
        self.clock = clock
        self.turns: HandTurns = beside.turns if beside else HandTurns(clock)
        self.ledger: KernelLedger = KernelLedger(self.turns, clock, beside.ledger.records if beside else None)
        self.ledger.process = beside.ledger.process + 1 if beside else 1
        self.store: LeasedStore
        self.store, _, _ = opened(policy_set(), clock, turns=self.turns, ledger=self.ledger, max_keys=max_keys)
        self.waits: list[Micros] = []
        self.store.noted = self.waits.append
        self.admitted = self.refused = self.unknown = 0
        #: The waits of those refused.
        self.told: list[Micros] = []

    def send(self, asked: Plan) -> Callable[[], None] | None:
        """Let a request come; return what takes it back if it waits."""
        now = self.clock.now()
        pending = self.store.ask(asked, now, lambda: self.again(asked))
        if pending is None:
            self.decide(asked)
        return pending

    def again(self, asked: Plan) -> None:
        """Go on with a request that waited."""
        self.send(asked)

    def decide(self, asked: Plan) -> None:
        """Take, or note that nobody knows."""
        now = self.clock.now()
        if not self.store.knows(asked, now):
            self.unknown += 1
        elif refused := self.store.take(asked, now).refused:
            self.refused += 1
            self.told.append(refused[0].wait_us)
        else:
            self.admitted += 1

    def many(self, count: int, asked: Plan) -> None:
        """Let requests come at once, and all be answered."""
        for _ in range(count):
            self.send(asked)
        self.turns.settle()

    def rest(self, duration: Micros, *others: House) -> None:
        """Let time pass, with rounds every 20 ms."""
        end = self.clock.at + duration
        while self.clock.at < end:
            self.clock.at += ROUND // 5
            for house in (self, *others):
                house.store.tick(self.clock.at)
            self.turns.settle()


@pytest.fixture
def house() -> House:
    """Return a process alone."""
    return House(StandingClock(EPOCH))


def key(rate: float = 10.0, burst: float = 20.0, cost: float = 1.0) -> Plan:
    """Return a plan of one key."""
    return plan(charge("key", rate, burst, cost), backstop=False)


def level(house: House) -> float:
    """Return what the only bucket of record owes now."""
    (record,) = house.ledger.records.values()
    bucket = record.bucket  # type: ignore[attr-defined]
    owed: float = max(0.0, bucket.level - bucket.rate_us * (house.clock.at - bucket.stamp))
    return owed


def test_requests_of_one_turn_share_a_call(house: House) -> None:
    """500 at once on a new bucket of 20 make one call, 20 are admitted, and every one of them is answered (case 35)."""
    house.many(500, key())
    assert (house.admitted, house.refused, house.unknown) == (20, 480, 0)
    assert house.ledger.calls == 1
    assert len(house.waits) == 500
    assert house.store.waiting == 0


def test_who_comes_meanwhile_joins_the_next_call(house: House) -> None:
    """While an ask is under way no second one is made; then one is, for the sum of what waits."""
    house.send(key())
    house.turns.turn()
    for _ in range(30):
        house.send(key())
    house.turns.settle()
    assert (house.admitted, house.refused) == (20, 11)
    assert house.ledger.asked[0].want.high == 1.0
    assert house.ledger.calls == 2


def test_warm_key_asks_nobody(house: House) -> None:
    """What is held is spent without a call, and what is known to be empty is refused without one, wait and all."""
    house.many(20, key())
    calls, waited = house.ledger.calls, len(house.waits)
    house.many(50, key())
    assert house.store.take(key(), EPOCH).refused == (Refusal("key", SECOND // 10),)
    assert (house.ledger.calls, len(house.waits)) == (calls, waited)
    assert house.refused == 50


def test_who_leaves_is_never_resumed_and_leaves_nothing(house: House) -> None:
    """A wish that is taken back before its call goes out asks for nothing; later, what it got goes back."""
    pending = house.send(key())
    assert pending is not None
    pending()
    pending()
    house.turns.settle()
    assert house.ledger.asked[0].want.high == 0.0
    late = house.send(key())
    assert late is not None
    house.turns.turn()
    late()
    house.turns.settle()
    assert (house.admitted, house.refused, house.unknown, house.store.waiting) == (0, 0, 0, 0)
    assert level(house) == 1.0
    house.rest(IDLE + 2 * ROUND)
    assert level(house) == 0.0


def test_silent_store_is_waited_for_once(house: House) -> None:
    """At the deadline whoever waits is told, once, that nobody knows; what comes late is of use all the same."""
    house.ledger.silent = True
    house.many(3, key())
    assert house.unknown == 3
    assert house.store.waiting == 0
    house.ledger.silent = False
    for late in house.ledger.late:
        late()
    calls = house.ledger.calls
    house.many(3, key())
    assert house.admitted == 3
    assert house.ledger.calls == calls


def test_nothing_at_all_is_waited_for_until_the_deadline(house: House) -> None:
    """A store that swallows a call is given up after the deadline, by whoever waits."""
    house.ledger.swallows = True
    house.many(3, key())
    assert house.unknown == 0
    house.clock.at += DEADLINE
    house.turns.settle()
    assert house.unknown == 3
    assert house.waits == [DEADLINE] * 3


@pytest.mark.parametrize(("kind", "told"), [("readonly", 1.0), ("timeout", 0.0)])
def test_a_debt_is_told_until_it_may_have_been(house: House, kind: str, told: float) -> None:
    """What was admitted without the store is charged once: told again only if the script surely did not run."""
    house.many(1, key())
    house.store.spent(key().own[0], 1.0, EPOCH)
    house.ledger.fault = StoreFault(kind, "")
    house.rest(ROUND)
    house.ledger.fault = None
    spent = [one.want.spent for one in house.ledger.asked]
    house.rest(ROUND)
    assert max(spent) == 1.0
    assert max([one.want.spent for one in house.ledger.asked[len(spent) :]], default=0.0) == told


def test_nobody_is_asked_while_the_store_is_known_to_be_down(house: House) -> None:
    """Then nobody waits: a posture decides at once."""
    house.ledger.up = False
    assert house.send(key()) is None
    assert (house.unknown, house.ledger.calls) == (1, 0)


def test_zero_quota_needs_no_store(house: House) -> None:
    """It refuses everything, whoever is asked."""
    asked = plan(charge(rate=0), backstop=False)
    assert house.store.knows(asked, EPOCH)
    assert house.store.take(asked, EPOCH).refused == (Refusal("key", NEVER),)


def test_take_without_a_lease_is_refused_for_a_round(house: House) -> None:
    """Whoever takes what it did not ask for gets nothing, and neither seats nor other limits are charged."""
    assert house.store.take(key(), EPOCH).refused == (Refusal("key", ROUND),)


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


def test_shadow_limits_make_nobody_wait(house: House) -> None:
    """They are leased, and what they would have refused is told; a request of theirs alone waits for nothing."""
    watched = plan(shadow=(charge("try", 1, 2),), backstop=False)
    for _ in range(4):
        assert house.send(watched) is None
    house.turns.settle()
    assert house.store.take(watched, EPOCH).shadow_refused == (Refusal("try", SECOND),)
    house.clock.at += SECOND
    house.rest(ROUND)
    assert house.store.take(watched, house.clock.at).shadow_refused == ()


def test_batch_leaves_the_reserve_while_interactive_asks(house: House) -> None:
    """A quarter of the bucket is kept for the higher class, whichever process asks."""
    other = House(house.clock, house)
    high, low = key(1, 20), plan(as_batch(charge("key", 1, 20)), backstop=False)
    house.many(1, high)
    other.many(30, low)
    assert other.admitted == 14
    house.many(30, high)
    assert house.admitted == 6


def test_what_is_dear_waits_for_its_whole_cost(house: House) -> None:
    """A cost above the burst is admitted by a full bucket alone, which then owes it."""
    asked = key(10, 5, 8)
    house.many(2, asked)
    assert (house.admitted, house.refused) == (1, 1)
    (refusal,) = house.store.take(asked, EPOCH).refused
    assert refusal.wait_us == 8 * SECOND // 10


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


def test_a_flood_of_keys_is_bounded(house: House) -> None:
    """With no room left new keys share one bucket, here and in the store (case 105)."""
    small = House(StandingClock(EPOCH), max_keys=10)
    for number in range(300):
        step = replace(charge("key", 10, 2, bucket=f"address={number}"), overflow="key anonymous")
        small.many(1, plan(step, backstop=False))
    assert small.store.keys <= 11
    assert small.store.overflow_requests > 250
    assert len(small.ledger.records) <= 11
    assert small.admitted == 12
    small.rest(5 * SECOND)
    assert small.store.keys <= 1


def test_configured_keys_outlive_a_flood_and_go_after_a_reload() -> None:
    """They stand outside the bound; once no entry names them they are let go."""
    small = House(StandingClock(EPOCH), max_keys=1)
    for number in range(3):
        small.many(1, plan(replace(charge(bucket=f"mine={number}"), pinned=True), backstop=False))
    assert small.store.keys == 3
    small.rest(5 * SECOND)
    assert small.store.keys == 3
    small.store.rebuild(policy_set(), small.clock.at)
    small.rest(ROUND)
    assert small.store.keys == 0


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
