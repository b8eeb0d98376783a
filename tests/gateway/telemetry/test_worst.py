"""Case 125 in figures: the average hides the victim. The same over real sockets stands in `tests/incidents`."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from gateway.telemetry import Telemetry
from gateway.telemetry.figures import Report
from policies.units import SECOND
from policies.verdict import Outcome
from tests.gateway.telemetry.made import START, Event, StoppedClock, telemetry

WINDOW_SECONDS = 60


def minute(at: float, bad: dict[str, int]) -> Iterator[Event]:
    """Fifty tenants with 20 requests each; each one in `bad` has so many of them served, all others all."""
    for number in range(50):
        tenant = f"t{number}"
        for request in range(20):
            served = request < bad.get(tenant, 20)
            yield Event(tenant, Outcome.SERVED if served else Outcome.REFUSED, "" if served else "backstop", at)


def after(record: Telemetry, at: float, bad: dict[str, int]) -> Report:
    """Record a minute's requests at once and look at the last minute."""
    for event in minute(at, bad):
        record.record(event.decision(), event.now)
    return record.tenants.report("1m", START + round(at * SECOND))


def test_a_worst_tenant_that_asks_for_more_than_its_share_says_so(tmp_path: Path) -> None:
    """One without a quota of its own has no own limit to be refused by: `share_over` tells it from a victim."""
    record = telemetry(tmp_path, StoppedClock())
    for event in [Event("greedy")] * 6 + [Event("greedy", Outcome.REFUSED, "share")] * 14 + [Event("light")] * 20:
        record.record(event.decision(), event.now)
    worst = record.tenants.report("1m", START).worst_members() or {}
    assert (worst["tenant"], worst["share_over"]) == ("greedy", True)


def test_case_125_the_worst_stands_beside_the_aggregate_and_has_a_name(tmp_path: Path) -> None:
    """One tenant at 30 % of 20, then two bad ones, then recovery: each seen at once, and gone within one window."""
    record = telemetry(tmp_path, StoppedClock())

    one = after(record, 0, {"t7": 6})
    assert one.aggregate.success == (49 * 20 + 6) / 1000
    assert one.aggregate.success_by_tenant == pytest.approx((49 + 0.3) / 50)
    assert one.worst is not None
    assert (one.worst.tenant, one.worst.in_profile_success, one.worst.success) == ("t7", 0.3, 0.3)
    members = one.worst_members() or {}
    assert members.pop("interval") == pytest.approx([0.1455, 0.5190], abs=5e-5)
    assert members == {"tenant": "t7", "in_profile_success": 0.3, "success": 0.3, "offered": 20, "share_over": False}
    assert one.aggregate.within_share_refused == 14

    two = after(record, WINDOW_SECONDS, {"t7": 6, "t9": 4})
    assert two.aggregate.offered == 1000
    assert two.aggregate.success == (48 * 20 + 6 + 4) / 1000
    assert two.worst is not None
    assert (two.worst.tenant, two.worst.in_profile_success) == ("t9", 0.2)
    assert sorted(row.tenant for row in two.tenants if row.success != 1.0) == ["t7", "t9"]

    well = after(record, 2 * WINDOW_SECONDS, {})
    assert (well.aggregate.success, well.aggregate.success_by_tenant) == (1.0, 1.0)
    assert well.worst is not None
    assert well.worst.in_profile_success == 1.0
    assert record.tenants.report("5m", START + 2 * WINDOW_SECONDS * SECOND).worst != well.worst
