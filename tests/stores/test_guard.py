"""Without an answer of the store below, the posture decides: at once, visibly, and settled where it was taken."""

from __future__ import annotations

import logging
import random
from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest

from gateway.ports import Store
from gateway.stores.guard import BACKSTOP_LEASE, CALM, GuardedStore
from policies.charge import NEVER, Charge, Hold, Plan, Reading, SeatCharge, ShareCharge
from policies.policy import PolicySet
from policies.posture import WAIT_US
from policies.request import Class
from policies.units import SECOND, Micros
from tests.policies.documents import policy_set, quota
from tests.stores.contract import ExactContract
from tests.stores.lost import FakeLeased, FakeState

__all__: list[str] = []

#: Its leases derive from the store in memory.
pytestmark = pytest.mark.interpreted

POLICIES = policy_set(backstop=quota(1000, 1000))


def plan(tenant: str = "acme", rate: float = 100.0, posture: str = "safe-capacity", **changes: Any) -> Plan:
    """Return a plan with a key of `rate` a second, a burst of as much, and a share."""
    key = Charge("key", f"limit=key,tenant={tenant}", rate / SECOND, max(1.0, rate), 1.0, Class.INTERACTIVE)
    share = ShareCharge(tenant, 1.0, True, 1.0, Class.INTERACTIVE, rate / SECOND, max(1.0, rate))
    made = Plan(tenant, "ci", Class.INTERACTIVE, 1.0, (key,), (), (), share, posture=posture)
    return replace(made, **changes)


class TestGuarded(ExactContract):
    """The contract, with a guard before a store that answers."""

    def open(self, policies: PolicySet, now: Micros) -> Store:
        """Return a guarded store whose store is up."""
        state = FakeState()
        return GuardedStore(FakeLeased(policies, state, now), state, policies, 1000, now)


class Lost:
    """A guarded store whose store does not answer."""

    def __init__(self, policies: PolicySet = POLICIES, *, up: bool = False) -> None:
        self.state = FakeState(up, "" if up else "timeout")
        self.leased = FakeLeased(policies, self.state)
        self.store = GuardedStore(self.leased, self.state, policies, 1000, 0, random.Random(9).random)

    def admitted(self, asked: Plan, seconds: int, per_second: int, start: int = 0) -> int:
        """Return how many of evenly spaced asks are admitted."""
        step = SECOND // per_second
        return sum(not self.store.take(asked, start + n * step).refused for n in range(seconds * per_second))


def test_the_leases_decide_while_they_know() -> None:
    """Nothing of a posture is in such a reading, and releases go where the take went."""
    house = Lost(up=True)
    asked = plan(seats=(SeatCharge("acme", 1),))
    reading = house.store.take(asked, 0)
    assert (reading.posture, reading.tokens, house.leased.seats_taken) == ("", (99.0,), 1)
    house.store.release(asked)
    house.store.give_back(asked, 0, reading)
    assert (house.leased.seats_taken, house.store.take(asked, 0).tokens) == (0, (99.0,))
    assert (house.store.decided, house.store.degraded, house.store.up) == (0, "", True)
    assert house.store.ask(asked, 0, lambda: None) is None
    assert (house.store.keys, house.store.overflow_requests, house.store.errors) == (house.leased.keys, 0, {})
    assert house.store.backstop is house.leased.backstop


def test_what_is_known_is_good_for_a_while() -> None:
    """A store that goes leaves its leases, the backstop's too, until they lapse; one never met has given none."""
    house = Lost(up=True)
    house.store.tick(SECOND)
    house.state.lose()
    house.leased.holds = True
    asked = plan(posture="closed")
    assert not house.store.take(asked, SECOND).refused
    assert not house.store.take(asked, SECOND + BACKSTOP_LEASE - 1).refused
    assert house.store.take(asked, SECOND + BACKSTOP_LEASE).posture == "closed"
    assert not house.store.take(replace(asked, share=None), 9 * SECOND).refused
    never = Lost()
    never.leased.holds = True
    assert never.store.take(asked, 0).posture == "closed"


