"""The backstop of several processes, each step of it: what is told, leased, heard, and what faults come to."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from gateway.clock import Clock
from gateway.stores.leased.reports import Told, pack_report, read_renewal, read_report
from gateway.stores.leased.shares import LEASE_US, LeasedBackstop
from gateway.stores.link import StoreFault
from policies.charge import ShareCharge
from policies.kernels.division import Outlook
from policies.kernels.parts import Heard
from policies.policy import ClassRule
from policies.request import Class
from policies.units import SECOND
from tests.clock import StandingClock
from tests.policies.documents import CLASSES, policy_set, quota
from tests.stores.fleet import Fleet
from tests.stores.link.linked import NAMES, linked
from tests.wire.redis import RedisServer
from tests.wire.waiting import until

__all__: list[str] = []

POLICIES = policy_set(backstop=quota(1_000, 500))
CEILED = policy_set(backstop=quota(1_000, 500), classes=(CLASSES[0], ClassRule(1, 0.25, 0.05, ceiling=0.4)))


def ask(tenant: str, cls: Class = Class.INTERACTIVE, weight: float = 1.0) -> ShareCharge:
    """Return an ask of a listed tenant without limits of its own."""
    return ShareCharge(tenant, weight, True, 1.0, cls, float("inf"), float("inf"))


@pytest.fixture
def clock() -> StandingClock:
    """Return the clock of all processes."""
    return StandingClock()


def pressed(fleet: Fleet, asks: dict[int, tuple[ShareCharge, int]], seconds: float) -> dict[int, float]:
    """Let each process be asked so many times a tick; return what each let through a second."""
    taken = dict.fromkeys(asks, 0)
    for _ in range(int(seconds * 50)):
        fleet.tick()
        for index, (wanted, times) in asks.items():
            taken[index] += sum(fleet.backstops[index].take(wanted, fleet.clock.at) is None for _ in range(times))
    return {index: count / seconds for index, count in taken.items()}


def test_one_process_has_all_and_begins_with_a_full_bucket(clock: StandingClock) -> None:
    """It begins with nothing but what may be owed for a first ask; after the first answer it has what there is."""
    fleet = Fleet(POLICIES, 1, clock)
    backstop = fleet.backstops[0]
    assert backstop.lease_share == 0.0
    assert backstop.take(ask("a"), clock.at) is None
    fleet.settle(0.1)
    assert fleet.held == [1.0]
    assert backstop.view(clock.at).tokens == pytest.approx(500.0, abs=1.0)
    assert backstop.view(clock.at).debt_bound == 500.0


def test_second_process_gets_its_half_within_two_periods_and_no_tokens(clock: StandingClock) -> None:
    """Idle processes hold even parts, so a first ask finds something wherever it comes; joining mints nothing."""
    fleet = Fleet(POLICIES, 1, clock)
    fleet.settle(0.5)
    other = fleet.join()
    assert other.take(ask("first"), clock.at) is None
    fleet.settle(0.5)
    assert fleet.held == [0.5, 0.5]
    assert [backstop.processes for backstop in fleet.backstops] == [2, 2]
    assert Outlook(*other.outlook(clock.at)).tokens < 250.0


def test_capacity_follows_demand_and_levels_are_one(clock: StandingClock) -> None:
    """One tenant asks for all it can get in the one process, another in the other, at weights 3 and 1."""
    fleet = Fleet(POLICIES, 2, clock)
    asks = {0: (ask("heavy", weight=3.0), 30), 1: (ask("light"), 30)}
    pressed(fleet, asks, 2.0)
    taken = pressed(fleet, asks, 4.0)
    assert taken[0] == pytest.approx(750.0, rel=0.05)
    assert taken[1] == pytest.approx(250.0, rel=0.05)
    levels = [backstop.view(clock.at).level for backstop in fleet.backstops]
    assert levels == [pytest.approx(250.0, rel=0.1)] * 2
    share = fleet.backstops[0].share_of("heavy", clock.at)
    assert share is not None
    # Its weight counts twice in the one process where it is.
    assert share.share == pytest.approx(750.0, rel=0.15)
    assert fleet.backstops[0].share_of("nobody", clock.at) is None


def test_every_process_shows_the_whole(clock: StandingClock) -> None:
    """Demand, use, tokens and debt are those of all."""
    fleet = Fleet(POLICIES, 2, clock)
    pressed(fleet, {0: (ask("heavy"), 30), 1: (ask("light"), 2)}, 3.0)
    for backstop in fleet.backstops:
        view = backstop.view(clock.at)
        assert view.contended
        assert view.demand == pytest.approx(1_600.0, rel=0.1)
        assert view.used_ratio == pytest.approx(1.0, abs=0.1)


def test_group_of_unlisted_tenants_is_shared_too(clock: StandingClock) -> None:
    """Unlisted tenants in one process and in another get what is the group's, and listed ones what is theirs."""
    fleet = Fleet(policy_set(backstop=quota(1_000, 100), unlisted_weight=1.0), 2, clock)
    unlisted = [replace(ask(name), listed=False) for name in ("x", "y")]
    asks = {0: (unlisted[0], 20), 1: (unlisted[1], 20)}
    pressed(fleet, asks, 3.0)
    taken, listed = {0: 0.0, 1: 0.0}, 0.0
    for step in range(80):
        part = pressed(fleet, asks, 0.05)
        busy = pressed(fleet, {0: (ask("listed"), 40)}, 0.05)[0]
        if step >= 40:
            listed += busy / 40
            taken = {index: taken[index] + part[index] / 40 for index in taken}
    assert taken[0] == pytest.approx(taken[1], rel=0.15)
    assert sum(taken.values()) == pytest.approx(listed, rel=0.2)


