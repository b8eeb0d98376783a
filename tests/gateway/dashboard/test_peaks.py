"""A tenant's page shows what its keys reached day by day beside the quota that they had."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, expect

from gateway.dashboard.peaks import Peaks
from gateway.dashboard.sparks import MOST, Sparks
from gateway.errors import GatewayError
from gateway.telemetry.codebook import Tally
from policies.request import Class
from tests.clock import StandingClock
from tests.gateway.dashboard.browser import page_of
from tests.gateway.dashboard.crowd import Crowd, served
from tests.gateway.history.kept import BEGIN, DAY, POLICIES, Kept

__all__: list[str] = []


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kept]:
    """Live through nine days of 100 units a slot, of which the last held something back."""
    history = Kept(tmp_path_factory.mktemp("peaks") / "history.sqlite3")
    history.days(8, 100)
    history.days(1, 100, refused="key")
    yield history
    history.stop()


def test_days_and_quotas(kept: Kept) -> None:
    """Of one key, or of all together; the last quota is what is in force now."""
    peaks = Peaks(kept.history, kept.clock)
    found = peaks.of(POLICIES, "acme", "ci")
    assert found["keys"] == ["ci"]
    assert [(day["at"] // 1000, day["peak"], day["censored"]) for day in found["days"]] == [
        (BEGIN + day * DAY, 10.0, int(day == 8)) for day in range(9)
    ]
    assert found["days"][-1]["offered"] >= 10.0
    assert [at for at, _ in found["quota"]] == sorted(at for at, _ in found["quota"])
    assert found["quota"][-1][0] == kept.at * 1000
    together = peaks.of(POLICIES, "acme", "")
    assert (together["credential"], len(together["days"]), together["keys"]) == ("", 9, ["ci"])
    unknown = peaks.of(POLICIES, "nobody", "")
    assert (unknown["days"], unknown["keys"], unknown["quota"]) == ([], [], [])


def test_without_a_file_there_are_none() -> None:
    """A process that keeps no history says so."""
    with pytest.raises(GatewayError, match="no history"):
        Peaks(None, StandingClock(0)).of(POLICIES, "acme", "")


def test_the_page_draws_them(browser: Browser, kept: Kept, tmp_path: Path) -> None:
    """With the key chosen by name, and in words for whoever does not see a line."""
    crowd = Crowd(tmp_path, kept.history)
    served_in_batch = crowd.telemetry.codebook.code(Tally.SERVED, Class.BATCH)
    crowd.telemetry.tenants.ledger.tab("acme", crowd.clock.at).add(served_in_batch, 10)
    with served(crowd) as address, page_of(browser, address) as page:
        page.goto("/#/tenant/acme")
        section = page.locator("#peaks")
        expect(section.get_by_text("quota", exact=True)).to_be_visible()
        section.get_by_label("Whose peaks and quota").select_option("ci")
        expect(section.locator("canvas")).to_be_visible()
        expect(section.get_by_label("Whose peaks and quota")).to_have_value("ci")


def test_sparklines_of_a_day_and_a_quarter(kept: Kept) -> None:
    """A point each half hour or day, null where nothing came; of the rows that are looked at, and no others."""
    counts: dict[tuple[int, str], int] = {(Tally.SERVED, ""): 90, (Tally.OTHERS, "backstop"): 10}
    kept.history.offer((kept.at // 10 - 1, [("acme", counts)]))
    kept.to(kept.at + 5)
    sparks = Sparks(kept.history, kept.clock)
    found = sparks.of("24h", ["acme", "nobody"])
    assert (len(found["acme"]["success"]), found["nobody"]["success"]) == (48, [None] * 48)
    assert [one for one in found["acme"]["success"] if one is not None] == [90.0]
    assert sum(count > 0 for count in found["acme"]["offered"]) == 1
    assert len(sparks.of("90d", ["acme"])["acme"]["offered"]) == 90
    assert sparks.of("24h", ["acme"])["acme"] is found["acme"]
    assert list(sparks.of("24h", [f"t{number}" for number in range(MOST + 9)])) == [f"t{n}" for n in range(MOST)]
    with pytest.raises(GatewayError, match="no history"):
        Sparks(None, kept.clock).of("24h", ["acme"])


def test_the_list_draws_them(browser: Browser, kept: Kept, tmp_path: Path) -> None:
    """Once a window is longer than memory; the head of the column says which."""
    crowd = Crowd(tmp_path, kept.history)
    served_in_batch = crowd.telemetry.codebook.code(Tally.SERVED, Class.BATCH)
    crowd.telemetry.tenants.ledger.tab("acme", crowd.clock.at).add(served_in_batch, 10)
    with served(crowd) as address, page_of(browser, address) as page:
        with page.expect_response("**/dashboard/sparks?*") as answer:
            page.goto("/#/?window=24h")
        assert answer.value.status == 200
        assert list(answer.value.json()) == ["acme"]
        expect(page.locator("#list .head")).to_contain_text("24 h")
        expect(page.get_by_label("Offered, last 24 h")).to_be_visible()
