"""The contract of every store: what is true of a take, whoever keeps the buckets.

A store's own test module subclasses `StoreContract` and says how to open one. The reference it is compared with is the
kernel in plain calls, one bucket after the other.
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import replace

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gateway.ports import Store
from policies.charge import NEVER, Charge, Hold, Plan, Reading, Refusal, SeatCharge, ShareCharge
from policies.kernels import gcra
from policies.kernels.gcra import Bucket
from policies.policy import PolicySet
from policies.request import Class
from policies.units import SECOND, Micros
from tests.policies.documents import policy_set, quota

__all__ = ["EPOCH", "PLANS", "ExactContract", "Reference", "StoreContract", "charge", "plan"]

EPOCH = 1_790_000_000 * SECOND


def charge(limit: str = "key", rate: float = 10.0, burst: float = 20.0, cost: float = 1.0, bucket: str = "") -> Charge:
    """Return an interactive charge of `rate` a second; its bucket is called like its limit unless told otherwise."""
    return Charge(limit, bucket or limit, rate / SECOND, burst, cost, Class.INTERACTIVE, floor=0.05)


def as_batch(step: Charge) -> Charge:
    """Return the same charge for the lower class."""
    return replace(step, cls=Class.BATCH, low=True, reserve=step.burst / 4)


def share(cost: float = 1.0) -> ShareCharge:
    """Return a step on the backstop."""
    return ShareCharge("acme", 1.0, listed=True, cost=cost, cls=Class.INTERACTIVE, own_rate_us=1.0, own_burst=1e9)


def plan(
    *own: Charge, shadow: tuple[Charge, ...] = (), seats: tuple[SeatCharge, ...] = (), backstop: bool = True
) -> Plan:
    """Return a plan of these steps."""
    cost = own[0].cost if own else 1.0
    asked = share(cost) if backstop else None
    return Plan("acme", "ci", Class.INTERACTIVE, cost, own, shadow, seats, asked)


def drained(store: Store) -> int:
    """Take until the backstop refuses; return how many were admitted."""
    count = 0
    while not store.take(plan(), EPOCH).refused:
        count += 1
    return count


class Reference:
    """All or none over own charges, in plain calls of the kernel."""

    def __init__(self) -> None:
        self.buckets: dict[str, Bucket] = {}

    def take(self, asked: Plan, now: Micros) -> Reading:
        """Take a plan of own charges only."""
        refused, tokens = [], []
        for step in asked.own:
            bucket = self.buckets.setdefault(step.bucket, Bucket(step.rate_us, step.burst, now))
            gcra.demand(bucket, step, now)
            tokens.append(bucket.burst - gcra.level_at(bucket, now) - gcra.kept(bucket, step, now))
            if not gcra.admits(bucket, step, now):
                refused.append(Refusal(step.limit, gcra.refuse(bucket, step, now)))
        if refused:
            return Reading(tuple(refused), tuple(tokens))
        for step in asked.own:
            gcra.take(self.buckets[step.bucket], step, now)
        return Reading((), tuple(left - step.cost for left, step in zip(tokens, asked.own, strict=True)))


KEY, TENANT = charge("key", 10, 5), charge("tenant", 25, 8)
NARROW = charge("login", 1, 1)
DEAR_KEY, DEAR_TENANT = replace(KEY, cost=4.0), replace(TENANT, cost=4.0)
PLANS = (
    plan(KEY, TENANT),
    plan(as_batch(KEY), as_batch(TENANT)),
    plan(KEY, TENANT, NARROW),
    plan(DEAR_KEY, DEAR_TENANT),
    plan(as_batch(DEAR_KEY), as_batch(DEAR_TENANT)),
    plan(TENANT),
)


class StoreContract:
    """Subclass per store, and say how one is opened."""

    #: Whether what was earned between a reload and the next ask was earned at the new rate, or still at the old one.
    reloads_at_once = True

    @abstractmethod
    def open(self, policies: PolicySet, now: Micros) -> Store:
        """Return a new store, with no bucket in it."""

    def test_a_hold_refuses_until_its_instant(self) -> None:
        """A hold refuses whatever is left, with its true wait, beside the limits that refuse too, and costs nothing."""
        store = self.open(policy_set(), EPOCH)
        held = replace(plan(KEY, TENANT), holds=(Hold("paused", EPOCH + 7 * SECOND),))
        for _ in range(20):
            assert store.take(held, EPOCH).refused == (Refusal("paused", 7 * SECOND),)
        reading = store.take(plan(KEY, TENANT), EPOCH)
        assert (reading.refused, reading.tokens) == ((), (4.0, 7.0))
        dear = replace(held, own=(charge("key", 0.0, 0.0),))
        assert [refusal.limit for refusal in store.take(dear, EPOCH).refused] == ["key", "paused"]
        assert store.take(held, EPOCH + 7 * SECOND).refused == ()

    def test_all_or_none_over_own_limits(self) -> None:
        """What one limit refuses costs nothing at the others; all that refuse are listed with their own waits."""
        store = self.open(policy_set(), EPOCH)
        wide, narrow, narrower = charge("key"), charge("tenant", 1, 1), charge("login", 0.5, 1)
        assert store.take(plan(wide, narrow, narrower), EPOCH).refused == ()
        for _ in range(50):
            reading = store.take(plan(wide, narrow, narrower), EPOCH)
            assert reading.refused == (Refusal("tenant", SECOND), Refusal("login", 2 * SECOND))
        assert store.take(plan(wide), EPOCH).tokens == (18.0,)

    def test_all_or_none_over_seats(self) -> None:
        """A request that finds no seat costs no tokens, and one that is over its quota takes no seat."""
        store = self.open(policy_set(), EPOCH)
        seats = (SeatCharge("ci", 2), SeatCharge("acme", 9))
        held = plan(charge(burst=3), seats=seats)
        assert [store.take(held, EPOCH).refused for _ in range(2)] == [(), ()]
        assert [refusal.limit for refusal in store.take(held, EPOCH).refused] == ["concurrency"]
        store.release(held)
        assert store.take(held, EPOCH).refused == ()
        store.release(held)
        assert [refusal.limit for refusal in store.take(held, EPOCH).refused] == ["key"]
        assert store.take(held, EPOCH + SECOND).refused == ()

    def test_every_full_seat_and_quota_is_listed(self) -> None:
        """Seats are own limits beside the others: all that refuse are listed."""
        store = self.open(policy_set(), EPOCH)
        held = plan(charge(burst=1), seats=(SeatCharge("ci", 1),))
        store.take(held, EPOCH)
        assert [refusal.limit for refusal in store.take(held, EPOCH).refused] == ["key", "concurrency"]

    def test_full_seats_say_whose_they_are(self) -> None:
        """A tenant whose seats are taken by one credential refuses the others in its own name."""
        store = self.open(policy_set(), EPOCH)
        tenants = SeatCharge("acme", 1, "tenant")
        store.take(plan(charge(), seats=(SeatCharge("web", 5), tenants)), EPOCH)
        refused = store.take(plan(charge(), seats=(SeatCharge("ci", 5), tenants)), EPOCH).refused
        assert [(refusal.limit, refusal.whose) for refusal in refused] == [("concurrency", "tenant")]

    def test_own_limits_come_first(self) -> None:
        """What own limits refuse costs the backstop nothing, and does not list it."""
        narrow = plan(charge("key", 1, 1))
        fresh, used = (self.open(policy_set(backstop=quota(1, 5)), EPOCH) for _ in range(2))
        assert used.take(narrow, EPOCH).refused == ()
        for _ in range(50):
            assert [refusal.limit for refusal in used.take(narrow, EPOCH).refused] == ["key"]
        assert drained(used) == drained(fresh) - 1

    def test_refusal_of_the_backstop_costs_nothing_own(self) -> None:
        """What the backstop refuses takes no token and no seat, and is the one limit listed."""
        store = self.open(policy_set(backstop=quota(1, 5)), EPOCH)
        drained(store)
        seat = SeatCharge("ci", 1)
        for _ in range(20):
            reading = store.take(plan(charge(), seats=(seat,)), EPOCH)
            assert len(reading.refused) == 1
            assert reading.refused[0].limit in {"share", "backstop"}
            assert reading.refused[0].wait_us > 0
            assert reading.tokens == (20.0,)
        assert store.take(plan(charge(), seats=(seat,), backstop=False), EPOCH).tokens == (19.0,)

    def test_shadow_is_asked_apart_and_changes_only_itself(self) -> None:
        """A shadow limit refuses nobody and says that it would have; it is asked only of what was taken."""
        store = self.open(policy_set(), EPOCH)
        watched = plan(charge(burst=3), shadow=(charge("try", 1, 1), charge("wide")))
        assert store.take(watched, EPOCH).shadow_refused == ()
        for _ in range(2):
            reading = store.take(watched, EPOCH)
            assert reading.refused == ()
            assert reading.shadow_refused == (Refusal("try", SECOND),)
        reading = store.take(watched, EPOCH)
        assert [refusal.limit for refusal in reading.refused] == ["key"]
        assert reading.shadow_refused == ()
        assert store.take(plan(charge("wide")), EPOCH).tokens == (16.0,)

    def test_give_back_returns_everything_once_taken(self) -> None:
        """What never reached the upstream goes back to own limits, shadow limits and backstop alike."""
        store = self.open(policy_set(backstop=quota(1, 1)), EPOCH)
        whole = plan(charge(burst=1), shadow=(charge("try", 1, 1),))
        for _ in range(5):
            reading = store.take(whole, EPOCH)
            assert (reading.refused, reading.shadow_refused) == ((), ())
            store.give_back(whole, EPOCH, reading)

    def test_give_back_leaves_what_shadow_did_not_take(self) -> None:
        """A shadow limit that said no was not charged, so nothing goes back to it."""
        store = self.open(policy_set(), EPOCH)
        watched = plan(charge(), shadow=(charge("try", 1, 1),))
        store.take(watched, EPOCH)
        store.give_back(watched, EPOCH, store.take(watched, EPOCH))
        assert store.take(watched, EPOCH).shadow_refused == (Refusal("try", SECOND),)

    def test_give_back_without_a_reading_leaves_shadow_alone(self) -> None:
        """Without the reading nobody knows what the shadow limits took."""
        store = self.open(policy_set(), EPOCH)
        watched = plan(charge(burst=1), shadow=(charge("try", 1, 1),))
        store.take(watched, EPOCH)
        store.give_back(watched, EPOCH)
        assert store.take(watched, EPOCH).shadow_refused == (Refusal("try", SECOND),)

    def test_zero_quota_refuses_for_ever(self) -> None:
        """`0/s` refuses everything, and says so."""
        store = self.open(policy_set(), EPOCH)
        assert store.take(plan(charge(rate=0)), EPOCH).refused == (Refusal("key", NEVER),)

    def test_rejected_plan_asks_no_backstop(self) -> None:
        """A plan without a share is decided by own limits alone."""
        store = self.open(policy_set(backstop=quota(1, 1)), EPOCH)
        for _ in range(20):
            assert store.take(plan(charge(), backstop=False), EPOCH).refused == ()

    @pytest.mark.parametrize(("rate", "burst", "left"), [(10.0, 40.0, 20.0), (10.0, 5.0, 2.5), (100.0, 20.0, 10.0)])
    def test_reload_refills_nothing_and_forgets_nothing(self, rate: float, burst: float, left: float) -> None:
        """A changed quota keeps the part that is spent; what was earned before was earned at the old rate."""
        store = self.open(policy_set(), EPOCH)
        for _ in range(20):
            store.take(plan(charge()), EPOCH)
        reloaded = EPOCH + SECOND
        store.rebuild(policy_set(), reloaded)
        asked = plan(charge(rate=rate, burst=burst))
        now = reloaded + SECOND // 100
        earned = rate / 100 if self.reloads_at_once else 10 / 100 * burst / 20
        assert store.take(asked, now).tokens[0] == pytest.approx(left + earned - 1.0)

    def test_reload_keeps_seats(self) -> None:
        """Requests under way keep their seats over a reload."""
        store = self.open(policy_set(), EPOCH)
        held = plan(charge(), seats=(SeatCharge("ci", 1),))
        store.take(held, EPOCH)
        store.rebuild(policy_set(), EPOCH)
        assert [refusal.limit for refusal in store.take(held, EPOCH).refused] == ["concurrency"]
        store.release(held)
        assert store.take(held, EPOCH).refused == ()


class ExactContract(StoreContract):
    """The contract of a store that takes each step by itself."""

    @given(st.lists(st.tuples(st.integers(0, 400_000), st.sampled_from(range(len(PLANS)))), min_size=1, max_size=80))
    # Each example opens a store of its own, so it does not matter which store's test draws it.
    @settings(max_examples=60, suppress_health_check=[HealthCheck.differing_executors])
    def test_steps_are_the_kernels(self, trace: list[tuple[int, int]]) -> None:
        """Readings, waits and tokens equal the kernel's, step by step, with both classes at play."""
        store, reference, now = self.open(policy_set(backstop=quota(10**6, 10**6)), EPOCH), Reference(), EPOCH
        for pause, which in trace:
            now += pause
            assert store.take(PLANS[which], now) == reference.take(PLANS[which], now)
