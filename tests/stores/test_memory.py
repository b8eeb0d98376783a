"""The embedded store: the contract of every store, and its own bounds."""

from __future__ import annotations

import tracemalloc
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.ports import Store
from gateway.stores.memory import MemoryStore
from policies.charge import Plan, SeatCharge
from policies.kernels.gcra import Bucket
from policies.kernels.plain import PlainBackstop, PlainRefusal
from policies.policy import PolicySet
from policies.units import SECOND, Micros
from tests.policies.documents import CLASSES, policy_set, quota
from tests.stores.contract import EPOCH, PLANS, ExactContract, charge, plan

__all__: list[str] = []


class TestMemory(ExactContract):
    """The contract, on the memory store."""

    def open(self, policies: PolicySet, now: Micros) -> Store:
        """Return a new memory store with the default backstop."""
        return MemoryStore(policies, 1000, now)


class TestMemoryOnPlainBackstop(ExactContract):
    """The contract, on the memory store with one bucket for all tenants."""

    def open(self, policies: PolicySet, now: Micros) -> Store:
        """Return a new memory store whose backstop shares nothing out."""
        allowed = policies.backstop
        return MemoryStore(policies, 1000, now, PlainBackstop(allowed.rate.per_us, allowed.burst, CLASSES, 1.0, now))


def keyed(number: int, limit: str = "key", *, pinned: bool = False, overflow: str = "") -> Plan:
    """Return a plan of one key among many: 10/s, burst 2."""
    step = charge(limit, 10, 2, bucket=f"{limit},{number}")
    return plan(replace(step, pinned=pinned, overflow=overflow), backstop=False)


@pytest.fixture
def store() -> MemoryStore:
    """Return a store with room for ten keys."""
    return MemoryStore(policy_set(), 10, EPOCH)


def test_flood_of_new_keys_is_bounded(store: MemoryStore) -> None:
    """A new key with every request never makes more buckets than there is room for (case 105)."""
    for number in range(5000):
        store.take(keyed(number), EPOCH + number)
    assert store.keys <= 11
    assert store.overflow_requests > 4000


def test_live_keys_are_not_forgotten(store: MemoryStore) -> None:
    """A bucket that is not full again outlives any flood: nobody buys new tokens by making others forget."""
    for number in range(10):
        store.take(keyed(number), EPOCH)
        store.take(keyed(number), EPOCH)
    for number in range(100, 1000):
        store.take(keyed(number), EPOCH + 1)
    for number in range(10):
        assert [refusal.limit for refusal in store.take(keyed(number), EPOCH + 1).refused] == ["key"]


def test_full_of_live_ones_new_keys_share_a_bucket(store: MemoryStore) -> None:
    """With no room, unknown keys share one bucket per kind of limit, and are counted."""
    for number in range(10):
        store.take(keyed(number), EPOCH)
    answers = [store.take(keyed(number), EPOCH).refused for number in range(100, 110)]
    assert [len(refused) for refused in answers] == [0, 0] + [1] * 8
    assert store.take(keyed(200, "other"), EPOCH).refused == ()
    assert store.take(keyed(200, overflow="key job"), EPOCH).refused == ()
    assert store.overflow_requests == 12
    assert store.keys == 13
    store.give_back(keyed(100), EPOCH)
    assert store.take(keyed(300), EPOCH).refused != ()


def test_configured_buckets_stand_outside_the_bound(store: MemoryStore) -> None:
    """What the operator wrote has its own bucket whatever the flood, and is never evicted."""
    for number in range(10):
        store.take(keyed(number), EPOCH)
    for number in range(50):
        assert store.take(keyed(number, "listed", pinned=True), EPOCH).refused == ()
    assert store.overflow_requests == 0
    for tick in range(10):
        store.tick(EPOCH + (2 + tick) * SECOND)
    assert store.keys == 50


def test_room_comes_back_when_keys_are_full_again(store: MemoryStore) -> None:
    """An idle bucket goes once it is full again, so the next newcomer has its own."""
    for number in range(10):
        store.take(keyed(number), EPOCH)
    later = EPOCH + 2 * SECOND
    for number in range(100, 110):
        assert store.take(keyed(number), later).refused == ()
    assert store.overflow_requests == 0
    assert store.keys <= 10


def test_take_never_drops_a_bucket_that_it_has_found(store: MemoryStore) -> None:
    """Two new buckets in one take both stand afterwards, though the first is full when the second is made."""
    low = tuple(replace(charge(name, 10, 2), low=True) for name in ("key", "tenant"))
    store.take(plan(*low), EPOCH)
    assert store.take(plan(*low), EPOCH).tokens == (0.0, 0.0)


def test_a_plan_follows_its_bucket(store: MemoryStore) -> None:
    """A bucket that was dropped is made anew, not used on unseen; two stores under one plan have a bucket each."""
    known, twin = keyed(0), keyed(0)
    assert [store.take(each, EPOCH).tokens for each in (known, twin, known)] == [(1.0,), (0.0,), (0.0,)]
    for number in range(1, 200):
        store.take(keyed(number), EPOCH + 10 * SECOND + number)
    later = EPOCH + 20 * SECOND
    assert [store.take(each, later).tokens for each in (twin, known, twin)] == [(1.0,), (0.0,), (0.0,)]
    other = MemoryStore(policy_set(), 10, EPOCH)
    assert other.take(known, later).tokens == (1.0,)
    assert store.take(known, later).refused


