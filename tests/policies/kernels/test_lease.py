"""The lease kernel: one bucket of record, several processes, and nothing above what the bucket grants."""

from __future__ import annotations

from fractions import Fraction
from math import inf, nan

import pytest
from hypothesis import given
from hypothesis import strategies as st

from policies.kernels import gcra
from policies.kernels.gcra import Bucket
from policies.kernels.lease import MAX_ASKERS, RECENT, Asker, Record, Want, lease, lifetime, prepare
from policies.units import NEVER, SECOND
from tests.policies.buckets import EPOCH, ask, per_us
from tests.policies.documents import Step
from tests.policies.kernels.fleet import Bank

__all__: list[str] = []

RATES = (
    Fraction(1, 86_400),
    Fraction(1, 60),
    Fraction(1, 2),
    Fraction(3),
    Fraction(10),
    Fraction(1000),
    Fraction(10**6),
)
COSTS = st.sampled_from((0.0, 0.1, 1.0, 1.0, 2.5, 30.0))


def _open(level: float = 0.0, rate: float = 10.0, burst: float = 10.0) -> Bank:
    """Return a bucket of 10/s burst 10 at that level."""
    bank = Bank(rate, burst)
    bank.ask(99, Want(seed=level), EPOCH)
    return bank


@st.composite
def wants(draw: st.DrawFn) -> Want:
    """Draw what a process may say at a tick."""
    high_cost, low_cost = draw(COSTS), draw(COSTS)
    return Want(
        high=high_cost + draw(st.sampled_from((0.0, 1.0, 2.7, 50.0))),
        high_cost=high_cost,
        low=low_cost + draw(st.sampled_from((0.0, 1.0, 2.7, 50.0))),
        low_cost=low_cost,
        reserve=2.5,
        floor=draw(st.sampled_from((0.0, 0.05))),
    )


# What is granted in total


@given(
    st.sampled_from(RATES),
    st.sampled_from((1.0, 2.5, 10.0, 100.0)),
    st.lists(st.tuples(st.integers(-SECOND, 2 * SECOND), st.integers(1, 5), wants(), st.booleans()), max_size=60),
)
def test_no_more_than_the_bucket_has(rate: Fraction, burst: float, steps: list[tuple[int, int, Want, bool]]) -> None:
    """Granted less returned never exceeds burst + rate x elapsed + one debt, whoever asks, clock set back or not."""
    record, now, elapsed, held = None, EPOCH, 0, dict.fromkeys(range(1, 6), 0.0)
    for pause, process, want, returns in steps:
        now += pause
        elapsed += max(0, pause)
        said = want._replace(back=held[process] if returns else 0.0)
        record = prepare(record, per_us(rate), burst, said, 30.0, now)
        grant = lease(record, process, said, now)
        held[process] += grant.high + grant.low - said.back
        assert sum(held.values()) <= (burst + float(rate) * elapsed / SECOND + 30.0) * (1 + 1e-12)


@pytest.mark.interpreted
@given(st.sampled_from(RATES), st.lists(st.tuples(st.integers(0, 2 * SECOND), COSTS, st.booleans()), max_size=60))
def test_one_cost_at_a_time_is_gcra(rate: Fraction, steps: list[tuple[int, float, bool]]) -> None:
    """A process alone that asks for what waits and nothing ahead finds the bucket of the embedded store, wait and all.

    So a refusal costs nothing, and its wait is exact.
    """
    bucket, record, now = Bucket(per_us(rate), 10.0, EPOCH), None, EPOCH
    for pause, cost, low in steps:
        now += pause
        if cost <= 0.0:
            continue
        want = Want(reserve=2.5, floor=0.05)
        want = want._replace(low=cost, low_cost=cost) if low else want._replace(high=cost, high_cost=cost)
        record = prepare(record, per_us(rate), 10.0, want, 30.0, now)
        grant = lease(record, 1, want, now)
        wait = ask(bucket, Step(cost, low=low, reserve=2.5, floor=0.05), now)
        assert (grant.low_wait_us if low else grant.high_wait_us) == wait
        assert (grant.low if low else grant.high) == (0.0 if wait else cost)
        assert all(getattr(bucket, name) == getattr(record.bucket, name) for name in Bucket.__slots__)


