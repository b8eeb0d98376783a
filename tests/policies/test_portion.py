"""A portion of the backstop: capacity comes and goes, nothing is minted, and uneven tenants get their part."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from policies.kernels.division import Curve, Outlook
from policies.kernels.parts import MOST, Heard, weight_of
from policies.kernels.portion import Portion
from policies.kernels.roster import mark_of
from policies.policy import ClassRule
from policies.units import SECOND, Micros
from tests.clock import EPOCH
from tests.policies.shares import CLASSES, Ask, drain, press

__all__: list[str] = []

NOBODY = Heard({}, {})


def portion(rate: float = 100.0, burst: float = 100.0, classes: tuple[ClassRule, ...] = CLASSES) -> Portion:
    """Return a portion of so much, without a token."""
    return Portion(rate / SECOND, burst, classes, 1.0, EPOCH)


def lease(part: Portion, rate: float, burst: float, now: Micros) -> None:
    """Let it go on at another rate; half of that may be owed."""
    part.lease(rate / SECOND, burst, rate / 2, now)


def test_it_begins_without_a_token_and_is_filled_once_told() -> None:
    """Tokens are there when the record says that the bucket is full, not because a process starts."""
    part = portion()
    assert part.view(EPOCH).tokens == 0.0
    part.fill(EPOCH)
    assert part.view(EPOCH).tokens == pytest.approx(100.0)


@pytest.mark.parametrize(("rate", "burst", "tokens"), [(200.0, 200.0, 40.0), (50.0, 50.0, 40.0), (20.0, 20.0, 20.0)])
def test_capacity_moves_and_tokens_stay(rate: float, burst: float, tokens: float) -> None:
    """40 tokens are 40 at any rate, as far as the burst goes."""
    part = portion()
    now = EPOCH + 400_000
    lease(part, rate, burst, now)
    assert part.view(now).tokens == pytest.approx(tokens)


def test_debt_stays_too() -> None:
    """What is owed is owed at a tenth of the rate as well, and takes ten times as long."""
    part = portion(100.0, 10.0)
    press(part, tuple(Ask(f"t{at}") for at in range(6)), 0.0, 0.02, 300.0)
    debt = part.view(EPOCH + 20_000).debt
    assert debt > 5.0
    lease(part, 10.0, 1.0, EPOCH + 20_000)
    assert part.view(EPOCH + 20_000).debt == pytest.approx(debt)
    assert part.view(EPOCH + 20_000).debt_bound == pytest.approx(5.0)


def test_level_of_the_whole_holds_without_contention() -> None:
    """Where less is wanted than there is, the level is no lower than what all agreed on."""
    part = portion()
    lease(part, 100.0, 100.0, EPOCH)
    drain(part, Ask("a"), EPOCH, 3)
    drain(part, Ask("b"), EPOCH, 3)
    part.keep_level(700.0)
    part.tick(EPOCH + SECOND)
    assert part.level == pytest.approx(700.0)


def test_ceilings_are_portions_with_parts_of_their_own() -> None:
    """The pools of a backstop with a ceiling: the whole as 0, the class as one more than its index."""
    part = portion(classes=(CLASSES[0], ClassRule(1, 0.25, 0.05, ceiling=0.4)))
    assert part.pools()[0] is part
    assert list(part.pools()) == [0, 2]
    assert isinstance(part.pools()[2], Portion)


def test_outlook_tells_tokens_demand_and_use() -> None:
    """Demand is told by what it is per weight, light demand as one number."""
    part = portion(1_000.0, 1_000.0)
    press(part, (Ask("light"),), 0.0, 2.0, 50.0)
    press(part, (Ask("heavy", weight=2.0),), 2.0, 3.0, 2_000.0)
    told = part.outlook(EPOCH + 3 * SECOND)
    assert told.light < 10.0
    assert [weight for _, weight in told.rows] == [2.0]
    assert told.rows[0][0] * 2.0 == pytest.approx(2_000.0, rel=0.15)
    assert told.used == pytest.approx(1_000.0, rel=0.35)


# Uneven tenants


@dataclass
class Fleet:
    """One process, as one of `processes`, whose others say what `told` says."""

    part: Portion
    processes: int = 4

    def run(self, asks: tuple[Ask, ...], begin: float, end: float, rate: float, told: Heard = NOBODY) -> None:
        """Let `asks` come, and do every 100 ms what a process does."""
        for step in range(int((end - begin) * 10 + 0.5)):
            first = begin + step / 10
            for at in range(int(step * rate / 10), int((step + 1) * rate / 10)):
                for ask in asks:
                    self.part.take(ask, EPOCH + int((begin + at / rate) * SECOND))
            now = EPOCH + int((first + 0.1) * SECOND)
            self.part.tick(now)
            self.part.parts.notice(now)
            self.part.parts.hear(told, now)
            self.part.parts.all_heard()
            self.part.parts.step(self.processes, now)

    def weight(self, tenant: str) -> float:
        """Return by what a tenant's weight is multiplied."""
        return self.part.roster.members[tenant].part


