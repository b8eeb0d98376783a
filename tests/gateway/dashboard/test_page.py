"""The page in a real browser, beside the demo's backfill: who is hurt, by what, because of whom."""

from __future__ import annotations

import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from playwright.sync_api import Browser, Page, expect

from tests.gateway.dashboard.browser import grave, page_of

__all__: list[str] = []

ROOT = Path(__file__).resolve().parents[3]
LIGHT = ("aster", "birch", "cedar", "dahlia", "elm", "fern", "gorse", "hazel", "iris", "juniper", "kelp", "larch")


@pytest.fixture(scope="module")
def demo(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Play the night without fairness, so that somebody is hurt; give the admin listener's address."""
    folder = tmp_path_factory.mktemp("demo")
    command = [sys.executable, "-m", "gateway", "demo", "--seconds", "120", "--mode", "shared-bucket"]
    with (folder / "out").open("w") as out:
        played = subprocess.Popen(command, cwd=ROOT, stdout=out, stderr=subprocess.STDOUT)
    try:
        yield waited(lambda: _address(folder / "out"), "the demo's address", 30)
    finally:
        played.terminate()
        played.wait(20)


def _address(out: Path) -> str | None:
    found = re.search(r"Dashboard: (http://\S+?)/\s", out.read_text(errors="replace"))
    if found is None:
        return None
    worst = httpx.get(f"{found[1]}/api/fairness?window=1m").json()["worst"]
    # Until the backfill has begun nobody is hurt.
    return found[1] if worst is not None and worst["in_profile_success"] < 0.9 else None


def waited(condition: Callable[[], Any], what: str, seconds: float) -> Any:
    """Return the first true value of `condition`."""
    until = time.monotonic() + seconds
    while not (found := condition()):
        assert time.monotonic() < until, f"not within {seconds} s: {what}"
        time.sleep(0.05)
    return found


def percent(share: float) -> str:
    """Write a share as the page does."""
    return f"{int(share * 1000 + 1e-9) / 10:.1f}\u202f%"


def test_worst_and_aggregate_within_two_seconds(browser: Browser, demo: str) -> None:
    """What the page shows two seconds after it was asked for is what `/api/fairness` says, while all of it moves."""
    with page_of(browser, demo) as page:
        page.goto("/#/?window=1m")
        expect(page.locator("#live-text")).to_have_text("live")

        def agrees() -> bool:
            said = httpx.get(f"{demo}/api/fairness?window=1m").json()
            told = re.search(
                r"Aggregate ([\d.]+).*Worst tenant ([\d.]+)\s% +(\S+)",
                page.locator("#legend").text_content() or "",
                re.DOTALL,
            )
            if told is None:
                return False
            rows = {row["tenant"]: row["in_profile_success"] for row in said["tenants"]}
            # A tenant has a hundred requests in the window: one more moves its figure by a part of a per cent.
            return bool(
                abs(float(told[1]) / 100 - said["aggregate"]["success"]) < 0.01
                and abs(float(told[2]) / 100 - said["worst"]["in_profile_success"]) < 0.02
                and abs(rows[told[3]] - said["worst"]["in_profile_success"]) < 0.02
            )

        # Two seconds where the machine is free; it may not be.
        waited(agrees, "the page agrees with the API", 5)


def test_who_by_what_because_of_whom_and_what_to_do(browser: Browser, demo: str) -> None:
    """One sentence names a hurt tenant and how many more, the limit, the heavy one, and there is a button for it."""
    with page_of(browser, demo) as page:
        page.goto("/#/?window=1m")
        verdict = page.locator("#verdict")
        expect(verdict).to_contain_text("more are hurt")
        assert any(name in verdict.inner_text() for name in LIGHT)
        expect(verdict).to_contain_text("Refused by backstop")
        expect(verdict).to_contain_text("Because of backfill")
        expect(verdict.get_by_role("button", name="Pause all of backfill")).to_be_visible()
        expect(page.locator("#heavy")).to_contain_text("backfill")
        assert "In shadow" in page.locator("#band").inner_text()


def test_a_refused_tenants_page(browser: Browser, demo: str) -> None:
    """A tenant's page has its keys, its refusals by limit, and the last ones with wait and request id."""
    with page_of(browser, demo) as page:
        page.goto("/#/?window=1m")
        page.locator("#list").get_by_role("link", name="birch").click()
        expect(page).to_have_url(re.compile(r"#/tenant/birch\?window=1m$"))
        article = page.get_by_role("article")
        expect(article.get_by_role("heading", level=1)).to_have_text("birch")
        last = article.get_by_role("table", name="Last refusals")
        expect(last.locator("tbody tr").first).to_contain_text(re.compile("backstop"))
        expect(last.locator("tbody tr").first.locator("code")).to_have_text(re.compile(r"^[0-9A-Z]{26}$"))
        expect(article.get_by_role("table", name="Keys")).to_contain_text("main")
        expect(article.locator("canvas")).to_be_visible()
        expect(article.locator(".explain")).to_contain_text("initial")
        page.keyboard.press("Escape")
        expect(page.locator("#overview")).to_be_visible()


def test_search_sort_windows_and_deep_links(browser: Browser, demo: str) -> None:
    """What is searched, sorted and chosen stands in the address, and the address shows it again."""
    with page_of(browser, demo) as page:
        page.goto("/")
        expect(page.locator("#live-text")).to_have_text("live")
        page.keyboard.press("/")
        page.keyboard.type("el")
        rows = page.locator("#list .row:not(.head)")
        expect(rows).to_have_count(3)  # elm, hazel, kelp
        page.get_by_role("button", name="Tenant").click()
        expect(rows.first).to_contain_text("elm")
        page.locator("#windows").get_by_role("button", name="15").click()
        expect(page).to_have_url(re.compile(r"window=15m.*q=el.*sort=tenant"))
        address = page.url
        page.reload()
        expect(page).to_have_url(address)
        expect(rows).to_have_count(3)
        expect(page.locator("#windows [aria-pressed=true]")).to_contain_text("15")
        page.locator("#search").press("Escape")
        expect(rows).to_have_count(13)


def test_by_keyboard_alone(browser: Browser, demo: str) -> None:
    """Arrows walk the list, Enter opens a tenant, Escape comes back, digits choose the window."""
    with page_of(browser, demo) as page:
        page.goto("/#/?window=1m&sort=tenant")
        expect(page.locator("#list .row:not(.head)").first).to_contain_text("aster")
        page.locator(".scroller").focus()
        page.keyboard.press("ArrowDown")
        page.keyboard.press("ArrowDown")
        page.wait_for_timeout(1200)  # the list is drawn anew every second, and the focus stays
        expect(page.locator(":focus")).to_have_text("backfill")
        page.keyboard.press("Enter")
        expect(page.get_by_role("heading", level=1)).to_have_text("backfill")
        page.keyboard.press("Escape")
        page.keyboard.press("3")
        expect(page.locator("#windows [aria-pressed=true]")).to_contain_text("15")


@pytest.mark.parametrize(("width", "dark"), [(1280, False), (1280, True), (390, False), (390, True)])
@pytest.mark.parametrize("place", ["#/?window=1m", "#/tenant/birch?window=1m", "dialog"])
def test_axe_finds_nothing_serious(browser: Browser, demo: str, width: int, dark: bool, place: str) -> None:
    """No serious violation of WCAG A and AA in any theme, width or view; nothing is wider than the screen."""
    # axe is put into the page from outside, which the page's own policy rightly forbids.
    with page_of(browser, demo, width=width, dark=dark, bypass_csp=True) as page:
        page.goto("/#/?window=1m" if place == "dialog" else f"/{place}")
        shown = (
            page.get_by_role("table", name="Last refusals") if "tenant" in place else page.locator("#heavy li").first
        )
        expect(shown).to_be_visible()
        if place == "dialog":
            page.get_by_role("button", name="Pause batch", exact=True).first.click()
            expect(page.get_by_role("dialog")).to_be_visible()
        assert grave(page) == []
        assert page.evaluate("document.documentElement.scrollWidth") <= width


def test_dark_and_light_by_hand(browser: Browser, demo: str) -> None:
    """The theme can be turned, and stays turned."""

    def ground(page: Page) -> str:
        return str(page.evaluate("getComputedStyle(document.body.parentElement).backgroundColor"))

    with page_of(browser, demo) as page:
        page.goto("/")
        light = ground(page)
        page.get_by_role("button", name="Dark or light").click()
        dark = ground(page)
        assert dark != light
        page.reload()
        assert ground(page) == dark


def test_longer_windows_come_from_the_stored_series(browser: Browser, demo: str) -> None:
    """A quarter is shown from what is stored; the chart of a day too."""
    with page_of(browser, demo) as page:
        page.goto("/#/?window=90d")
        expect(page.locator("#live-text")).to_have_text("stored series")
        expect(page.locator("#list .row:not(.head)")).to_have_count(13)
        page.locator("#windows").get_by_role("button", name="24").click()
        expect(page.locator("#live-text")).to_have_text("live")
        expect(page.locator("#chart canvas")).to_be_visible()