@pytest.mark.parametrize(
    ("level", "want", "granted"),
    [
        (0.0, Want(high=7.5), 7.5),  # all that is wanted
        (6.5, Want(high=7.5), 3.0),  # whole units, when not all is there
        (6.5, Want(high=7.5, high_cost=0.5), 3.5),  # whole costs, where they are below a unit
        (6.5, Want(high=7.5, high_cost=3.5), 3.5),  # what waits, if that is all
        (6.5, Want(high=7.5, high_cost=3.6), 3.0),  # what is wanted beside what waits and cannot be had
        (6.5, Want(high=3.6, high_cost=3.6), 0.0),
        (9.5, Want(high=7.5), 0.0),
        (0.0, Want(high=25.0, high_cost=25.0), 25.0),  # a full bucket lends
        (0.0, Want(high=25.0), 10.0),  # but not ahead of use
        (0.1, Want(high=25.0, high_cost=25.0), 0.0),
    ],
)
def test_what_one_class_gets(level: float, want: Want, granted: float) -> None:
    """All that is wanted, or the dearest waiting cost, or whole units; never more than the bucket has or lends."""
    assert _open(level).ask(1, want, EPOCH).high == granted


def test_high_first_and_the_reserve_for_nobody_else() -> None:
    """High goes before low; low leaves the reserve while high has demand, with what it asks ahead and what waits."""
    low = Want(low=10.0, low_cost=1.0, reserve=2.5)
    assert _open().ask(1, low._replace(high=4.0), EPOCH)[:2] == (4.0, 3.0)
    assert _open().ask(1, low, EPOCH)[:2] == (0.0, 10.0)
    bank = _open(7.0)
    bank.ask(1, Want(high=0.1), EPOCH)
    grant = bank.ask(2, low, EPOCH)
    assert grant[:3] == (0.0, 0.0, 0)
    assert grant.low_wait_us == pytest.approx(60_000, abs=1)
    assert (grant.left_high, grant.left_low) == pytest.approx((2.9, 0.4))


def test_ripe_credit_lets_what_waits_pass_the_reserve_and_nothing_ahead() -> None:
    """The floor earns a low cost its way past the reserve; what is asked ahead stays behind it."""
    bank = _open(8.0)
    low = Want(low=5.0, low_cost=1.0, reserve=2.5, floor=0.5)
    high = Want(high=1.0, reserve=2.5, floor=0.5)
    now = EPOCH
    bank.ask(1, high, now)
    assert bank.ask(1, low, now).low == 0.0
    for _ in range(2):
        now += SECOND // 10
        bank.ask(1, high, now)
    assert bank.ask(1, low, now).low == 1.0


def test_a_zero_quota_grants_nothing_ever() -> None:
    """0/s refuses everything and says that waiting is no use; a rate given later starts empty."""
    bank = Bank(0.0, 10.0)
    assert bank.ask(1, Want(high=2.0, high_cost=1.0, low=2.0, low_cost=1.0), EPOCH) == (
        0.0,
        0.0,
        NEVER,
        NEVER,
        0.0,
        0.0,
    )
    assert bank.ask(1, Want(high=2.0, high_cost=1.0, back=5.0, spent=5.0), EPOCH + SECOND).high == 0.0
    bank.rate_us = 1e-5
    assert bank.ask(1, Want(high=2.0, high_cost=1.0), EPOCH + SECOND)[:3] == (0.0, 0.0, 100_000)


def test_what_was_spent_without_the_store_is_charged_once_and_at_most_empties() -> None:
    """Coming back after an outage gives no second burst, and takes nothing that was not there."""
    bank = _open()
    assert bank.ask(1, Want(spent=4.0), EPOCH).left_high == 6.0
    assert bank.ask(2, Want(spent=40.0), EPOCH).left_high == 0.0
    bank.ask(3, Want(spent=40.0), EPOCH)
    assert bank.ask(1, Want(high=1.0, high_cost=1.0), EPOCH).high_wait_us == 100_000
    debt = _open()
    debt.ask(1, Want(high=25.0, high_cost=25.0), EPOCH)
    assert debt.record is not None
    debt.dearest = 25.0
    debt.ask(1, Want(spent=1.0), EPOCH)
    assert debt.record.bucket.level == 25.0


@pytest.mark.parametrize(("seed", "left"), [(0.0, 10.0), (4.0, 6.0), (1e9, 0.0)])
def test_a_record_that_is_gone_begins_where_it_was_last_seen(seed: float, left: float) -> None:
    """A store that comes back empty begins at the level the process knew; no record means no second burst."""
    bank = Bank(10.0, 10.0)
    assert bank.ask(1, Want(seed=seed), EPOCH).left_high == left
    assert bank.ask(1, Want(seed=1.0), EPOCH).left_high == left


# Clocks and records that cannot be true