@pytest.mark.parametrize(
    ("posture", "low", "high"),
    [("open", 1000, 1000), ("deny:0", 1000, 1000), ("deny:30", 657, 743), ("deny:100", 0, 0), ("closed", 0, 0)],
)
def test_the_posture_of_the_plan_decides(posture: str, low: int, high: int) -> None:
    """Each request by a draw of its own; a refusal names `posture`, and no reading pretends to know tokens."""
    house = Lost()
    readings = [house.store.take(plan(posture=posture), 0) for _ in range(1000)]
    refused = [reading.refused[0] for reading in readings if reading.refused]
    assert low <= 1000 - len(refused) <= high
    assert all((refusal.limit, refusal.wait_us) == ("posture", WAIT_US) for refusal in refused)
    assert {(reading.posture, reading.tokens) for reading in readings} == {(posture, ())}
    assert house.store.decided == 1000


@pytest.mark.parametrize("posture", ["open", "closed", "deny:50", "safe-capacity"])
def test_what_needs_no_store_holds_under_every_posture(posture: str) -> None:
    """A pause, and a quota of zero."""
    house = Lost()
    paused = house.store.take(plan(posture=posture, holds=(Hold("paused", SECOND),)), 0)
    assert [refusal.limit for refusal in paused.refused] == ["paused"]
    never = house.store.take(plan(rate=0.0, posture=posture), 0)
    assert [(refusal.limit, refusal.wait_us) for refusal in never.refused] == [("key", NEVER)]


def test_safe_capacity_is_a_part_of_every_limit() -> None:
    """Half of the rate and half of the burst of one process; of four, an eighth, or half of its last share."""
    for count, part, share in ((1, 0.0, 0.5), (4, 0.0, 0.125), (4, 0.9, 0.45)):
        house = Lost()
        house.leased.count = count
        house.leased.parts["limit=key,tenant=acme"] = part
        admitted = house.admitted(plan(), 10, 200)
        assert abs(admitted - 1100 * share) <= 2


def test_workers_that_start_without_the_store_know_of_each_other() -> None:
    """Nobody told how many processes there are, but the configuration has so many of this instance."""
    house = Lost()
    house.store.expect(4)
    assert abs(house.admitted(plan(), 10, 200) - 1100 / 8) <= 2


def test_no_second_burst() -> None:
    """A bucket that was empty when it was last heard of begins empty; one half full, half full."""
    for owed, burst in ((1.0, 0), (0.5, 25), (0.0, 50)):
        house = Lost()
        house.leased.owes["limit=key,tenant=acme"] = owed
        assert abs(house.admitted(plan(), 1, 1000) - (50 + burst)) <= 1