OTHERS = tuple(Ask(f"other-{index}") for index in range(4))


def test_whoever_is_only_here_counts_n_times() -> None:
    """A tenant whose bucket runs low and of whom nobody else tells gets nearly its weight times the processes."""
    fleet = Fleet(portion(500.0, 10.0))
    fleet.run(OTHERS, 0.0, 3.0, 300.0)
    assert fleet.weight("other-0") == pytest.approx(4.0, rel=0.06)
    noticed, others = fleet.part.parts.told(EPOCH + 3 * SECOND)
    assert sorted(noticed) == sorted(mark_of(ask.tenant) for ask in OTHERS)
    assert not others
    assert sum(noticed.values()) == pytest.approx(1_200.0, rel=0.1)


def test_whoever_is_elsewhere_too_counts_by_its_part() -> None:
    """With three times as much demand elsewhere it is spread evenly; with nine times it is not."""
    fleet = Fleet(portion(500.0, 10.0))
    told = Heard({mark_of("other-0"): 900.0}, {mark_of("other-1"): 2_700.0})
    fleet.run(OTHERS, 0.0, 3.0, 300.0, told)
    assert fleet.weight("other-0") == pytest.approx(1.0)
    assert fleet.weight("other-1") == pytest.approx(0.4, rel=0.1)


def test_whoever_others_notice_is_followed_here() -> None:
    """Its demand here is told though its bucket is full here, as long as others notice it."""
    fleet = Fleet(portion(1_000.0, 1_000.0))
    told = Heard({mark_of("mild"): 90.0, mark_of("unknown"): 5.0}, {})
    fleet.run((Ask("mild"),), 0.0, 3.0, 10.0, told)
    noticed, others = fleet.part.parts.told(EPOCH + 3 * SECOND)
    assert not noticed
    assert others == {mark_of("mild"): pytest.approx(10.0, rel=0.3)}
    assert fleet.weight("mild") == pytest.approx(0.4, rel=0.4)
    fleet.run((Ask("mild"),), 3.0, 4.0, 10.0)
    assert fleet.part.parts.told(EPOCH + 4 * SECOND) == NOBODY
    assert fleet.weight("mild") == 1.0


def test_whoever_is_uneven_stays_noticed_while_it_would_not_fit() -> None:
    """With its part of the weight its bucket is full again; it is let go when it asks for little."""
    fleet = Fleet(portion(500.0, 10.0))
    uneven = Ask("uneven")
    fleet.run(OTHERS, 0.0, 1.0, 300.0)
    told = Heard({mark_of(ask.tenant): 900.0 for ask in OTHERS}, {})
    for step in range(50):
        fleet.run(OTHERS, 1.0 + step / 10, 1.05 + step / 10, 300.0, told)
        press(fleet.part, (uneven,), 1.05 + step / 10, 1.1 + step / 10, 300.0)
    member = fleet.part.roster.members["uneven"]
    assert member.part > 3.0
    now = EPOCH + 6 * SECOND
    assert member.held(now) > member.small / 2
    assert mark_of("uneven") in fleet.part.parts.told(now).noticed
    fleet.run(OTHERS, 6.0, 9.0, 300.0, told)
    assert mark_of("uneven") not in fleet.part.parts.told(EPOCH + 9 * SECOND).noticed


def test_what_can_be_chance_is_even() -> None:
    """A few requests say nothing about where callers are."""
    fleet = Fleet(portion(8.0, 1.0))
    told = Heard({mark_of(ask.tenant): 4.0 for ask in OTHERS}, {})
    fleet.run(OTHERS, 0.0, 30.0, 2.0, told)
    assert [fleet.weight(ask.tenant) for ask in OTHERS] == [1.0] * 4


def test_callers_that_move_are_followed_at_once() -> None:
    """A tenant of 300/s whose callers all come here from one moment to the next has its part within 400 ms."""
    fleet = Fleet(portion(500.0, 10.0))
    marks = [mark_of(ask.tenant) for ask in OTHERS]
    fleet.run(OTHERS, 0.0, 3.0, 30.0, Heard(dict.fromkeys(marks, 270.0), {}))
    assert fleet.weight("other-0") < 0.6
    fleet.run(OTHERS, 3.0, 3.4, 300.0, Heard(dict.fromkeys(marks, 10.0), {}))
    assert fleet.weight("other-0") > 3.0


def test_one_burst_in_all_for_whoever_asks_for_too_much() -> None:
    """What a tenant over its share has stored here is cut to its part of one burst."""
    fleet = Fleet(portion(500.0, 10.0))
    fleet.run(OTHERS, 0.0, 1.0, 300.0)
    member = fleet.part.roster.members["other-0"]
    now = EPOCH + SECOND
    member.spend(-1_000.0, now)
    held = member.held(now) * member.weight
    fleet.part.parts.hear(Heard({member.mark: 5_000.0}, {}), now)
    fleet.part.parts.all_heard()
    fleet.part.parts.step(4, now)
    assert member.held(now) * member.weight < held / 3