def test_ceilings_are_leased_apart(clock: StandingClock) -> None:
    """Batch calls that come to one process only get the whole of what the class may use."""
    fleet = Fleet(CEILED, 2, clock)
    batch = ask("batch", Class.BATCH)
    pressed(fleet, {0: (batch, 20)}, 2.0)
    assert pressed(fleet, {0: (batch, 20)}, 3.0)[0] == pytest.approx(400.0, rel=0.05)


def test_faults_and_nonsense_leave_the_lease(clock: StandingClock) -> None:
    """A call that failed, or an answer that is none, changes nothing; the next period asks again."""
    fleet = Fleet(POLICIES, 1, clock)
    fleet.settle(0.5)
    wire = fleet.wires[0]
    for nonsense in (StoreFault("timeout", "no answer"), b"?", [], [b"short"], [1, 2]):
        while not wire.sent:
            fleet.tick(answer=False)
        wire.sent.popleft()[1](nonsense)
        assert fleet.held == [1.0]
    fleet.settle(0.2)
    assert fleet.held == [1.0]


def test_an_answer_that_was_overtaken_is_not_heard(clock: StandingClock) -> None:
    """After a fault the late answer is, unless the next call went out meanwhile."""
    fleet = Fleet(POLICIES, 1, clock)
    fleet.settle(0.5)
    wire = fleet.wires[0]
    heard = []
    for _ in range(2):
        while not wire.sent:
            fleet.tick(answer=False)
        args, answer = wire.sent.popleft()
        answer(StoreFault("timeout", "no answer"))
        heard.append((fleet.reply(args), answer))
    fleet.table.clear()
    fleet.backstops[0]._leases[0].held = 700.0
    heard[0][1](heard[0][0])
    assert fleet.held == [0.7]
    heard[1][1](heard[1][0])
    assert fleet.held == [1.0]


def test_a_report_that_cannot_be_read_is_not_heard(clock: StandingClock) -> None:
    """Its process counts as one without demand; the others' reports are heard."""
    fleet = Fleet(POLICIES, 2, clock)
    fleet.settle(0.5)
    for _ in range(5):
        fleet.table[2].report = b"nonsense"
        fleet.clock.at += SECOND // 50
        fleet.backstops[0].tick(clock.at)
        while fleet.wires[0].sent:
            fleet.answer(fleet.wires[0])
    assert fleet.backstops[0].processes == 2
    fleet.settle(0.5)
    assert fleet.held == [0.5, 0.5]


def test_a_dead_process_is_counted_for_a_lease_and_one_that_leaves_is_not(clock: StandingClock) -> None:
    """What it held goes to the others after 1.5 s, or at once."""
    fleet = Fleet(POLICIES, 3, clock)
    fleet.settle(1.0)
    assert fleet.held == [0.333] * 3
    fleet.backstops.pop().leave()
    fleet.answer(fleet.wires.pop())
    fleet.settle(0.3)
    assert fleet.held == [0.5, 0.5]
    fleet.backstops.pop()
    fleet.wires.pop()
    fleet.settle(LEASE_US / SECOND / 2)
    assert fleet.held == [0.5]
    fleet.settle(LEASE_US / SECOND / 2 + 0.3)
    assert fleet.held == [1.0]


def test_a_reload_keeps_the_part(clock: StandingClock) -> None:
    """At half the capacity each process has half of what it had, before anything is heard; ceilings come and go."""
    fleet = Fleet(CEILED, 2, clock)
    fleet.settle(0.5)
    for rate, classes in ((500.0, CLASSES), (500.0, CEILED.classes), (0.0, CLASSES), (1_000.0, CLASSES)):
        for backstop in fleet.backstops:
            backstop.rebuild(rate / SECOND, 250.0, classes, 1.0, clock.at, 100)
        fleet.settle(0.5)
        if rate:
            assert fleet.held == [0.5, 0.5]
    assert [backstop.view(clock.at).demand for backstop in fleet.backstops] == [0.0, 0.0]
    # Between any two steps, too.
    for classes in (CEILED.classes, CLASSES) * 6:
        fleet.tick()
        fleet.backstops[0].rebuild(1_000 / SECOND, 250.0, classes, 1.0, clock.at, 100)
    assert fleet.held == [0.5, 0.5]


