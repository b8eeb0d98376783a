"""Ten thousand tenants stay smooth: the server sorts and searches, the page holds the rows that are looked at."""

from __future__ import annotations

import gzip
import hashlib
import re
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import orjson
import pytest
from playwright.sync_api import Browser, expect

import gateway.dashboard
from gateway.dashboard.view import read_query
from tests.gateway.dashboard.browser import page_of
from tests.gateway.dashboard.crowd import COUNT, Crowd, served
from tests.wire.waiting import SLACK

__all__: list[str] = []


@pytest.fixture(scope="module")
def crowd(tmp_path_factory: pytest.TempPathFactory) -> Crowd:
    """Ten thousand tenants with half a minute of requests."""
    made = Crowd(tmp_path_factory.mktemp("crowd"))
    made.slots(3)
    return made


@pytest.fixture(scope="module")
def address(crowd: Crowd) -> Iterator[str]:
    """Serve them."""
    with served(crowd) as at:
        yield at


def test_interactive_and_small(browser: Browser, crowd: Crowd, address: str) -> None:
    """All are in the list, a few in the page; the end, a search and another order are one step away."""
    with page_of(browser, address) as page:
        page.goto("/#/?window=1m")
        rows = page.locator("#list .row:not(.head)")
        expect(rows.first).to_contain_text("tenant-07777")
        expect(page.locator("#tenants-title")).to_contain_text(f"({COUNT})")
        expect(page.locator("#verdict")).to_contain_text("tenant-07777 is hurt: it got 33.3")
        assert rows.count() <= 60
        page.locator(".scroller").focus()
        page.keyboard.press("End")
        expect(page.locator(f"#list [data-index='{COUNT - 1}']")).to_be_visible()
        assert rows.count() <= 60
        page.locator("#search").fill("tenant-0123")
        expect(rows).to_have_count(10)
        page.get_by_role("button", name="Tenant", exact=True).click()
        expect(rows.first).to_contain_text("tenant-01230")


def test_a_snapshot_is_small(crowd: Crowd) -> None:
    """What is sent every second does not grow with the number of tenants: below 200 kB even without compression."""
    made = orjson.dumps(crowd.dashboard._view.snapshot(read_query({"window": "1m", "limit": "60"})))
    assert len(made) < 200_000
    assert len(gzip.compress(made)) < 20_000


def test_any_order_is_that_of_all(crowd: Crowd) -> None:
    """A page of the list is a piece of the whole in order, wherever it begins; the first of `worst` is the worst."""
    view = crowd.dashboard._view

    def names(**query: str) -> list[str]:
        return [row["tenant"] for row in view.snapshot(read_query({"window": "1m", **query}))["tenants"]]

    assert names(sort="tenant", offset="9990", limit="50") == [f"tenant-{number:05}" for number in range(9990, COUNT)]
    assert names(sort="worst", limit="1") == names(sort="refused", limit="1") == ["tenant-07777"]
    assert names(sort="offered", limit="2") == ["tenant-00000", "tenant-00010"]
    assert names(sort="success", q="TENANT-0777", limit="2") == ["tenant-07777", "tenant-07770"]
    assert names(offset=str(COUNT)) == []


def test_listeners_of_the_same_question_share_a_snapshot(crowd: Crowd, address: str) -> None:
    """The stream answers at once, each second again, with what `/api/fairness` says; wrong questions are 400."""
    fairness = httpx.get(f"{address}/api/fairness?window=1m&limit=1").json()
    with httpx.stream("GET", f"{address}/api/stream?window=1m&limit=2") as stream:
        assert stream.headers["content-type"].startswith("text/event-stream")
        began, found = time.monotonic(), []
        for line in stream.iter_lines():
            if line.startswith("data: "):
                found.append(orjson.loads(line[6:]))
            if len(found) == 2:
                break
        assert 0.5 < time.monotonic() - began < 5 + SLACK
    for name in ("window", "aggregate", "worst", "contended"):
        assert found[0][name] == fairness[name]
    assert fairness["tenants"][0].items() <= found[0]["tenants"][0].items()
    for query in ("window=2y", "sort=colour", "offset=-1", "limit=x"):
        assert httpx.get(f"{address}/api/stream?{query}").status_code == 400


def test_no_more_listeners_than_are_served(address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """One more is 503, and comes back by itself."""
    monkeypatch.setattr("gateway.dashboard.stream.MOST", 0)
    assert httpx.get(f"{address}/api/stream").status_code == 503


def test_assets(address: str) -> None:
    """The page may load from here and nowhere else, runs nothing inline, and what did not change is not sent again."""
    page = httpx.get(f"{address}/")
    policy = page.headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy
    assert not re.search(r"<script(?![^>]*src=)|\sstyle=|\son[a-z]+=|https?://", page.text)
    for name in re.findall(r'(?:src|href)="(/assets/[^"]+)"', page.text):
        asset = httpx.get(f"{address}{name}")
        assert asset.status_code == 200
        assert asset.headers["content-security-policy"] == policy
        again = httpx.get(f"{address}{name}", headers={"if-none-match": asset.headers["etag"]})
        assert (again.status_code, again.content) == (304, b"")


def test_what_is_vendored_is_what_was_published() -> None:
    """The library lies as it came, its licence and digests beside it."""
    folder = Path(gateway.dashboard.__file__).parent / "vendor"
    sums = (line.split() for line in (folder / "SHA256SUMS").read_text().splitlines())
    listed = {name: digest for digest, name in sums}
    assert any(name.startswith("LICENSE") for name in listed)
    assert {path.name for path in folder.iterdir()} == {*listed, "SHA256SUMS"}
    for name, digest in listed.items():
        assert hashlib.sha256((folder / name).read_bytes()).hexdigest() == digest
