"""The leased store on the kernels: the contract of every store, and who waits, for what, and what comes of it."""

from __future__ import annotations

from dataclasses import replace
from typing import cast

import pytest

from gateway.config.store_url import read_store_url
from gateway.ports import Store
from gateway.stores.leased.ledger import Asked, Claim, LinkLedger
from gateway.stores.leased.pockets import IDLE, ROUND
from gateway.stores.leased.waiting import LoopTurns
from gateway.stores.link import Answer, Link, StoreFault
from policies.charge import NEVER, Refusal
from policies.kernels.lease import Want
from policies.policy import PolicySet
from policies.units import SECOND, Micros
from tests.clock import StandingClock
from tests.policies.documents import policy_set
from tests.stores.contract import EPOCH, StoreContract, charge, plan
from tests.stores.leases import Patient, opened
from tests.stores.leasing import House, key, level

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


@pytest.fixture
def house() -> House:
    """Return a process alone."""
    return House(StandingClock(EPOCH))


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


def test_what_is_dear_waits_for_its_whole_cost(house: House) -> None:
    """A cost above the burst is admitted by a full bucket alone, which then owes it."""
    asked = key(10, 5, 8)
    house.many(2, asked)
    assert (house.admitted, house.refused) == (1, 1)
    (refusal,) = house.store.take(asked, EPOCH).refused
    assert refusal.wait_us == 8 * SECOND // 10


def test_a_flood_of_keys_is_bounded(house: House) -> None:
    """With no room left new keys share one bucket, here and in the store (case 105)."""
    small = House(StandingClock(EPOCH), max_keys=10)
    for number in range(300):
        step = replace(charge("key", 10, 2, bucket=f"address={number}"), overflow="key anonymous")
        small.many(1, plan(step, backstop=False))
    assert small.store.keys <= 11
    assert small.store.overflow_requests == 290
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


def test_refusal_tells_what_is_here_and_not_what_others_are_owed(house: House) -> None:
    """While a bucket is left alone its tokens are no caller's: `r` is what is held (contract, section 6)."""
    house.many(1500, key(1000, 1000))
    house.clock.at += ROUND
    reading = house.store.take(key(1000, 1000), house.clock.at)
    assert reading.refused
    assert reading.tokens == (0.0,)


def test_overflowing_give_back_and_unheard_replies(house: House) -> None:
    """What overflowed is not given back to anybody, and a reload settles what was never touched again."""
    small = House(StandingClock(EPOCH), max_keys=1)
    plans = [plan(charge("key", 10, 5, bucket=f"address={number}"), backstop=False) for number in range(3)]
    for one in plans:
        small.many(1, one)
    reading = small.store.take(plans[0], EPOCH)
    small.store.give_back(plans[2], EPOCH, reading)
    small.store.give_back(plans[0], EPOCH, reading)
    assert small.store.overflow_requests >= 2
    assert small.store.backstop_part() == small.store.processes() == 1


def test_nobody_is_asked_by_rounds_while_the_store_is_known_to_be_down(house: House) -> None:
    """What is held is spent, demand is noted, and nothing is sent that nobody would answer."""
    for _ in range(10):
        house.many(10, key(100, 100))
        house.rest(ROUND // 5)
    calls = house.ledger.calls
    house.ledger.up = False
    for _ in range(10):
        house.many(1, key(100, 100))
        house.rest(ROUND)
    assert house.ledger.calls == calls
    assert house.admitted > 100


def test_before_the_loop_nobody_waits() -> None:
    """A store that was not started calls nobody, and says so to whoever would wait."""
    turns = LoopTurns()
    assert turns.call_soon(lambda: None) is None
    with pytest.raises(RuntimeError, match="before it was started"):
        turns.call_later(1.0, lambda: None)


@pytest.mark.parametrize("reply", [None, b"", b"\0" * 47, 7, [b"x"]])
def test_reply_of_another_shape_is_a_fault(reply: object) -> None:
    """It is counted as no answer; a late one is dropped."""

    class Talking:
        up = True
        address = read_store_url("redis://127.0.0.1")
        errors = {"timeout": 0}  # noqa: RUF012 - one test's

        def run(self, script: object, keys: object, args: object, answer: Answer, _: int, late: object = None) -> None:
            answer(reply)
            if callable(late):
                late(reply)

    ledger = LinkLedger(cast("Link", Talking()), 1, DEADLINE)
    told: list[object] = []
    ledger.lease([Asked(b"{a}", 1.0, 1.0, Want())], 1.0, told.append, told.append)
    ledger.seat([Claim(b"{a}", 0, 1, 1)], told.append, told.append)
    assert [fault.kind for fault in told if isinstance(fault, StoreFault)] == ["protocol"] * 2
    assert len(told) == 2
    ledger.overdue()
    assert Talking.errors == {"timeout": 1}


def test_costs_may_differ(house: House) -> None:
    """While a bucket is left alone cheap and dear asks are refused alike, each with a wait that is long enough."""
    cheap, dear = key(100, 100), key(100, 100, 50)
    house.many(3, dear)
    house.many(3, cheap)
    assert house.admitted == 2
    waits = [house.store.take(asked, EPOCH).refused[0].wait_us for asked in (cheap, dear)]
    assert waits[0] < waits[1] == SECOND // 2
    calls = house.ledger.calls
    house.many(5, cheap)
    assert house.ledger.calls == calls