@pytest.mark.parametrize("step", [-11 * SECOND, -3600 * SECOND, -172_800 * SECOND])
def test_case_031_a_clock_set_back_refuses_nobody(step: int) -> None:
    """Steady 8/s on a limit of 10/s goes on without one refusal when the store's clock is set back, again and again."""
    bank, now = _open(2.0), EPOCH
    for number in range(400):
        now += SECOND // 8 + (step if number % 100 == 50 else 0)
        grant = bank.ask(1 + number % 3, Want(high=1.0, high_cost=1.0, low=1.0, reserve=2.5, floor=0.05), now)
        assert grant.high == 1.0
        bank.ask(1 + number % 3, Want(back=grant.low), now)


def test_a_clock_set_back_mints_nothing() -> None:
    """No time passes in a step back, for anybody's mark or wait."""
    bank = _open(10.0)
    assert bank.ask(1, Want(high=1.0, high_cost=1.0), EPOCH).high_wait_us == 100_000
    early = EPOCH - 3600 * SECOND
    assert bank.ask(1, Want(high=1.0, high_cost=1.0), early).high_wait_us == 100_000
    assert bank.ask(1, Want(high=1.0, high_cost=1.0), early + 99_999).high_wait_us == 1
    assert bank.ask(1, Want(high=1.0, high_cost=1.0), early + 100_000).high == 1.0


@pytest.mark.parametrize("level", [1e18, inf, nan, 5000.0])
def test_case_033_a_huge_count_heals(level: float) -> None:
    """A level that no ask explains is an empty bucket: a caller is let in again within burst / rate."""
    bank = _open()
    assert bank.record is not None
    bank.record.bucket.level = level
    assert bank.ask(1, Want(high=1.0, high_cost=1.0), EPOCH).high_wait_us == 100_000
    assert bank.ask(1, Want(high=1.0, high_cost=1.0), EPOCH + SECOND).high == 1.0


def test_case_033_a_class_said_to_wait_for_ever_heals() -> None:
    """No low ask waits longer, or for more, than the dearest could."""
    bank = _open()
    assert bank.record is not None
    bucket = bank.record.bucket
    bucket.want, bucket.credit, bucket.low_until, bucket.want_until = nan, 1e9, EPOCH * 2, EPOCH * 2
    want = Want(high=9.0, high_cost=1.0, floor=0.05)
    assert bank.ask(1, want, EPOCH).high == 9.0
    assert (bucket.want, bucket.low_until) == (1.0, EPOCH + SECOND + int(1.25 / (0.05 * bank.rate_us)))
    assert bank.ask(1, want._replace(floor=0.0), EPOCH).high == 1.0
    assert bucket.low_until == bucket.want_until == EPOCH


def test_debt_is_believed_up_to_the_dearest_cost() -> None:
    """What a full bucket lent is owed until it has flowed in, whatever the next ask costs."""
    bank = _open()
    bank.dearest = 25.0
    bank.ask(1, Want(high=25.0, high_cost=25.0), EPOCH)
    assert bank.ask(2, Want(high=1.0, high_cost=1.0), EPOCH).high_wait_us == 1_600_000


@pytest.mark.parametrize(
    ("level", "rate", "expected"),
    [
        (0.0, 10.0, 2 * SECOND),
        (5.0, 10.0, 2 * SECOND + 500_000),
        (1.0, 1 / 86_400, 86_402 * SECOND),
        (0.0, 0.0, 3600 * SECOND),
    ],
)
def test_a_record_is_kept_until_nobody_would_notice(level: float, rate: float, expected: int) -> None:
    """Until the bucket is full and its mark of high demand is old; one without a rate for an hour after each ask."""
    bank = _open(level, rate)
    assert bank.record is not None
    assert lifetime(bank.record, EPOCH) == pytest.approx(expected, abs=1)


# Several processes


def test_what_flows_in_is_divided_by_what_is_wanted() -> None:
    """Two that want more than there is get parts in proportion, whoever asks first after whom."""
    for first in (0, 1):
        bank, got = _open(100.0, 100.0, 100.0), [0.0, 0.0]
        for tick in range(600):
            now = EPOCH + tick * SECOND // 10
            for index in (first, 1 - first):
                got[index] += bank.ask(index, Want(high=(30.0, 10.0)[index], high_cost=1.0), now + 1000).high
        assert sum(got) == pytest.approx(6000, rel=0.01)
        assert got[0] / got[1] == pytest.approx(3.0, rel=0.05)


