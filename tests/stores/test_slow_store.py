"""A store that is up and answers after the deadline: what a posture admits meanwhile is charged."""

from __future__ import annotations

from dataclasses import replace

from gateway.stores.guard import GuardedStore
from gateway.stores.leased.pockets import ROUND
from policies.charge import Plan, SeatCharge
from policies.units import SECOND, Micros
from tests.clock import StandingClock
from tests.policies.documents import policy_set
from tests.stores.contract import EPOCH, plan
from tests.stores.leasing import House, key
from tests.stores.lost import FakeState

__all__: list[str] = []


class Slow(House):
    """A process as its pipeline sees it, of so many; what the store answers is there when the test says so."""

    def __init__(self, clock: StandingClock, beside: House | None = None, peers: int = 1) -> None:
        super().__init__(clock, beside)
        self.state = FakeState()
        self.guard = GuardedStore(self.store, self.state, policy_set(), 1000, clock.now())
        self.guard.expect(peers)
        self.postured = 0
        self.ledger.silent = True

    def send(self, asked: Plan) -> None:
        """Let a request come."""
        if self.guard.ask(asked, self.clock.now(), lambda: self.again(asked)) is None:
            self.decide(asked)

    def decide(self, asked: Plan) -> None:
        """Take."""
        reading = self.guard.take(asked, self.clock.now())
        self.admitted += not reading.refused
        self.postured += bool(reading.posture)

    def arrive(self) -> None:
        """Let the answers come that are late."""
        while self.ledger.late:
            self.ledger.late.pop(0)()

    def trickle(self, duration: Micros, asked: Plan, *others: Slow) -> None:
        """Let a few come each half second, to all."""
        for _ in range(2 * duration // SECOND):
            for one in (self, *others):
                one.many(4, asked)
                one.arrive()
            self.rest(SECOND // 2, *others)
            for one in (self, *others):
                one.arrive()


def slow(processes: int) -> list[Slow]:
    """Return some processes on one store."""
    found = [Slow(StandingClock(EPOCH), None, processes)]
    found += [Slow(found[0].clock, found[0], processes) for _ in range(processes - 1)]
    return found


def test_late_grant_pays_for_what_a_posture_admitted() -> None:
    """One process: 120 at once and another 120 when the answer is there have one burst, and then the rate."""
    (one,) = slow(1)
    one.many(120, key(1, 20))
    assert (one.admitted, one.postured) == (10, 120)
    one.arrive()
    one.many(120, key(1, 20))
    assert one.admitted == 20
    one.trickle(6 * SECOND, key(1, 20))
    assert 22 <= one.admitted <= 26


def test_limit_of_several_holds_however_late_the_answers_are() -> None:
    """What they admit beyond the burst is the safe part of those that got no grant, and is paid back."""
    first, other = fleet = slow(2)
    for one in fleet:
        one.many(120, key(1, 20))
    for one in fleet:
        one.arrive()
        one.many(120, key(1, 20))
    assert sum(one.admitted for one in fleet) <= 20 + 5
    first.trickle(10 * SECOND, key(1, 20), other)
    assert 26 <= sum(one.admitted for one in fleet) <= 30


def test_posture_goes_on_where_it_was() -> None:
    """While the answer is overdue there is one safe bucket, and what it gave is reckoned with."""
    (one,) = slow(1)
    for _ in range(5):
        one.many(50, key(1, 20))
    assert one.admitted == 10
    assert one.store.owed("key", one.clock.at) >= 0.5


def test_pocket_pays_at_once() -> None:
    """A plan that a posture admitted because of another of its limits takes what is held of this one."""
    (one,) = slow(1)
    one.ledger.silent = False
    one.many(1, key(1, 20))
    held = sum(pocket.held for pocket in one.store._pockets.values())
    one.store.owe(key(1, 20), one.clock.at)
    (pocket,) = one.store._pockets.values()
    assert pocket.held + 1 == held + pocket.owed


def test_what_was_never_sent_is_not_owed() -> None:
    """Nor is it paid for; a process that stops tells what it owes."""
    (one,) = slow(1)
    one.ledger.swallows = True
    asked = key(1, 20)
    reading = one.guard.take(asked, EPOCH)
    again = one.guard.take(asked, EPOCH)
    assert (reading.posture, again.posture) == ("safe-capacity", "safe-capacity")
    one.guard.give_back(asked, EPOCH, reading)
    one.store.close()
    assert [asked.want.spent for asked in one.ledger.asked] == [1.0]


def test_debt_is_forgotten_when_the_bucket_is_full_again() -> None:
    """A store that is not heard of for so long has had the time to fill; nothing is kept for it."""
    (one,) = slow(1)
    one.ledger.swallows = True
    one.guard.take(key(10, 20), EPOCH)
    one.rest(2 * SECOND)
    assert one.store.owed("key", one.clock.at) > 0.0
    one.rest(SECOND)
    assert one.store.owed("key", one.clock.at) == 0.0


def test_debts_of_an_outage_are_told_with_the_first_ask() -> None:
    """Whoever comes before the next tick finds no second burst either."""
    (one,) = slow(1)
    one.ledger.silent = False
    one.state.up = one.ledger.up = False
    one.many(50, key(1, 20))
    one.state.up = one.ledger.up = True
    one.many(50, key(1, 20))
    assert one.admitted == 20


def test_seat_is_given_only_if_it_is_free_for_certain() -> None:
    """With others in the store a posture gives no seat that was not leased here; what came late is of use."""
    first, other = slow(2)
    asked = plan(seats=(SeatCharge("tenant=acme", 10),), backstop=False)
    first.ledger.silent = False
    first.many(10, asked)
    other.many(5, asked)
    assert (first.admitted, other.admitted, other.postured) == (10, 0, 5)
    for _ in range(10):
        first.guard.release(asked)
    other.arrive()
    first.rest(3 * ROUND, other)
    other.many(1, asked)
    other.arrive()
    other.many(2, asked)
    assert other.admitted >= 1


def test_answer_that_is_late_for_some_is_one_timeout() -> None:
    """Its call came in time, and whoever waited had none in time: once for the call, not for each."""
    (one,) = slow(1)
    one.ledger.silent = False
    asked = replace(key(1, 20), seats=(SeatCharge("tenant=acme", 10),))
    for _ in range(5):
        one.send(asked)
    flush = one.turns.soon.popleft()
    one.clock.at += SECOND // 50
    one.turns.settle()
    assert (one.postured, one.ledger.overdues) == (5, 0)
    flush()
    one.turns.settle()
    assert one.ledger.overdues == 2
