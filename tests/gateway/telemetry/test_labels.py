"""Case 107: metric label per caller input."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from policies.request import Class, Kind
from policies.verdict import Outcome
from tests.gateway.telemetry.made import Event, StoppedClock, telemetry


@pytest.mark.soak
def test_case_107_no_request_makes_a_series_of_its_own(tmp_path: Path, soak: bool) -> None:
    """Random path, class, tenant, credential and status: under 50 series more than before; all is counted."""
    count = 200_000 if soak else 10_000
    drawn = random.Random(107)
    clock = StoppedClock()
    record = telemetry(tmp_path, clock, top=5, unlisted=1000)
    for number in range(6):
        event = Event(f"regular-{number}")
        record.record(event.decision(), event.now)
    before = record.metrics.render("")[0].count(b"\n")
    for number in range(count):
        outcome = drawn.choice(list(Outcome))
        event = Event(
            tenant=f"claimed-{drawn.getrandbits(64)}",
            outcome=outcome,
            limit=drawn.choice(("key", "share")) if outcome is Outcome.REFUSED else "",
            at=number / count * 9,
            cls=drawn.choice(list(Class)),
            kind=drawn.choice((Kind.USER, Kind.JOB)),
            status=drawn.randrange(100, 1000),
            code=f"reason-{drawn.getrandbits(64)}" if outcome is Outcome.REJECTED else "",
            path=f"/{drawn.getrandbits(64)}",
            credential=f"{drawn.getrandbits(64)}",
        )
        record.record(event.decision(), event.now)
        clock.at = event.now
    exposition = record.metrics.render("")[0]
    assert exposition.count(b"\n") - before < 50
    assert b"claimed-" not in exposition
    totals = record.tenants.totals(clock.at)
    entries = record._codebook.entries
    assert sum(n for cells in totals.values() for code, n in cells.items() if entries[code].outcome) == count + 6
