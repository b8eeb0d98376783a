"""Rows come back as they were written, within the digits that are shown, and take the room that was promised."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.history.books import Books
from gateway.history.identity import tenant_identity
from gateway.history.packing import (
    HOUR_BYTES,
    SlotPeak,
    pack_counts,
    pack_day,
    pack_hour,
    pack_peak,
    unpack_counts,
    unpack_day,
    unpack_hours,
)  # fmt: skip
from gateway.history.schema import connect
from policies.sizing_past import Day, Hour, Peak

__all__: list[str] = []

RATE = st.floats(0.01, 1e6)


@given(st.dictionaries(st.integers(1, 2**16), st.integers(1, 2**40)))
def test_counts(counts: dict[int, int]) -> None:
    """Of any size."""
    assert dict(unpack_counts(pack_counts(counts))) == counts


@given(st.lists(st.tuples(RATE, RATE), max_size=8), st.integers(0, 1000), st.integers(0, 360), RATE, st.booleans())
def test_an_hour(slots: list[tuple[float, float]], number: int, censored: int, offered: float, own: bool) -> None:
    """Its rates within 0.001 % of the highest, its seconds within half a per cent of the best."""
    hour = Hour(number, tuple(sorted(slots, reverse=True)), censored, offered, own)
    blob = pack_hour(hour)
    assert len(blob) == HOUR_BYTES
    (found,) = unpack_hours(number // 24, blob)
    assert (found.number, found.censored, found.own, len(found.slots)) == (number, censored, own, len(slots))
    for (rate, second), (was, best) in zip(found.slots, hour.slots, strict=True):
        assert rate == pytest.approx(was, abs=1e-5 * hour.slots[0][0])
        assert second == pytest.approx(best, abs=5e-3 * max(each for _, each in hour.slots))


def test_a_day_and_a_slot() -> None:
    """Singles are exact for what is shown."""
    day = Day(7, Peak(1.5, 3, 2), Peak(2.5, 4, 3), Peak(0.5, 5, 1), Peak(8, 6, 9), 70_000, own=True, offered=12.5)
    assert unpack_day(7, pack_day(day)) == Day(
        7, day.sustained, day.reached, day.held, day.held_reached, 65_535, own=True, offered=12.5
    )
    peak = SlotPeak(1.5, 0.5, 2.0, limited=True, own=False)
    assert SlotPeak.unpack(pack_peak(1.5, 0.5, 2.0, limited=True, own=False)) == peak


@pytest.mark.soak
def test_the_room_of_one_key(tmp_path: Path, soak: bool) -> None:
    """At most 40 KB of hours for 30 days, at most 1 MB of series for 90 days, with traffic in every slot of them."""
    path = tmp_path / "h"
    books = Books(connect(path), 10)
    keys = [books.key(tenant_identity(name), 0, listed=True) or 0 for name in ("a", "b", "c", "d")]
    slots = tuple((1000.0 - n, 150.0 + n) for n in range(8))
    meant = {(0, ""): 900, (4, "key"): 300, (10, "login-per-address"): 20}
    counts = pack_counts({books.meaning(*what): count for what, count in meant.items()})
    peak = pack_peak(900, 100, 1200, limited=True, own=False)
    days, fives = (30, 90 * 288) if soak else (30, 90 * 12)
    for day in range(days):
        for hour in range(24):
            books.begin()
            for key in keys:
                books.seal(key, [Hour(24 * day + hour, slots, 5, 1200.0)])
            books.end(well=True)
    for five in range(fives):
        books.begin()
        for slot in range(30 * five, 30 * five + 30):
            if slot % 30 == 0 or five >= fives - (288 if soak else 12):
                books.both(slot, [(key, counts, peak) for key in keys])
        books.fold(five)
        if five % 288 == 0:
            books.connection.execute("DELETE FROM slot WHERE slot < ?", (30 * (five - 288),))
        books.end(well=True)
    books.connection.execute("DELETE FROM slot WHERE slot < ?", (30 * (fives - (288 if soak else 12)),))
    sizes = _sizes(books.connection)
    scale = len(keys) * (1 if soak else 1 / 24)
    assert (sizes["hours"] + sizes["day"]) / len(keys) <= 40_000
    assert (sizes["slot"] + sizes["five"] + sizes["total"]) / scale <= 1_000_000
    books.connection.close()


def _sizes(connection: sqlite3.Connection) -> dict[str, int]:
    rows = connection.execute("SELECT name, sum(pgsize) FROM dbstat GROUP BY name")
    return dict(rows)