def test_no_more_are_followed_than_twice_so_many() -> None:
    """Of many uneven tenants as many are told of as a report holds; of those that others notice as many again."""
    fleet = Fleet(portion(2_000.0, 10.0))
    asks = tuple(Ask(f"t{at}") for at in range(3 * MOST))
    press(fleet.part, asks, 0.0, 3.0, 30.0)
    now = EPOCH + 3 * SECOND
    for _ in range(3):
        fleet.part.parts.notice(now)
        press(fleet.part, asks, 3.0, 3.0 + 1 / 30, 30.0)
        fleet.part.roster.line.fold(now)
    assert len(fleet.part.parts.told(now).noticed) == MOST
    heard = Heard({mark_of(ask.tenant): 1.0 for ask in asks}, {})
    fleet.part.parts.hear(heard, now)
    noticed, others = fleet.part.parts.told(now)
    assert (len(noticed), len(others)) == (MOST, MOST)
    for _ in range(2):
        fleet.part.parts.step(4, now + 1)
    looked = [member for member in fleet.part.roster.members.values() if member.light_at >= now + SECOND // 2]
    assert len(looked) >= 2 * MOST


def test_no_demand_anywhere_says_nothing() -> None:
    """A tenant that others noticed, and that asks for nothing any more, counts with its whole weight."""
    fleet = Fleet(portion())
    fleet.part.take(Ask("quiet"), EPOCH)
    fleet.run((), 0.0, 0.3, 1.0, Heard({mark_of("quiet"): 0.0}, {}))
    assert fleet.weight("quiet") == 1.0


def test_whoever_left_is_not_followed() -> None:
    """An idle tenant that was dropped is forgotten here as well."""
    fleet = Fleet(portion(500.0, 10.0))
    fleet.run(OTHERS, 0.0, 1.0, 300.0)
    press(fleet.part, (Ask("other-0", listed=False),), 1.0, 1.1, 10.0)
    fleet.run(OTHERS[1:], 1.1, 1.3, 300.0)
    assert fleet.part.parts.told(EPOCH + 1_300_000).noticed.get(mark_of("other-0"), 0.0) < 10.0


def test_whoever_is_noticed_elsewhere_brings_a_quarter_of_a_burst() -> None:
    """When callers come to another process, or a process begins, not everybody has a burst to spend at once."""
    fleet = Fleet(portion(1_000.0, 1.0))
    fleet.run((), 0.0, 0.1, 1.0, Heard({}, {mark_of("known"): 50.0}))
    now = EPOCH + 100_000
    for tenant, tokens in (("known", 4.0), ("new", 19.0)):
        fleet.part.take(Ask(tenant), now)
        member = fleet.part.roster.members[tenant]
        assert member.held(now) * member.weight == pytest.approx(tokens, abs=0.1)


def test_processes_of_later_know_those_of_before() -> None:
    """Members have marks whether they came before the parts were begun or after."""
    part = portion()
    part.take(Ask("before"), EPOCH)
    part.roster.begin_marks()
    part.take(Ask("after"), EPOCH)
    assert set(part.roster.marks) == {mark_of("before"), mark_of("after")}


# The group of unlisted tenants


def test_group_counts_by_what_its_members_use() -> None:
    """What they ask for beyond their level is nobody's: 30/s within it here are half of 60, not a tenth of 330."""
    part = portion(100.0, 10.0)
    asks = tuple(Ask(f"minted-{at}", listed=False) for at in range(3))
    press(part, (*asks, Ask("listed")), 0.0, 2.0, 10.0)
    now = EPOCH + 2 * SECOND
    part.tick(now)
    mine = part.outlook_of_group(now)._replace(tokens=0.0)
    share = part.roster.line.level * SECOND * 2
    assert sum(ratio * weight for ratio, weight in mine.rows) == pytest.approx(30.0, rel=0.2)
    other = Outlook(0.0, 0.0, 0.0, [(share, 10.0)])
    for _ in range(2):
        part.divide_group([Curve(mine), Curve(other)], now)
    group = part.roster.group
    assert group.part == pytest.approx(2 * 30.0 / share, rel=0.5)
    assert group.weight == pytest.approx(group.whole * group.part)
    assert part.roster.inner.least > 0.0


def test_group_of_nobody_is_left_alone() -> None:
    """Without unlisted tenants, or without a share to give them, nothing changes."""
    part = portion()
    nobody = part.outlook_of_group(EPOCH)
    assert nobody.rows == []
    part.divide_group([Curve(nobody)], EPOCH)
    part.roster.line.level = 0.0
    part.divide_group([Curve(Outlook(0.0, 0.0, 0.0, [(1.0, 1.0)]))], EPOCH)
    assert part.roster.group.part == 1.0


def test_steps_are_of_two_per_cent() -> None:
    """Step 0 is the whole weight."""
    assert weight_of(0) == 1.0
    assert weight_of(35) == pytest.approx(2.01, rel=0.01)
