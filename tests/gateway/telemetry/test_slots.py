"""Counting is bounded by tenants, not by requests or time, and may be read while it goes on."""

from __future__ import annotations

import gc
import sys
import threading
from pathlib import Path

import pytest

from gateway.telemetry.codebook import Codebook, Entry, Tally
from gateway.telemetry.slots import DAY_SLOTS, MAX_TENANTS, OTHER, SLOT, Ledger, Slot, Tab
from gateway.telemetry.windows import WINDOWS, Windows
from policies.charge import Plan
from policies.request import Class
from policies.units import SECOND
from policies.verdict import Outcome
from tests.gateway.telemetry.made import START, Event, StoppedClock, telemetry


def count(ledger: Ledger, tenant: str, now: int) -> None:
    """Count one served request."""
    ledger.add(Tally.SERVED, Class.INTERACTIVE, "", tenant, now)


def plan_of(tenant: str) -> Plan:
    """Return a plan of somebody's requests."""
    return Plan(tenant, "ci", Class.INTERACTIVE, 1.0, (), (), (), None)


def test_unlisted_tenants_are_told_apart_up_to_a_number_and_listed_ones_always() -> None:
    """The rest is one tenant, `other`; whoever was told apart stays so."""
    ledger = Ledger({"listed"}, 2)
    for tenant in ("a", "b", "c", "listed", "anonymous", "rejected", "b"):
        count(ledger, tenant, START)
    assert list(ledger.slot.tenants) == ["a", "b", OTHER, "listed", "anonymous", "rejected"]
    count(ledger, "d", START + SLOT)
    count(ledger, "a", START + SLOT)
    assert list(ledger.slot.tenants) == [OTHER, "a"]


def test_an_unlisted_tenant_makes_room_once_no_window_shows_it() -> None:
    """A day without a request, and the place of the one unseen for longest is another's."""
    ledger = Ledger((), 2)
    count(ledger, "old", START)
    count(ledger, "busy", START)
    for hour in range(1, 24):
        count(ledger, "busy", START + hour * 3600 * SECOND)
    day = START + DAY_SLOTS * SLOT
    count(ledger, "early", day - 1)
    assert list(ledger.slot.tenants) == [OTHER]
    count(ledger, "new", day)
    count(ledger, "newer", day)
    assert list(ledger.slot.tenants) == ["new", OTHER]
    count(ledger, "busy", day)
    assert list(ledger.slot.tenants) == ["new", OTHER, "busy"]


def test_what_a_plan_remembers_is_the_slot_under_way() -> None:
    """It holds for one slot, and never for whoever is counted as `other`: there may be room a moment later."""
    ledger, listed, other = Ledger({"a"}, 0), plan_of("a"), plan_of("b")
    for at in (START, START + 1, START + SLOT):
        ledger.count(7, listed, at)
        ledger.count(8, other, at)
    ledger.count(9, listed, START + SLOT)
    (closed,) = ledger.take_closed(sys.maxsize)
    assert {tenant: tab.copy() for tenant, tab in closed.tenants.items()} == {"a": {7: 2}, OTHER: {8: 2}}
    assert {tenant: tab.copy() for tenant, tab in ledger.slot.tenants.items()} == {"a": {7: 1, 9: 1}, OTHER: {8: 1}}
    ledger.relist({"a", "b"}, 0)
    ledger.count(8, other, START + SLOT)
    assert ledger.slot.tenants["b"].copy() == {8: 1}
    assert Tab("new", 0).copy() == {}


def test_without_room_for_unlisted_tenants_all_of_them_are_one() -> None:
    """`max_unlisted_tenants = 0`, and a number that no memory would bear."""
    ledger = Ledger((), 0)
    count(ledger, "a", START)
    assert list(ledger.slot.tenants) == [OTHER]
    ledger.relist({"a"}, 10 * MAX_TENANTS)
    count(ledger, "a", START + SLOT)
    count(ledger, "b", START + SLOT)
    assert list(ledger.slot.tenants) == ["a", "b"]


