"""Seats are shared: whoever holds fewest by weight is next, and who comes new finds one, whatever others hold."""

from __future__ import annotations

import pytest

from gateway.proxy.call import Account, Call, Line
from gateway.proxy.seats import MEMORY, Seats
from policies.charge import Memo, ShareCharge
from policies.request import Class
from tests.gateway.proxy.reach import Told, ask, get, on_both_loops, reaching, sent, until
from tests.wire.origin import serving
from tests.wire.script import HANG, Answer


def share(tenant: str, weight: float = 1.0) -> ShareCharge:
    """Return what a tenant's plan says of its share."""
    return ShareCharge(tenant, weight, True, 1.0, Class.INTERACTIVE, 1.0, 1.0)


class _Nowhere(Line):
    def withdraw(self, call: Call) -> None:
        """Nothing waits here."""


def a_call() -> Call:
    """Return a call that only stands in a line."""
    return Call(_Nowhere(), Told(), b"GET", b"/", b"", None, 0, True, 1.0, 1.0)


class Hall:
    """Seats, and tenants that ask for them at a given time."""

    def __init__(self, seats: int) -> None:
        self.seats = Seats(seats)

    def ask(self, tenant: str, times: int = 1, weight: float = 1.0, now: float = 0.0) -> int:
        """Ask for seats, waiting for those that there are not; return how many were given at once."""
        given = 0
        for _ in range(times):
            account = self.seats.account(share(tenant, weight), now)
            if self.seats.first(now) is None and not account.line and self.seats.take(account, now):
                given += 1
            else:
                self.seats.wait(account, a_call())
                given += self.serve(now).count(account)
        return given

    def serve(self, now: float = 0.0) -> list[Account]:
        """Give what may be given to those that wait."""
        served = []
        while (account := self.seats.first(now)) is not None:
            self.seats.leave(account, account.first())
            assert self.seats.take(account, now)
            served.append(account)
        return served

    def end(self, tenant: str, times: int = 1, now: float = 0.0) -> list[str | None]:
        """End so many requests of a tenant, one by one; return who got the seats."""
        served = []
        for _ in range(times):
            self.seats.give(self.seats.account(share(tenant), now))
            served += [account.tenant for account in self.serve(now)]
        return served

    def held(self, tenant: str) -> int:
        """How many seats a tenant has."""
        return self.seats.account(share(tenant), 0.0).held


@pytest.mark.parametrize(("seats", "alone"), [(1, 1), (2, 2), (10, 10), (15, 15), (16, 15), (64, 60), (512, 480)])
def test_a_tenant_alone_leaves_a_sixteenth(seats: int, alone: int) -> None:
    """Nothing of fewer than sixteen seats, of which each counts."""
    assert Hall(seats).ask("hog", 2 * seats) == alone


def test_whoever_comes_new_finds_a_seat() -> None:
    """However many one tenant holds and waits for, and a second one after it; neither ends anything."""
    hall = Hall(512)
    assert hall.ask("hog", 10_000) == 480
    assert hall.ask("second", 10_000) == 30
    assert hall.ask("light") == 1
    assert hall.ask("later") == 1


def test_a_seat_that_comes_free_goes_to_the_fewest() -> None:
    """The hog, far above its part, gets none while another waits; in the end both have as many."""
    hall = Hall(64)
    hall.ask("hog", 400)
    hall.ask("other", 400)
    before = hall.held("hog")
    assert "hog" not in hall.end("hog", 20)
    assert hall.held("hog") == before - 20
    for _ in range(200):
        hall.end("hog")
        hall.end("other")
    assert abs(hall.held("hog") - hall.held("other")) <= 1
    assert hall.held("hog") + hall.held("other") >= 60


def test_seats_follow_weight() -> None:
    """Three to one, where both want more than there is."""
    hall = Hall(64)
    hall.ask("heavy", 400, weight=3.0)
    hall.ask("plain", 400)
    for _ in range(150):
        for tenant, weight in (("heavy", 3.0), ("plain", 1.0)):
            account = hall.seats.account(share(tenant, weight), 0.0)
            hall.seats.give(account)
            hall.serve()
    heavy = hall.seats.account(share("heavy", 3.0), 0.0).held
    assert 2.5 <= heavy / hall.held("plain") <= 3.5


def test_the_last_seat_of_few_is_for_one_without() -> None:
    """While two are about; a minute after the other was last seen, one may have them all."""
    hall = Hall(4)
    hall.ask("light")
    hall.end("light")
    assert hall.ask("hog", 10) == 3
    assert hall.ask("light") == 1
    hall.end("light")
    assert hall.serve(MEMORY - 1.0) == []
    assert [each.tenant for each in hall.serve(MEMORY + 1.0)] == ["hog"]


def test_who_is_refused_within_its_part() -> None:
    """A tenant is over if it holds its part, less what is kept free; nobody else can be the cause of its wait then."""
    hall = Hall(64)
    hall.ask("hog", 100)
    hog = hall.seats.account(share("hog"), 0.0)
    assert not hall.seats.within(hog)
    hall.ask("light", 100)
    assert hall.seats.within(hall.seats.account(share("light"), 0.0))
    assert not hall.seats.within(hog)