def test_bucket_with_recent_demand_stays(store: MemoryStore) -> None:
    """A full bucket stays for the second in which its demand still counts."""
    store.take(keyed(1), EPOCH)
    store.tick(EPOCH + SECOND - 1)
    assert store.keys == 1
    store.tick(EPOCH + SECOND)
    assert store.keys == 0


def test_ticks_return_the_memory_of_a_flood() -> None:
    """After a flood and some idle time the store is as small as before it."""
    store = MemoryStore(policy_set(), 20_000, EPOCH)
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        for number in range(20_000):
            store.take(keyed(number), EPOCH)
        assert store.keys == 20_000
        flood = tracemalloc.get_traced_memory()[0] - before
        for tick in range(60):
            store.tick(EPOCH + 10 * SECOND + tick)
        assert store.keys == 0
        assert tracemalloc.get_traced_memory()[0] - before < flood / 10
    finally:
        tracemalloc.stop()


@given(st.lists(st.tuples(st.integers(0, 300_000), st.sampled_from(range(len(PLANS)))), min_size=1, max_size=60))
def test_refused_request_changes_no_level_and_no_seat(trace: list[tuple[int, int]]) -> None:
    """Whatever refuses, own limit, seat or backstop: every level, every seat and the backstop stand as before."""
    backstop = PlainBackstop(12 / SECOND, 6.0, CLASSES, 1.0, EPOCH)
    store, now, held = MemoryStore(policy_set(), 100, EPOCH, backstop), EPOCH, []

    def books() -> object:
        levels = {name: (bucket.level, bucket.stamp) for name, bucket in store._buckets.items()}
        seats = {name: cell.held for name, cell in store._seats._by_holder.items()}
        return levels, seats, backstop._bucket.level, backstop._bucket.stamp

    for pause, which in trace:
        now += pause
        asked = replace(PLANS[which], seats=(SeatCharge("ci", 3),), share=plan().share)
        found: list[Bucket] = []
        for step in asked.own:  # without `found`, opening one may drop another that is full
            found.append(store._bucket(step, now, found))
        before = books()
        if store.take(asked, now).refused:
            assert books() == before
        else:
            held.append(asked)
        if len(held) == 3 and pause % 2:
            store.release(held.pop())


class Recorded(PlainBackstop):
    """A backstop that is over the share when told so, and records what it is asked."""

    def __init__(self, *, over: bool) -> None:
        super().__init__(1.0, 1e6, CLASSES, 1.0, EPOCH)
        self.over = over
        self.returned: list[bool] = []
        self.refusal: PlainRefusal | None = None
        self.ticks: list[int] = []

    def take(self, ask: object, now: Micros) -> PlainRefusal | None:
        """Answer as told."""
        return self.refusal

    def give_back(self, ask: object, now: Micros, *, over: bool = False) -> None:
        """Record what comes back."""
        self.returned.append(over)

    def tick(self, now: Micros) -> None:
        """Record the tick."""
        self.ticks.append(now)


@pytest.mark.parametrize("over", [False, True])
def test_take_over_the_share_is_marked_and_given_back_as_such(over: bool) -> None:
    """Whether a take was over the share is in its reading, and goes back with it."""
    backstop = Recorded(over=over)
    store = MemoryStore(policy_set(), 10, EPOCH, backstop)
    reading = store.take(plan(charge()), EPOCH)
    assert reading.share_over is over
    store.give_back(plan(charge()), EPOCH, reading)
    assert backstop.returned == [over]


@pytest.mark.parametrize("beyond", [False, True])
def test_refusal_beyond_own_limits_is_marked(beyond: bool) -> None:
    """What the own limits would not have let through is marked in the reading."""
    backstop = Recorded(over=False)
    backstop.refusal = PlainRefusal("share", 5, beyond)
    reading = MemoryStore(policy_set(), 10, EPOCH, backstop).take(plan(charge()), EPOCH)
    assert [refusal.limit for refusal in reading.refused] == ["share"]
    assert (reading.beyond_own, reading.tokens) == (beyond, (20.0,))


@pytest.mark.parametrize("over", [False, True])
def test_refusal_of_a_tenant_over_its_share_is_marked(over: bool) -> None:
    """A tenant that the backstop refuses is within its share, or asks for more: the reading says which."""
    backstop = Recorded(over=False)
    backstop.refusal = PlainRefusal("backstop", 5, beyond_own=False, over=over)
    reading = MemoryStore(policy_set(), 10, EPOCH, backstop).take(plan(charge()), EPOCH)
    assert [refusal.limit for refusal in reading.refused] == ["backstop"]
    assert reading.share_over is over


def test_tick_reaches_the_backstop() -> None:
    """The backstop's slices are driven by the store's."""
    backstop = Recorded(over=False)
    MemoryStore(policy_set(), 10, EPOCH, backstop).tick(EPOCH + 7)
    assert backstop.ticks == [EPOCH + 7]


def test_seats_are_counted() -> None:
    """Seats held are known, and none is left when all requests have ended."""
    policies = policy_set(backstop=quota(10**6, 10**6))
    store = MemoryStore(policies, 10, EPOCH)
    held = plan(charge(), seats=(SeatCharge("ci", 5), SeatCharge("acme", 5)))
    for _ in range(3):
        store.take(held, EPOCH)
    assert store.seats_taken == 6
    for _ in range(3):
        store.release(held)
    assert store.seats_taken == 0