def test_codes_are_handed_out_once_and_their_number_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Thousands of reloads with other policies end in one name, not in wider numbers."""
    monkeypatch.setattr("gateway.telemetry.codebook._MAX_CODES", 2 * len(Tally) + 2)
    book = Codebook()
    codes = [book.code(Tally.OWN, Class.BATCH, f"policy-{number}") for number in (1, 2, 1, 3, 4)]
    assert codes == [0, 1, 0, 2, 2]
    assert book.entries[2] == Entry(Tally.OWN, Class.BATCH, "other")


def test_a_clock_that_steps_back_still_counts() -> None:
    """An instant before the current slot counts in it: nothing is lost, nothing is rewritten."""
    ledger = Ledger((), 10)
    count(ledger, "a", START + SLOT)
    count(ledger, "a", START)
    assert {tenant: tab.copy() for tenant, tab in ledger.slot.tenants.items()} == {"a": {0: 2}}
    assert list(ledger.take_closed(sys.maxsize)) == []


def test_numbers_of_forgotten_tenants_are_used_again() -> None:
    """Tenants that come and go for ever need no more memory than those of one day."""
    codebook = Codebook()
    codebook.code(Tally.SERVED, Class.INTERACTIVE)
    windows = Windows(codebook)
    slot = Slot(0)
    for day in range(5):
        slot = Slot((START // SLOT) + day * 2 * DAY_SLOTS, {f"tenant-{day}-{number}": {0: 1} for number in range(50)})
        windows.close(slot)
        windows.expire(slot.number * SLOT)
        assert len(windows._names) <= 100
        assert len(windows._numbers) == 50
    windows.expire((slot.number + 2 * DAY_SLOTS) * SLOT)
    assert windows._numbers == {}
    assert all(not list(windows.read(window, START * 2, Slot(0))) for window in WINDOWS)


def test_a_busy_tenant_costs_some_kilobytes_for_a_whole_day(tmp_path: Path) -> None:
    """Memory depends on tenants and codes, not on requests: below 25 KB a tenant that never rests."""
    record = telemetry(tmp_path)
    tenants = [Event(f"tenant-{number}") for number in range(20)]
    for slot in range(400):
        for event in tenants:
            for _ in range(3):
                record.record(event.decision(), START + slot * SLOT)
        record.tenants.advance(START + slot * SLOT)
    windows = record.tenants._windows
    packed = {id(array): sys.getsizeof(array) for one in windows._fine for _, array in one.slots}
    packed |= {id(array): sys.getsizeof(array) for _, array in windows._longest.slots}
    slots = WINDOWS["1h"] + WINDOWS["24h"] // 30
    assert sum(packed.values()) / len(packed) / len(tenants) * slots < 25_000


def test_a_reader_in_another_thread_sees_every_request_once(tmp_path: Path) -> None:
    """Scrapes and reports run while the data plane counts; in the end, and never before, all is there."""
    gc.collect()
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    clock = StoppedClock()
    record = telemetry(tmp_path, clock, top=3)
    seen: list[float] = []
    done = threading.Event()

    def read() -> None:
        while not done.is_set():
            seen.append(sum(sum(cells.values()) for cells in record.tenants.totals(clock.at).values()))
            record.tenants.report("1m", clock.at)
            record.tenants.glance("24h", clock.at)

    thread = threading.Thread(target=read)
    thread.start()
    try:
        for number in range(6_000):
            event = Event(f"tenant-{number % 40}", Outcome.SERVED, at=number * 0.02)
            clock.at = event.now
            record.record(event.decision(), event.now)
    finally:
        done.set()
        thread.join()
        sys.setswitchinterval(interval)
    assert seen == sorted(seen)
    assert sum(sum(cells.values()) for cells in record.tenants.totals(clock.at).values()) == 6_000
    assert record.tenants.report("24h", clock.at + 2 * SECOND).aggregate.offered == 6_000
