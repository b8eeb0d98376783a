"""The record of a rate lease: the sum is never above the capacity, and what is dead comes free."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from policies.kernels.rates import Claim, Table, renew
from policies.units import SECOND

__all__: list[str] = []

LEASE = 3 * SECOND // 2


def want(table: Table, process: int, held: float, wanted: float, now: int = 0) -> float:
    """Renew for one pool of 100/s, and return what is granted."""
    return renew(table, process, LEASE, [Claim(0, 100.0, held, wanted)], b"", now).granted[0]


def test_whoever_begins_the_record_is_told() -> None:
    """The first has all, and is told that buckets are full; the next finds nothing until the first lowers itself."""
    table: Table = {}
    first = renew(table, 1, LEASE, [Claim(0, 100.0, 0.0, 100.0)], b"one", 0)
    assert (first.fresh, first.processes, first.granted, first.reports) == (True, 1, [100.0], [])
    second = renew(table, 2, LEASE, [Claim(0, 100.0, 0.0, 50.0)], b"two", 1)
    assert (second.fresh, second.processes, second.granted, second.reports) == (False, 2, [0.0], [b"one"])
    assert want(table, 1, 50.0, 50.0) == 50.0
    assert want(table, 2, 0.0, 50.0) == 50.0


def test_more_wants_than_there_is_are_cut_alike() -> None:
    """Three that want 80 each get a third each, once all have lowered themselves to it."""
    table: Table = {}
    held = [0.0, 0.0, 0.0]
    for _ in range(4):
        for process in range(3):
            held[process] = want(table, process, held[process], 80.0)
    assert [round(each, 6) for each in held] == [round(100 / 3, 6)] * 3


def test_a_report_stays_until_the_next_and_goes_with_its_process() -> None:
    """An empty report leaves the last one; a process that leaves takes it along, and its hold at once."""
    table: Table = {}
    claims = [Claim(0, 100.0, 60.0, 60.0)]
    renew(table, 1, LEASE, claims, b"one", 0)
    renew(table, 1, LEASE, claims, b"", 1)
    assert renew(table, 2, LEASE, [], b"", 2).reports == [b"one"]
    left = renew(table, 1, 0, [], b"", 3)
    assert (left.processes, left.granted, left.reports) == (1, [], [])
    later = renew(table, 2, LEASE, [Claim(0, 100.0, 0.0, 100.0)], b"", 4)
    assert (later.fresh, later.processes, later.granted, later.reports) == (False, 1, [100.0], [])


def test_the_last_to_leave_leaves_a_record() -> None:
    """Whoever comes next does not begin it, so nobody mints a burst by leaving and coming back."""
    table: Table = {}
    want(table, 1, 0.0, 100.0)
    renew(table, 1, 0, [], b"", 1)
    assert not renew(table, 1, LEASE, [Claim(0, 100.0, 0.0, 100.0)], b"", 2).fresh


def test_a_dead_process_holds_for_a_lease_at_most() -> None:
    """Also when the clock is set back meanwhile."""
    table: Table = {}
    want(table, 1, 0.0, 100.0, 3_600 * SECOND)
    assert want(table, 2, 0.0, 100.0, 0) == 0.0
    assert want(table, 2, 0.0, 100.0, LEASE) == 100.0


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 3), st.floats(0.0, 200.0), st.integers(0, LEASE)), min_size=1, max_size=40))
def test_what_is_in_force_never_exceeds_the_capacity(calls: list[tuple[int, float, int]]) -> None:
    """Whatever processes want and whenever they ask, having first lowered themselves to what they want."""
    table: Table = {}
    used: dict[int, tuple[float, int]] = {}
    now = 0
    for process, wanted, gap in calls:
        now += gap
        held = min(used.get(process, (0.0, 0))[0], wanted) if used.get(process, (0.0, -1))[1] > now else 0.0
        used[process] = (want(table, process, held, wanted, now), now + LEASE)
        assert sum(rate for rate, until in used.values() if until > now) <= 100.0 * (1 + 1e-12)
