"""The seats kernel: allowances of several processes that never exceed one limit together."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from policies.kernels.seats import Holder, Room, Table, allowance
from policies.units import SECOND
from tests.policies.buckets import EPOCH

__all__: list[str] = []

LEASE = 3 * SECOND


class Gate:
    """A process as it has to behave: it takes within its allowance, and lowers that before it says so."""

    def __init__(self, table: Table, process: int) -> None:
        self.table, self.process = table, process
        self.allowed = self.in_use = 0
        self.until = 0

    def report(self, want: int, limit: int, now: int) -> Room:
        """Renew, and adopt what was answered."""
        if now >= self.until:
            self.allowed = 0
        self.allowed = max(min(self.allowed, want), self.in_use)
        room = allowance(self.table, self.process, self.allowed, want, limit, LEASE, now)
        self.allowed, self.until = room.allowance, now + LEASE
        return room

    def take(self, now: int) -> None:
        """Begin a request if it may."""
        self.in_use += self.in_use < self.allowed and now < self.until


@given(
    st.integers(0, 7),
    st.lists(st.tuples(st.integers(0, 3), st.sampled_from(("report", "take", "end")), st.integers(0, 9)), max_size=80),
)
def test_never_more_in_flight_than_the_limit(limit: int, acts: list[tuple[int, str, int]]) -> None:
    """Whatever processes want, take and end, in whatever order: in flight together never exceed the limit."""
    table: Table = []
    gates = [Gate(table, number + 1) for number in range(4)]
    now = EPOCH
    for index, act, number in acts:
        gate = gates[index]
        now += 100_000 * number // 9
        if act == "report":
            room = gate.report(number, limit, now)
            assert 0 <= room.allowance <= min(number, limit)
        elif act == "take":
            gate.take(now)
        else:
            gate.in_use = max(0, gate.in_use - 1)
        if any(each.in_use and now >= each.until for each in gates):
            # One that holds seats beyond its lease is what the lease is about: see below.
            return
        assert sum(each.in_use for each in gates) <= limit
        assert sum(holder.held for holder in table) <= limit


def test_alone_it_gets_all_it_wants() -> None:
    """Nobody else living: the limit is its own."""
    table: Table = []
    assert allowance(table, 1, 0, 200, 100, LEASE, EPOCH) == (100, False)
    assert allowance(table, 1, 100, 30, 100, LEASE, EPOCH) == (30, False)


@pytest.mark.parametrize(
    ("limit", "wanted", "expected"),
    [
        (10, (20, 20), (5, 5)),
        (10, (2, 20), (2, 8)),
        (10, (1, 3, 20), (1, 3, 6)),
        (9, (20, 20, 20), (3, 3, 3)),
        (10, (4, 4), (4, 4)),
        (0, (4, 4), (0, 0)),
    ],
)
def test_parts_are_max_min(limit: int, wanted: tuple[int, ...], expected: tuple[int, ...]) -> None:
    """When more is wanted than there is, the least wants are met and the rest is divided evenly."""
    table: Table = []
    gates = [Gate(table, number + 1) for number in range(len(wanted))]
    for tick in range(6):
        for gate, want in zip(gates, wanted, strict=True):
            gate.report(want, limit, EPOCH + tick * 100_000)
    assert tuple(gate.allowed for gate in gates) == expected


def test_who_holds_all_makes_room_as_its_requests_end() -> None:
    """A process that came first gives up to its part, request by request, and hears that others want seats."""
    table: Table = []
    first, second = Gate(table, 1), Gate(table, 2)
    first.report(10, 10, EPOCH)
    for _ in range(10):
        first.take(EPOCH)
    assert second.report(4, 10, EPOCH) == (0, False)
    assert first.report(10, 10, EPOCH) == (6, True)
    first.in_use -= 3
    first.take(EPOCH)
    assert first.in_use == 7
    assert first.report(10, 10, EPOCH) == (6, True)
    assert second.report(4, 10, EPOCH) == (3, True)


def test_case_039_one_seat_goes_round() -> None:
    """With fewer seats than processes each has its turn, and never two at once."""
    table: Table = []
    gates = [Gate(table, number + 1) for number in range(3)]
    had: set[int] = set()
    for tick in range(80):
        for gate in gates:
            gate.report(1, 1, EPOCH + tick * 100_000)
        holding = [gate.process for gate in gates if gate.allowed]
        assert len(holding) <= 1
        had.update(holding)
    assert had == {1, 2, 3}


def test_case_081_seats_of_a_killed_process_come_free() -> None:
    """What a process held is there for others when its lease ends, not before; one that returns nothing has none."""
    table: Table = []
    allowance(table, 1, 0, 3, 3, LEASE, EPOCH)
    assert allowance(table, 2, 0, 3, 3, LEASE, EPOCH + LEASE - 1) == (0, False)
    assert allowance(table, 2, 0, 3, 3, LEASE, EPOCH + LEASE) == (3, False)


def test_a_lowered_limit_gives_nothing_until_enough_is_back() -> None:
    """A reload from 10 to 4: those in flight end, nobody is given more meanwhile, and then 4 are divided."""
    table: Table = []
    first, second = Gate(table, 1), Gate(table, 2)
    for gate in (first, second):
        gate.report(5, 10, EPOCH)
    for _ in range(5):
        first.take(EPOCH)
    assert first.report(5, 4, EPOCH).allowance == 0
    assert second.report(5, 4, EPOCH).allowance == 0
    first.in_use = 1
    for gate in (first, second):
        gate.report(5, 4, EPOCH)
    assert first.report(5, 4, EPOCH).allowance == 2
    assert second.report(5, 4, EPOCH).allowance == 2


def test_who_wants_nothing_has_no_entry() -> None:
    """An idle process is forgotten; one that still has requests in flight is not."""
    table: Table = []
    allowance(table, 5, 0, 2, 4, LEASE, EPOCH)
    allowance(table, 3, 0, 1, 4, LEASE, EPOCH)
    assert [holder.process for holder in table] == [3, 5]
    assert allowance(table, 5, 1, 0, 4, LEASE, EPOCH) == (0, False)
    assert [holder.process for holder in table] == [3, 5]
    allowance(table, 5, 0, 0, 4, LEASE, EPOCH)
    assert [holder.process for holder in table] == [3]


@pytest.mark.parametrize("step", [-2 * 86_400 * SECOND, 2 * 86_400 * SECOND])
def test_case_031_a_clock_that_is_set_holds_nothing_long(step: int) -> None:
    """An entry lives for one lease at most, whatever the clock was when it was made."""
    table: Table = [Holder(1, 3, 3, EPOCH + max(0, step))]
    assert allowance(table, 2, 0, 3, 3, LEASE, EPOCH + min(0, step)) == (0, False)
    assert allowance(table, 2, 0, 3, 3, LEASE, EPOCH + min(0, step) + LEASE) == (3, False)
