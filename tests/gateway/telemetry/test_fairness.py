"""The figures equal those recomputed from the raw list of requests."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.telemetry import Telemetry
from gateway.telemetry.figures import interval
from gateway.telemetry.windows import WINDOWS
from policies.request import REJECTED, Class, Kind
from policies.units import SECOND, Micros
from policies.verdict import Outcome
from tests.gateway.telemetry import oracle
from tests.gateway.telemetry.made import START, Event, StoppedClock, telemetry

REFUSALS = ("key", "tenant", "concurrency", "paused", "login", "share", "class", "backstop", "posture", "connections")

#: Seconds after the last request at which somebody looks: where the windows let go of it, above all.
EDGES = (
    0,
    9.9,
    30,
    49.9,
    50,
    59.9,
    60,
    290,
    299.9,
    300,
    3590,
    3600,
    85_800,
    86_099.9,
    86_100,
    86_399.9,
    86_400,
    100_000,
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a place for gateway.toml."""
    return tmp_path_factory.mktemp("telemetry")


@st.composite
def requests(draw: st.DrawFn) -> tuple[Event, int]:
    """Draw one request and how often it came at once; its time is how long after the one before."""
    outcome = draw(st.sampled_from(Outcome))
    shared = {"share": (False, True), "backstop": (False, True, None), "class": (False, None)}
    limit = draw(st.sampled_from(REFUSALS)) if outcome is Outcome.REFUSED else ""
    flag = draw(st.sampled_from(shared.get(limit, (None,))))
    kind = draw(st.sampled_from((Kind.USER, Kind.JOB, Kind.ANONYMOUS)))
    event = Event(
        tenant="anonymous" if kind is Kind.ANONYMOUS else draw(st.sampled_from("abcd")),
        outcome=outcome,
        limit=limit,
        at=draw(st.sampled_from((0, 0, 0, 0.5, 3, 9.9, 10, 10, 47, 290, 300, 300, 1800, 20_000, 86_100, 90_000))),
        cls=draw(st.sampled_from(Class)),
        kind=kind,
        status=draw(st.sampled_from((400, 401, 413))) if outcome is Outcome.REJECTED else 200,
        code="bad" if outcome is Outcome.REJECTED else "",
        judged=outcome is not Outcome.ABORTED or draw(st.booleans()),
        beyond=flag is True,
        over=flag is False and limit != "backstop",
    )
    return event, draw(st.sampled_from((1, 1, 5, 25)))


def played(record: Telemetry, drawn: Sequence[tuple[Event, int]], looks: Sequence[int]) -> list[Event]:
    """Record what was drawn, on one line of time, looking now and then; return it as it happened."""
    happened = []
    at = 0.0
    for index, (event, times) in enumerate(drawn):
        at += event.at
        for _ in range(times):
            happened.append(Event(**{name: getattr(event, name) for name in event.__slots__} | {"at": at}))
            record.record(happened[-1].decision(), happened[-1].now)
        if index in looks:
            record.tenants.advance(happened[-1].now)
    return happened


def rounded(members: Any) -> dict[str, object]:
    """Forget in which order a mean was added up."""
    return {name: round(value, 12) if isinstance(value, float) else value for name, value in members.items()}


def shown(record: Telemetry, window: str, now: Micros) -> dict[str, Any]:
    """Return `/api/fairness` as the oracle writes it."""
    report = record.tenants.report(window, now)
    return {
        "window": window,
        "aggregate": report.aggregate.as_members(),
        "worst": report.worst_members(),
        "tenants": sorted((row.as_row() for row in report.tenants), key=lambda row: str(row["tenant"])),
    }


@given(
    drawn=st.lists(requests(), max_size=25),
    looks=st.lists(st.integers(0, 24), max_size=5),
    later=st.sampled_from(EDGES),
)
def test_every_window_equals_a_recomputation(
    folder: Path, drawn: list[tuple[Event, int]], looks: list[int], later: float
) -> None:
    """Whatever happened, and whoever looked in between, each window shows exactly the requests of its slots."""
    record = telemetry(folder)
    happened = played(record, drawn, looks)
    now = (happened[-1].now if happened else START) + round(later * SECOND)
    for window in WINDOWS:
        expected = oracle.fairness(happened, window, now)
        found = shown(record, window, now)
        assert found["tenants"] == expected["tenants"]
        assert rounded(found["aggregate"]) == rounded(expected["aggregate"])
        if found["worst"] is None or expected["worst"] is None:
            assert found["worst"] is expected["worst"]
            continue
        worst: Any = expected["worst"]
        assert found["worst"].pop("interval") == pytest.approx(worst.pop("interval"), abs=1e-9)
        assert found["worst"] == worst


@given(drawn=st.lists(requests(), max_size=25), looks=st.lists(st.integers(0, 24), max_size=5))
def test_one_tenant_alone_reads_the_same_as_in_the_list(
    folder: Path, drawn: list[tuple[Event, int]], looks: list[int]
) -> None:
    """`/api/tenants/{id}` and `/api/fairness` never disagree."""
    record = telemetry(folder)
    happened = played(record, drawn, looks)
    now = happened[-1].now if happened else START
    for window in WINDOWS:
        for row in record.tenants.report(window, now).tenants:
            assert record.tenants.tenant(row.tenant, now)[window] == row