def test_accounts_and_queue_are_bounded() -> None:
    """Whoever comes, only those that hold or wait are kept for certain; a long life leaves nothing in the queue."""
    hall = Hall(64)
    hall.ask("hog", 200)
    for number in range(20_000):
        hall.ask(f"t{number}")
        hall.end(f"t{number}")
        hall.end("hog")
    assert len(hall.seats) < 17_000
    assert len(hall.seats._queue) < 2_000
    assert hall.seats.taken == sum(each.held for each in hall.seats._accounts.values())


def test_an_account_is_found_by_a_plan_of_its_tenant() -> None:
    """One per tenant and upstream, with the weight of now, whichever of its plans asks and what that asked before."""
    here, there = Seats(4), Seats(4)
    plans = [Memo(), Memo()]
    account = here.account(share("a"), 0.0)
    for memo in (*plans, *plans):
        assert here.account(share("a", 3.0), 0.0, memo) is account
        assert there.account(share("a"), 0.0, memo) is not account
        assert there.account(share("a"), 0.0, memo) is there.account(share("a"), 0.0)
    assert account.weight == 3.0
    assert (len(here), len(there)) == (1, 1)


def test_a_forgotten_account_is_not_used_again() -> None:
    """A plan remembers one that is in the table no more; its tenant has another, and never two."""
    seats, memo, holding = Seats(4), Memo(), Memo()
    before = seats.account(share("idle"), 0.0, memo)
    held = seats.account(share("holds"), 0.0, holding)
    assert seats.take(held, 0.0)
    for number in range(17_000):
        seats.account(share(f"t{number}"), 0.0)
    after = seats.account(share("idle"), 0.0, memo)
    assert after is not before
    assert after is seats.account(share("idle"), 0.0) is seats.account(share("idle"), 0.0, memo)
    assert seats.account(share("holds"), 0.0, holding) is held


def test_weights_add_up_through_everything() -> None:
    """A weight that changes under way, calls put back and calls that leave twice: the sums end at nothing."""
    seats = Seats(2)
    first, second = seats.account(share("a"), 0.0), seats.account(share("b"), 0.0)
    assert seats.take(first, 0.0)
    call = a_call()
    seats.wait(second, call)
    seats.account(share("b", 2.0), 0.0)
    seats.leave(second, call)
    seats.back(second, call)
    assert seats.first(0.0) is second
    seats.leave(second, call)
    seats.leave(second, call)
    seats.give(first)
    assert (seats.taken, seats._active, seats._weights, seats.first(0.0)) == (0, 0, 0.0, None)


@on_both_loops
async def test_trickled_bodies_of_one_leave_seats_for_another() -> None:
    """One tenant sends 40 bodies that never end, on 16 connections; another's requests are all served meanwhile."""
    with serving() as origin:
        origin.on("/slow", HANG)
        async with reaching(origin, max_connections=16, connect_timeout="5s") as upstream:
            hogs = [ask(upstream, "POST", "/slow", length=100_000, body=b"x", share=share("hog")) for _ in range(40)]
            await until(lambda: sum(told.sent for told in hogs) == 15)
            for _ in range(10):
                assert (await get(upstream, share=share("light"))).kind == "done"
            assert sum(told.sent for told in hogs) == 15
            for told in hogs:
                told.silent = True
                if told.call is not None:
                    told.call.cancel()


@on_both_loops
async def test_answers_read_slowly_leave_seats_for_another() -> None:
    """Twenty answers that nobody reads; another tenant is served, and the one that waits too long is over its part."""
    with serving() as origin:
        origin.on("/big", Answer(body=lambda: [b"x" * 10_000] * 10_000, framing="chunked"))
        async with reaching(origin, max_connections=16, connect_timeout="200ms") as upstream:
            hogs = [ask(upstream, target="/big", share=share("hog")) for _ in range(20)]
            for told in hogs:
                if told.call is not None:
                    told.call.pause()
            await until(lambda: sum(told.sent for told in hogs) == 15)
            assert (await get(upstream, share=share("light"))).kind == "done"
            for told in hogs[15:]:
                failure = (await told.end()).failure
                assert failure is not None
                assert (failure.status, failure.over) == (503, True)
            for told in hogs[:15]:
                told.silent = True
                if told.call is not None:
                    told.call.cancel()


@on_both_loops
async def test_a_refusal_within_the_part_says_so() -> None:
    """Who holds nothing and waits in vain was not the cause."""
    with serving() as origin:
        origin.on("/hang", HANG)
        async with reaching(origin, max_connections=2, connect_timeout="150ms") as upstream:
            hanging = [ask(upstream, target="/hang", share=share("hog")) for _ in range(2)]
            for told in hanging:
                await sent(told)
            failure = (await get(upstream, share=share("light"))).failure
            assert failure is not None
            assert (str(failure.kind), failure.over) == ("connections", False)
            for told in hanging:
                told.silent = True
                if told.call is not None:
                    told.call.cancel()
