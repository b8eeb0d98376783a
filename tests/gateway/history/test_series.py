"""A span is cut into rows that cover it once, and says what an oracle says that looks at every slot."""

from __future__ import annotations

import random
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.errors import GatewayError
from gateway.history.archive import FileArchive
from gateway.history.books import Books
from gateway.history.identity import tenant_identity
from gateway.history.packing import pack_counts
from gateway.history.schema import connect
from gateway.history.series import Span, parts, rounded
from gateway.history.sizer import Basis, resize
from loadtest.bench.history import fill_days, fill_series
from tests.policies.documents import policy_set

__all__: list[str] = []

DAY = 8640


@given(st.integers(0, 4 * DAY), st.integers(1, 4 * DAY), st.integers(0, 1200), st.sampled_from([1, 30, DAY]))
def test_parts_cover_a_span_once(first: int, length: int, folded: int, coarsest: int) -> None:
    """In order, without a gap, nothing coarser than asked for, and nothing coarse that is not added up yet."""
    at = first
    for part in parts(Span(first, first + length), folded, coarsest=coarsest):
        assert part.first * part.grain == at
        assert part.last > part.first
        assert part.grain <= coarsest
        assert part.grain == 1 or part.last * part.grain <= folded * 30
        assert part.table == {1: "slot", 30: "five", DAY: "total"}[part.grain]
        at = part.last * part.grain
    assert at == first + length


@pytest.mark.parametrize(
    ("start", "end", "first", "last"),
    [
        (1_000_000, 1_000_600, 99_990, 100_080),  # long ago: five minutes, outwards
        (9_999_905, 9_999_996, 999_990, 1_000_000),  # just now: ten seconds
        (9_990_000, 9_990_000, 999_000, 999_001),
    ],
)
def test_ends_are_rounded_outwards(start: int, end: int, first: int, last: int) -> None:
    """To what is still kept of them."""
    assert rounded(start, end, 10_000_000) == Span(first, last)


def test_sums_are_those_of_every_slot(tmp_path: Path) -> None:
    """Three days of two tenants, asked for in spans that begin and end anywhere."""
    dice = random.Random(7)
    path, begin = tmp_path / "h", 100 * DAY
    books = Books(connect(path), 10)
    keys = {name: books.key(tenant_identity(name), 100, listed=True) or 0 for name in ("a", "b")}
    served, own = books.meaning(0, ""), books.meaning(4, "key")
    truth: dict[str, list[tuple[int, int]]] = {"a": [], "b": []}
    for five in range(begin // 30, begin // 30 + 3 * 288):
        books.begin()
        for slot in dice.sample(range(30 * five, 30 * five + 30), 2):
            for name, key in keys.items():
                count = dice.randrange(1, 500)
                truth[name].append((slot, count))
                books.counts(slot, [(key, pack_counts({served: count, own: 1}))])
        books.fold(five)
        books.end(well=True)
    books.note("five", begin // 30 + 3 * 288)
    now = (begin + 3 * DAY) * 10
    for _ in range(40):
        start, end = sorted(dice.sample(range(begin * 10, now), 2))
        span, found = FileArchive(path).series.tenants(start, end, now)
        for name, rows in truth.items():
            expected = [count for slot, count in rows if span.first <= slot < span.last]
            assert found.get(name, {}).get((0, ""), 0) == sum(expected)
            assert found.get(name, {}).get((4, "key"), 0) == len(expected)
        for grain in (1800, 86_400):
            lines = FileArchive(path).series.points(["a", "nobody"], start, end, now, grain)
            told: Counter[int] = Counter()
            for slot, count in truth["a"]:
                if slot >= span.first and slot < span.last:
                    told[slot * 10 // grain * grain] += count
            assert {at: one.get((0, ""), 0) for at, one in lines.get("a", {}).items()} == told
            assert "nobody" not in lines
        span, step, series = FileArchive(path).series.tenant("a", start, end, now)
        points = series.get(("tenant", ""), [])
        sums = Counter[int]()
        for slot, count in truth["a"]:
            if span.first <= slot < span.last:
                sums[slot * 10 // step * step] += count
        assert {point.at: point.counts[0, ""] for point in points} == sums
    books.connection.close()


def test_what_cannot_be_read_is_said(tmp_path: Path) -> None:
    """In memory, not there yet, noise."""
    noise = tmp_path / "noise"
    noise.write_bytes(b"noise" * 1000)
    for path in (None, tmp_path / "gone", noise):
        with pytest.raises(GatewayError, match="history"):
            FileArchive(path).series.tenants(0, 100, 200)


@pytest.mark.soak
def test_ten_minutes_of_a_quarter(tmp_path: Path, soak: bool) -> None:
    """Everybody who was shed is found, among 90 days of 1,000 tenants (`loadtest.bench.history` takes the time)."""
    keys, days = (1000, 90) if soak else (40, 9)
    now = 1_790_000_000
    fill_series(tmp_path / "h", keys, now, days)
    _, found = FileArchive(tmp_path / "h").series.tenants(now - 7 * 86_400, now - 7 * 86_400 + 600, now)
    assert len(found) == keys
    assert {counts[4, "key"] for counts in found.values()} <= {600, 900}


@pytest.mark.soak
def test_everybody_is_sized(tmp_path: Path, soak: bool) -> None:
    """10,000 keys and their tenants from 30 days, each from its own."""
    keys, today = (10_000 if soak else 200), 20_000
    fill_days(tmp_path / "h", keys, today)
    books = Books(connect(tmp_path / "h"), 10 * keys)
    books.begin()
    rows = list(resize(books, Basis.of(policy_set()), today))
    books.keep(rows)
    books.end(well=True)
    sized = books.numbers()
    assert len(sized) == 2 * keys
    assert {one.peak for one in sized.values()} == {10.0 + number % 90 for number in range(min(keys, 90))}
    assert {row.identity.name for row in rows} == sized.keys()
    assert all(
        sum(term.delta for term in one.terms) == one.next_quota.rate.per_second * 10**9 for one in sized.values()
    )
    books.connection.close()