@given(
    drawn=st.lists(requests(), max_size=25),
    looks=st.lists(st.integers(0, 24), max_size=5),
    later=st.sampled_from(EDGES),
)
def test_columns_hold_what_the_rows_hold(
    folder: Path, drawn: list[tuple[Event, int]], looks: list[int], later: float
) -> None:
    """The table that scrapes and pages read is the report in another shape, whole, worst, lowest and every tenant."""
    record = telemetry(folder)
    happened = played(record, drawn, looks)
    now = (happened[-1].now if happened else START) + round(later * SECOND)
    for window in WINDOWS:
        report, table = record.tenants.report(window, now), record.tenants.table(window, now)
        found = {name: number for number, name in enumerate(table.names) if table.offered[number]}
        rows = {row.tenant: row for row in report.tenants if row.offered and row.tenant != REJECTED}
        assert found.keys() == rows.keys()
        for name, number in found.items():
            sums = (table.served[number], table.offered[number], table.whole[number], table.refused[number])
            row = rows[name]
            assert sums == (row.served, row.offered, row.in_profile, row.refusals)
        assert rounded(table.aggregate().as_members()) == rounded(report.aggregate.as_members())
        assert table.worst() == (None if report.worst is None else report.worst.tenant)
        assert table.lowest() == (None if report.lowest is None else report.lowest.tenant)
        assert record.tenants.rows(window, now, rows) == list(rows.values())


def test_a_glance_shows_the_aggregate_and_the_worst_of_all_but_rows_of_the_labelled(folder: Path) -> None:
    """What a scrape reads differs from the whole report in nothing but the rows left out."""
    record = telemetry(folder, top=1)
    for tenant, served in (("a", 30), ("b", 10), ("c", 25)):
        for number in range(30):
            refused = number >= served
            event = Event(tenant, Outcome.REFUSED if refused else Outcome.SERVED, "share" if refused else "")
            record.record(event.decision(), event.now)
    record.tenants.totals(START)
    report, glance = record.tenants.report("1m", START), record.tenants.glance("1m", START)
    assert (glance.aggregate, glance.worst, glance.lowest) == (report.aggregate, report.worst, report.lowest)
    assert [row.tenant for row in glance.tenants] == ["a"]


def test_nothing_offered_is_null_everywhere_and_nobody_is_the_worst(folder: Path) -> None:
    """A ratio whose denominator is 0 is null, never 1."""
    record = telemetry(folder)
    event = Event("acme", Outcome.REJECTED, status=413, code="content-too-large")
    record.record(event.decision(), event.now)
    found = shown(record, "1m", START)
    assert found["worst"] is None
    assert found["aggregate"]["success"] is found["aggregate"]["success_by_tenant"] is None
    assert [(row["success"], row["in_profile_success"], row["throttled_fraction"]) for row in found["tenants"]] == [
        (None, None, None)
    ]


def test_a_flood_beyond_its_own_quota_never_becomes_the_worst(folder: Path) -> None:
    """What its own limits would have refused anyway is left out of what others did to it."""
    record = telemetry(folder)
    for number in range(1000):
        event = Event("flood", Outcome.SERVED) if number < 50 else Event("flood", Outcome.REFUSED, "share", beyond=True)
        record.record(event.decision(), event.now)
    worst = record.tenants.report("1m", START).worst
    assert worst is not None
    assert worst.in_profile_success == 1.0
    assert worst.success == 0.05


@pytest.mark.parametrize(
    ("outcome", "status", "kind", "tenant"),
    (
        (Outcome.REJECTED, 400, Kind.USER, "rejected"),
        (Outcome.REJECTED, 401, Kind.USER, "rejected"),
        (Outcome.REJECTED, 413, Kind.USER, "acme"),
        (Outcome.REJECTED, 413, Kind.JOB, "acme"),
        (Outcome.REJECTED, 413, Kind.ANONYMOUS, "rejected"),
        (Outcome.REJECTED, 431, Kind.REJECTED, "rejected"),
        (Outcome.REFUSED, 429, Kind.ANONYMOUS, "acme"),
    ),
)
def test_a_rejection_counts_under_the_tenant_that_was_proved(
    folder: Path, outcome: Outcome, status: int, kind: Kind, tenant: str
) -> None:
    """Outcome `rejected` is under the proven tenant or else under `rejected`; 400 and 401 always under `rejected`."""
    record = telemetry(folder)
    event = Event("acme", outcome, "key" if outcome is Outcome.REFUSED else "", status=status, kind=kind)
    record.record(event.decision(), event.now)
    assert [row.tenant for row in record.tenants.report("1m", START).tenants] == [tenant]


@pytest.mark.parametrize(
    ("successes", "trials", "low", "high"),
    ((0, 20, 0.0, 0.1611), (6, 20, 0.1455, 0.5190), (20, 20, 0.8389, 1.0), (81, 263, 0.2553, 0.3662)),
)
def test_the_interval_is_wilsons(successes: int, trials: int, low: float, high: float) -> None:
    """Published values: R. G. Newcombe, Statistics in Medicine 17 (1998), table I, and the rule of its method 3."""
    assert interval(successes, trials) == pytest.approx((low, high), abs=5e-5)


def test_a_report_is_kept_no_longer_than_a_second(folder: Path) -> None:
    """Windows are at most 1 s stale, however long they took."""

    class Slow(StoppedClock):
        def now(self) -> Micros:
            self.at += 10 * SECOND
            return self.at

    record = telemetry(folder, Slow())
    for at, offered in ((0.0, 1), (0.5, 1), (0.999, 1), (1.0, 4)):
        event = Event(at=at)
        record.record(event.decision(), event.now)
        assert record.tenants.report("1m", event.now).aggregate.offered == offered
    with pytest.raises(KeyError):
        record.tenants.report("2m", START)