def test_a_satisfied_process_is_owed_nothing() -> None:
    """Who got all that it wanted leaves the bucket to others."""
    bank = _open(5.0)
    assert bank.ask(1, Want(high=2.0), EPOCH).high == 2.0
    assert bank.ask(2, Want(high=5.0), EPOCH + 100_000).high == 4.0
    assert bank.ask(1, Want(high=5.0), EPOCH + 100_000).high == 0.0


def test_first_ask_of_an_idle_process_is_met_within_a_tick() -> None:
    """A process that takes all that flows in leaves a first ask its cost."""
    bank = _open(10.0)
    now = EPOCH
    for _ in range(20):
        now += 100_000
        bank.ask(1, Want(high=2.7, high_cost=1.0), now)
    now += 50_000
    grant = bank.ask(2, Want(high=1.0, high_cost=1.0), now)
    assert 0 < grant.high_wait_us <= 100_000
    hungry = bank.ask(1, Want(high=2.7, high_cost=1.0), now + grant.high_wait_us)
    assert hungry.high == 0.0
    assert 0 < hungry.high_wait_us <= RECENT
    assert bank.ask(2, Want(high=1.0, high_cost=1.0), now + grant.high_wait_us).high == 1.0


def test_a_dear_first_ask_does_not_hold_up_the_others() -> None:
    """Of a cost far above what flows in within a tick a process is owed its part, not all of it at once."""
    bank = _open(10.0, burst=60.0)
    bank.dearest, got, now = 50.0, 0.0, EPOCH
    bank.record.bucket.level = 60.0  # type: ignore[union-attr]  # opened above
    for _ in range(50):
        now += 100_000
        bank.ask(1, Want(high=50.0, high_cost=50.0), now)
        got += bank.ask(2, Want(high=10.0, high_cost=1.0), now).high
    assert got >= 50 * (10 / 60) - 2


def test_who_does_not_come_back_is_forgotten() -> None:
    """What is kept for a process that asked is there for others once it did not ask for a while."""
    bank = _open(10.0)
    bank.ask(1, Want(high=10.0, high_cost=5.0), EPOCH)
    assert bank.ask(2, Want(high=3.0, high_cost=1.0), EPOCH + RECENT).high == 1.0
    assert bank.ask(2, Want(high=3.0, high_cost=1.0), EPOCH + RECENT + 1).high == 2.0


def test_a_full_bucket_is_kept_for_nobody() -> None:
    """What would overflow is granted, whoever else is owed it."""
    bank = _open(1.0, burst=1.0)
    bank.ask(1, Want(high=1.0, high_cost=1.0), EPOCH)
    assert bank.ask(2, Want(high=3.0, high_cost=1.0), EPOCH + 99_999).high == 0.0
    assert bank.ask(2, Want(high=3.0, high_cost=1.0), EPOCH + 100_000).high == 1.0


def test_the_table_of_processes_is_bounded() -> None:
    """Beyond the bound the one that asked longest ago is forgotten; who gives back and wants nothing has no entry."""
    bank = _open(10.0)
    for process in range(MAX_ASKERS + 3):
        bank.ask(process, Want(high=1.0), EPOCH + process)
    assert bank.record is not None
    assert [asker.process for asker in bank.record.askers] == list(range(3, MAX_ASKERS + 3))
    bank.ask(5, Want(back=0.5), EPOCH + 100)
    bank.ask(77, Want(back=0.5), EPOCH + 100)
    assert [asker.process for asker in bank.record.askers] == [3, 4, *range(6, MAX_ASKERS + 3)]


@pytest.mark.parametrize("processes", [2, 5, 8])
def test_case_039_no_part_rounds_down_to_nothing(processes: int) -> None:
    """2/s over eight processes that all want more: each is let in at least once per 1 / (its part of the rate)."""
    bank, last = _open(2.0, rate=2.0, burst=2.0), dict.fromkeys(range(processes), EPOCH)
    longest, now = 0, EPOCH
    for step in range(60 * 10 * processes):
        now, process = EPOCH + step * 100_000 // processes, step % processes
        if bank.ask(process, Want(high=1.0, high_cost=1.0), now).high > 0.0:
            longest = max(longest, now - last[process])
            last[process] = now
    assert longest <= processes * SECOND / 2 * 1.5 + 100_000
    assert min(last.values()) >= now - longest


def test_an_entry_tells_what_it_is() -> None:
    """An asker of a fresh record lacks all that it wants."""
    record = Record(Bucket(1e-5, 10.0, EPOCH), EPOCH)
    asker = Asker(1, 3.0, 1.0, EPOCH)
    assert (record.askers, asker.lacks, gcra.level_at(record.bucket, EPOCH)) == ([], 3.0, 0.0)