def test_a_small_limit_of_many_processes_leaves_something() -> None:
    """Each key has at least one admission per 1/(its rate), and never a refusal for ever (case 39)."""
    policies = policy_set(backstop=quota(2, 2), safe_fraction=0.2)
    house = Lost(policies)
    house.leased.count, house.leased.whole = 8, 0.0
    asked = plan(rate=3.0)
    taken = [n for n in range(2000) if not house.store.take(asked, n * SECOND // 10).refused]
    # The backstop is the tightest: 2/s times 0.2 over 8.
    assert len(taken) >= 200 * 2 * 0.2 / 8 - 1
    assert max(later - before for before, later in pairwise(taken)) <= 10 / 0.05 + 10


def test_tenants_share_what_is_left() -> None:
    """A flood takes nothing of what others need: the backstop at its safe part is shared like the whole one."""
    house = Lost(policy_set(backstop=quota(100, 100)))
    flood, light = plan("flood", 1000.0), [plan(f"light-{n}") for n in range(10)]
    served = {"flood": 0, "light": 0}
    refused: set[str] = set()
    for turn in range(2000):
        now = turn * SECOND // 200
        for _ in range(5):
            reading = house.store.take(flood, now)
            served["flood"] += not reading.refused
            refused |= {refusal.limit for refusal in reading.refused}
        if turn % 10 == 0:  # 20/s in all, of 50
            served["light"] += not house.store.take(light[turn // 10 % 10], now).refused
        house.store.tick(now)
    assert served["light"] == 200
    assert 270 <= served["flood"] <= 330
    assert "share" in refused


def test_who_is_beyond_its_own_limit_is_told_so() -> None:
    """Over the whole limit it is `key`; between the safe part and the whole, `posture`, which is nobody's own doing."""
    told: list[str] = []
    for per_second, limits in ((75, {"posture"}), (500, {"posture", "key"})):
        house = Lost()
        house.leased.owes["limit=key,tenant=acme"] = 1.0
        readings = [house.store.take(plan(), n * SECOND // per_second) for n in range(per_second * 5)]
        told = [refusal.limit for reading in readings for refusal in reading.refused]
        assert set(told) == limits
    # Once the whole limit is used up, all that is over it is the caller's own.
    assert told[-100:].count("key") > 70


def test_seats_are_scaled_and_returned_where_they_were_taken() -> None:
    """Half of them, at least one, those of before counted; what `open` lets in is counted as well."""
    house = Lost()
    asked = plan(seats=(SeatCharge("acme", 4),))
    readings = [house.store.take(asked, 0) for _ in range(3)]
    assert [[refusal.limit for refusal in reading.refused] for reading in readings] == [[], [], ["posture"]]
    house.store.release(asked)
    again = house.store.take(asked, 0)
    assert not again.refused
    opened = house.store.take(replace(asked, posture="open"), 0)
    assert house.leased.seats_taken == 3
    for _ in (readings[1], again, opened):
        house.store.release(asked)
    assert house.leased.seats_taken == 0


def test_what_was_admitted_is_told_when_the_store_is_back() -> None:
    """As it would be owed by then; what was never sent is not told, nor what was refused."""
    house = Lost()
    opened = plan(posture="open")
    readings = [house.store.take(opened, 0) for _ in range(30)]
    house.store.give_back(opened, 0, readings[0])
    safe = plan("beta")
    reading = house.store.take(safe, 0)
    house.store.give_back(safe, 0, reading)
    house.store.take(plan("gone", posture="closed"), 0)
    house.store.tick(SECOND // 10)
    assert house.leased.told == []
    house.state.up = True
    house.store.tick(SECOND // 10)
    ((bucket, units),) = house.leased.told
    assert (bucket, round(units, 6)) == ("limit=key,tenant=acme", 19.0)
    house.store.tick(SECOND // 5)
    assert len(house.leased.told) == 1


def test_a_debt_is_never_more_than_a_burst() -> None:
    """Open may admit any number; what is told of a bucket is that it is empty."""
    house = Lost()
    for _ in range(500):
        house.store.take(plan(posture="open"), 0)
    house.state.up = True
    house.store.tick(0)
    assert house.leased.told == [("limit=key,tenant=acme", 100.0)]


def test_debts_are_bounded() -> None:
    """By `max_keys`, whatever callers send; the rest is not told."""
    house = Lost()
    for n in range(1200):
        house.store.take(plan(f"t{n}", posture="open"), 0)
    house.state.up = True
    for _ in range(10):
        house.store.tick(0)
    assert len(house.leased.told) == 1000


def test_giving_back_what_is_no_longer_kept_is_nothing() -> None:
    """A debt that was told already is not told less."""
    house = Lost()
    reading = house.store.take(plan(posture="open"), 0)
    house.state.up = True
    house.store.tick(0)
    house.store.give_back(plan(posture="open"), 0, reading)
    house.store.tick(0)
    assert len(house.leased.told) == 1


def test_one_line_when_it_goes_and_one_when_it_is_back(caplog: pytest.LogCaptureFixture) -> None:
    """With the cause, and with what was decided meanwhile (case 67)."""
    caplog.set_level(logging.INFO, "evenhand.store")
    house = Lost(up=True)
    for now in range(3):
        house.store.tick(now)
    house.state.lose("refused")
    for now in range(3, 6):
        house.store.tick(now)
        house.store.take(plan(), now)
    assert (house.store.degraded, house.store.lost_us) == ("refused", 3)
    house.state.up = True
    for now in range(2 * SECOND, 2 * SECOND + 3):
        house.store.tick(now)
    assert [record.getMessage() for record in caplog.records] == [
        "the store does not answer (refused): postures decide, safe-capacity by default",
        "the store answers again: 3 requests were decided without it in 2.0 s",
    ]
    assert house.store.lost_us == 0


def test_a_store_that_is_up_and_does_not_decide_is_told_of(caplog: pytest.LogCaptureFixture) -> None:
    """It is too slow, or a part of it is gone: at once, then once a minute; over when a minute was well."""
    house = Lost(up=True)
    house.leased.deaf = True
    for second in range(61):
        house.store.take(plan(), second * SECOND)
        house.store.tick(second * SECOND)
        assert house.store.warnings()
    told = "the store is up, but requests were decided without it: {} within a minute"
    assert [record.getMessage() for record in caplog.records] == [told.format(1), told.format(60)]
    assert house.store.warnings() == [told.format(60)]
    house.store.tick(119 * SECOND)
    assert house.store.warnings()
    house.store.tick(120 * SECOND)
    assert (house.store.warnings(), len(caplog.records)) == ([], 2)


def test_what_an_outage_leaves_is_no_slow_store(caplog: pytest.LogCaptureFixture) -> None:
    """Who comes in the instant in which it is back is counted with the outage."""
    house = Lost()
    house.store.tick(SECOND)
    house.state.up = house.leased.deaf = True
    back = 2 * SECOND
    house.store.tick(back)
    house.store.take(plan(), back)
    house.store.tick(back + 1)
    assert (house.store.warnings(), len(caplog.records)) == ([], 2)
    house.store.take(plan(), back + CALM)
    house.store.tick(back + CALM)
    assert len(caplog.records) == 3


def test_a_first_connection_is_no_outage(caplog: pytest.LogCaptureFixture) -> None:
    """Nothing is told of a store that is not met yet until connecting failed for a second, or somebody missed it."""
    for number, (cause, decided) in enumerate((("", True), ("refused", True), ("refused", False))):
        house = Lost()
        house.state.cause = cause
        house.store.tick(SECOND - 2)
        assert len(caplog.records) == number
        if decided:
            house.store.take(plan(), SECOND - 2)
        house.store.tick(SECOND - 1)
        assert len(caplog.records) == number + decided
        house.store.tick(SECOND)
        assert f"({cause or 'down'})" in caplog.records[number].getMessage()
    calm = Lost()
    calm.state.cause = ""
    calm.store.tick(60 * SECOND)
    calm.state.up = True
    calm.store.tick(61 * SECOND)
    assert len(caplog.records) == 3


def test_a_reload_changes_what_is_safe() -> None:
    """Rates, fraction and backstop of the new configuration, from the next request on."""
    house = Lost()
    assert house.admitted(plan(rate=10.0), 1, 100) in {9, 10}
    house.store.rebuild(policy_set(backstop=quota(1000, 1000), safe_fraction=1.0), SECOND)
    assert 95 <= house.admitted(plan(rate=100.0), 1, 1000, SECOND) <= 205


def test_scaled_plans_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """However many plans come by; one that is scaled anew goes on with its bucket."""
    monkeypatch.setattr("gateway.stores.safe.MAX_PLANS", 2)
    house = Lost()
    plans = [plan(f"t{n}", 2.0) for n in range(4)]
    first = [house.store.take(one, 0).refused for one in plans]
    second = [house.store.take(one, 0).refused for one in plans]
    assert first == [()] * 4
    assert all(second)


def test_refusals_by_share_keep_their_name() -> None:
    """What others did is told as ever."""
    house = Lost(policy_set(backstop=quota(10, 10)))
    limits = {one.limit for n in range(200) for one in house.store.take(plan(rate=500.0), n).refused}
    assert limits <= {"share", "backstop"}
    assert limits


def test_a_reading_of_nobody_goes_to_the_leases() -> None:
    """Whoever gives back without a reading, or with one of the leases."""
    house = Lost(up=True)
    asked = plan()
    house.store.take(asked, 0)
    house.store.give_back(asked, 0)
    assert house.store.take(asked, 0).tokens == (99.0,)
    assert isinstance(house.store.take(asked, 0), Reading)