def test_while_some_have_reloaded_nobody_starves(clock: StandingClock) -> None:
    """Processes that disagree about the whole share its parts; the one that knows of less keeps its part of that."""
    fleet = Fleet(POLICIES, 2, clock)
    fleet.settle(0.5)
    fleet.backstops[1].rebuild(100_000 / SECOND, 50_000.0, CLASSES, 1.0, clock.at, 100)
    fleet.settle(2.0)
    assert fleet.held == [0.5, 0.5]


def test_no_capacity_is_for_nobody(clock: StandingClock) -> None:
    """A backstop of 0/s refuses for ever, in every process."""
    fleet = Fleet(policy_set(backstop=quota(0, 0)), 2, clock)
    fleet.settle(0.5)
    refusal = fleet.backstops[1].take(ask("a"), clock.at)
    assert refusal is not None
    assert refusal.limit == "backstop"
    assert fleet.held == [0.0, 0.0]
    assert fleet.backstops[0].view(clock.at).used_ratio == 0.0


def test_one_command_a_period_while_nothing_changes(clock: StandingClock) -> None:
    """Five a second and process while less than half is wanted, else ten."""
    fleet = Fleet(POLICIES, 2, clock)
    fleet.settle(1.0)
    before = [wire.calls for wire in fleet.wires]
    fleet.settle(2.0)
    assert [wire.calls - count for wire, count in zip(fleet.wires, before, strict=True)] == [10, 10]
    asks = {0: (ask("a"), 8), 1: (ask("b"), 8)}
    pressed(fleet, asks, 2.0)
    before = [wire.calls for wire in fleet.wires]
    pressed(fleet, asks, 2.0)
    assert [wire.calls - count for wire, count in zip(fleet.wires, before, strict=True)] == [20, 20]


TOLD = Told(Outlook(-3.0, 2.0, 1.0, [(8.0, 4.0)]), Outlook(5.0, 0.0, 0.0, [(6.0, 2.0)]), Heard({b"8octets!": 9.0}, {}))


def test_reports_travel_whole() -> None:
    """Levels of one of four become those of all; numbers keep seven digits."""
    told = read_report(pack_report([(0, TOLD), (2, TOLD)], 4))
    assert list(told) == [0, 2]
    assert told[2] == TOLD._replace(
        outlook=TOLD.outlook._replace(rows=[(32.0, 1.0)]), group=TOLD.group._replace(rows=[(24.0, 0.5)])
    )


@pytest.mark.parametrize("cut", [1, 20, 30, 50])
def test_a_report_cut_short_is_none(cut: int) -> None:
    """However far it goes."""
    with pytest.raises(ValueError, match="report"):
        read_report(pack_report([(0, TOLD)], 1)[:cut])


def test_a_report_of_no_numbers_is_none() -> None:
    """Neither infinity nor NaN gets into a level."""
    with pytest.raises(ValueError, match="number"):
        read_report(pack_report([(0, TOLD._replace(outlook=Outlook(float("nan"), 0.0, 0.0, [])))], 1))


@pytest.mark.parametrize("reply", [None, [], [b"x"], [b"x" * 24, 5]])
def test_a_reply_that_is_none(reply: object) -> None:
    """Of another type, or of another size."""
    with pytest.raises(ValueError, match="not a reply"):
        read_renewal(reply, 1)


async def test_two_processes_on_a_real_server(redis_server: RedisServer) -> None:
    """Through the link and the script, on the server's clock: what is there is where it is wanted."""
    clock, key = Clock(), NAMES.key("backstop", "shares")
    async with linked(redis_server.url) as one, linked(redis_server.url) as two:
        backstops = [LeasedBackstop(POLICIES, link, key, at + 1, clock.now) for at, link in enumerate((one, two))]
        busy = ask("busy")

        async def serve() -> None:
            while True:
                for backstop in backstops:
                    backstop.tick(clock.now())
                for _ in range(40):
                    backstops[0].take(busy, clock.now())
                await asyncio.sleep(0.02)

        serving = asyncio.create_task(serve())
        try:
            await until(lambda: backstops[0].lease_share > 0.9, "capacity is where it is wanted")
            assert backstops[0].lease_share + backstops[1].lease_share <= 1.0001
            assert backstops[1].processes == 2
            backstops[1].leave()
            await until(lambda: redis_server.ask("HLEN", key) >= 1, "the record is there")
            assert 0 < redis_server.ask("PTTL", key) <= 1_500
        finally:
            serving.cancel()
