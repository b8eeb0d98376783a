"""The page over a gateway of its own: exact figures, acts, restarts, hostile names, the log-in."""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, expect

from tests.gateway.dashboard.browser import page_of
from tests.wire.caller import Response, request
from tests.wire.gateway import Gateway, free_port, running, tenant, token
from tests.wire.load import at_once
from tests.wire.origin import Origin, serving
from tests.wire.script import Answer
from tests.wire.waiting import SLACK

__all__: list[str] = []

TOKEN = "correct-horse-battery-staple"
MARKUP = '<img src=x onerror="document.title=1">'
REVERSED = "\u202ecba\u2066"
HIDDEN = "no\u200bthing\u3164&amp;"
HOSTILE = (MARKUP, REVERSED, HIDDEN, "\u5ba2\u6237-\u0627\u0644\u0639", "'\"`{{x}}</script>")


@pytest.fixture(scope="module")
def up() -> Iterator[Origin]:
    """Run an upstream."""
    with serving() as origin:
        origin.on("/", Answer())
        origin.on("/bad", Answer(500))
        origin.on("/exports", Answer())
        yield origin


@pytest.fixture
def gateway(tmp_path: Path, up: Origin) -> Iterator[Gateway]:
    """Run a gateway whose admin listener needs a token."""
    listed = [tenant("acme", quota="1000/s"), tenant("bulk", quota="1000/s", classes=["batch"])]
    config = {
        "server": {"admin_token": TOKEN},
        "tenants": [*listed, *(tenant(name, quota="1/s burst 1") for name in HOSTILE)],
        "store": {"path": "acts.sqlite3"},
    }
    with running(tmp_path, up, config) as started:
        yield started


def send(gateway: Gateway, name: str, count: int = 1, target: str = "/") -> list[Response]:
    """Send requests as `name`, at once."""
    octets = [request(target=target, token=token(name))] * count
    # Not on this thread: Playwright's loop runs on it.
    with ThreadPoolExecutor(1) as pool:
        tally = pool.submit(asyncio.run, at_once(gateway.address, octets)).result()
    return [answer for _, answer in tally.answers]


def refused_by(gateway: Gateway, name: str, *, wanted: bool = True) -> str | None:
    """Return what refuses `name`, None if it is served; waits a moment for the act to reach the data plane."""
    deadline = time.monotonic() + 2 + SLACK
    while True:
        (answer,) = send(gateway, name)
        if (answer.status == 429) is wanted or time.monotonic() > deadline:
            return answer.header("evenhand-refused")


def enter(page: Page) -> None:
    """Log in as a person does."""
    page.goto("/")
    expect(page).to_have_url(re.compile("/login$"))
    page.get_by_label("Admin token").fill(TOKEN)
    page.get_by_role("button", name="Log in").click()
    expect(page.locator("#live-text")).to_have_text("live")


def test_equals_the_api(browser: Browser, gateway: Gateway) -> None:
    """When the traffic rests, the page shows exactly what `/api/fairness` says, worst and aggregate together."""
    send(gateway, "acme", 30)
    send(gateway, "bulk", 6)
    send(gateway, "bulk", 14, "/bad")
    with page_of(browser, f"http://{gateway.admin}") as page:
        enter(page)
        expect(page.locator("#legend")).to_have_text(
            re.compile(r"Aggregate 72\.0\s% ?Worst tenant 30\.0\s% bulk"), timeout=2000
        )
        answer = gateway.ask("/api/fairness?window=5m", authorization=f"Bearer {TOKEN}").json()
        assert (answer["aggregate"]["success"], answer["worst"]["in_profile_success"]) == (0.72, 0.3)
        expect(page.locator("#list .row:not(.head)").first).to_contain_text("bulk")
        expect(page.locator("#verdict")).to_contain_text("bulk is hurt: it got 30.0")
        expect(page.locator("#verdict")).to_contain_text("the service behind failed")


def test_pausing_batch_takes_effect_and_is_logged(browser: Browser, gateway: Gateway) -> None:
    """Confirmed in a dialog, a pause refuses batch and nothing else, stands in the band, and ends from there."""
    with page_of(browser, f"http://{gateway.admin}") as page:
        enter(page)
        page.get_by_role("button", name="Pause batch", exact=True).click()
        dialog = page.get_by_role("dialog")
        dialog.get_by_label("Reason").fill("nightly export")
        dialog.get_by_role("button", name="Pause class batch of everybody").click()
        expect(dialog).to_be_visible()  # who answers for it is missing
        dialog.get_by_label("Who answers for it").fill("sre@example.com")
        dialog.get_by_role("button", name="Pause class batch of everybody").click()
        expect(page.locator("#toast")).to_contain_text("Paused class batch of everybody until")
        assert refused_by(gateway, "bulk") == "paused"
        assert send(gateway, "acme")[0].status == 200
        entry = page.locator("#band .paused")
        expect(entry).to_contain_text("class batch until")
        expect(entry).to_contain_text("nightly export, sre@example.com")
        entry.get_by_role("button", name="End").click()
        page.get_by_role("dialog").get_by_role("button", name="End it").click()
        expect(entry).to_have_count(0)
        assert refused_by(gateway, "bulk", wanted=False) is None
    deadline = time.monotonic() + 2 + SLACK
    while len(found := [line for line in gateway.log_lines() if line["event"] == "act"]) < 2:
        assert time.monotonic() < deadline
        time.sleep(0.02)
    assert [(line["act"], line["match"], line["reason"], line["owner"]) for line in found] == [
        (what, {"class": "batch"}, "nightly export", "sre@example.com") for what in ("made", "ended")
    ]
    assert TOKEN not in gateway.log.read_text() + gateway.stderr


def test_a_quota_is_raised_on_a_tenants_page(browser: Browser, gateway: Gateway) -> None:
    """An exemption needs a reason and an owner, and what is wrong with it is told in the dialog."""
    send(gateway, "acme")
    with page_of(browser, f"http://{gateway.admin}") as page:
        enter(page)
        page.goto("/#/tenant/acme")
        page.get_by_role("button", name="Raise its quota").click()
        dialog = page.get_by_role("dialog")
        dialog.get_by_label("Factor").fill("3")
        dialog.get_by_label("Reason").fill("launch")
        dialog.get_by_label("Who answers for it").fill("sre")
        dialog.get_by_role("button", name="Raise it").click()
        expect(page.locator("#band .exempt")).to_contain_text("tenant acme at 3 times its quota until")
        assert send(gateway, "acme")[0].header("ratelimit-policy") == '"key";q=3000;w=1'


def test_the_posture_is_set_where_the_store_is_lost(browser: Browser, tmp_path: Path, up: Origin) -> None:
    """The band says that it is, and why; a posture that is set in a dialog decides the next request, until it ends."""
    config = {
        "tenants": [tenant("acme")],
        "store": {"url": f"redis://127.0.0.1:{free_port()}", "path": "acts.sqlite3"},
        "routes": [{"name": "exports", "path": "/exports", "posture": "open", "unlimited": "a test"}],
    }
    with running(tmp_path, up, config) as lost, page_of(browser, f"http://{lost.admin}") as page:
        assert send(lost, "acme")[0].header("evenhand-degraded") == "store"
        page.goto("/")
        expect(page.locator("#band .degraded")).to_contain_text("the store does not answer (refused): safe-capacity")
        page.get_by_role("button", name="Posture", exact=True).click()
        dialog = page.get_by_role("dialog")
        expect(dialog).to_contain_text("this takes effect at once")
        expect(dialog.get_by_label("Where")).to_contain_text("exports (now open)")
        dialog.locator("select[name=kind]").select_option("closed")
        dialog.get_by_label("Who answers for it").fill("sre")
        dialog.get_by_role("button", name="Set it").click()
        entry = page.locator("#band .posture")
        expect(entry).to_contain_text("without a store closed decides until")
        answer = send(lost, "acme")[0]
        assert (answer.status, answer.header("evenhand-refused")) == (503, "posture")
        assert send(lost, "acme", 1, "/exports")[0].status == 200
        entry.get_by_role("button", name="End").click()
        page.get_by_role("dialog").get_by_role("button", name="End it").click()
        expect(entry).to_have_count(0)
        assert send(lost, "acme")[0].status == 200


def test_comes_back_after_a_restart(browser: Browser, gateway: Gateway) -> None:
    """The page says that it lost the gateway, and shows it again when it is back, without anybody's doing."""
    send(gateway, "acme")
    with page_of(browser, f"http://{gateway.admin}") as page:
        enter(page)
        gateway.stop()
        expect(page.locator("#live-text")).to_have_text("reconnecting", timeout=8000)
        gateway.start()
        expect(page.locator("#live-text")).to_have_text("live", timeout=15000)
        send(gateway, "acme", 2)
        expect(page.locator("#list")).to_contain_text("acme")


def test_hostile_ids_are_text(browser: Browser, gateway: Gateway) -> None:
    """Markup, direction marks, invisible letters: text in the list, on the tenant's page, in dialogs and the band."""
    for name in HOSTILE:
        send(gateway, name, 25)
    shown = {MARKUP: MARKUP, REVERSED: "⟨U+202E⟩cba⟨U+2066⟩", HIDDEN: "no⟨U+200B⟩thing⟨U+3164⟩&amp;"}
    shown |= {name: name for name in HOSTILE[3:]}
    with page_of(browser, f"http://{gateway.admin}") as page:
        enter(page)
        rows = page.locator("#list .row:not(.head)")
        expect(rows).to_have_count(len(HOSTILE))
        for name, text in shown.items():
            link = page.locator("#list").get_by_role("link", name=text, exact=True)
            expect(link).to_have_text(text)
            link.click()
            expect(page.get_by_role("heading", level=1)).to_have_text(text)
            expect(page.get_by_role("table", name="Last refusals")).to_contain_text("key")
            page.get_by_role("button", name="Pause its batch").click()
            dialog = page.get_by_role("dialog")
            expect(dialog).to_contain_text(text)
            dialog.get_by_label("Reason").fill(name if name != REVERSED else "x")
            dialog.get_by_label("Who answers for it").fill("sre")
            dialog.get_by_role("button", name="Pause class").click()
            expect(page.locator("#band")).to_contain_text(f"tenant {text}")
            page.get_by_role("link", name="All tenants").click()
        assert page.locator("main img").count() == 0
        expect(page).to_have_title("Evenhand")
        raw = page.locator("body").inner_text()
        assert not set(raw) & set("\u202e\u2066\u200b\u3164")


def test_no_session_no_page(browser: Browser, gateway: Gateway) -> None:
    """Without its cookie nothing is shown; a session that ends leads back to the log-in."""
    with page_of(browser, f"http://{gateway.admin}") as page:
        enter(page)
        expect(page.get_by_role("button", name="Log out")).to_be_visible()
        page.get_by_role("button", name="Log out").click()
        page.goto("/")
        expect(page).to_have_url(re.compile("/login$"))


def test_reload_is_asked_for_and_answered(browser: Browser, gateway: Gateway) -> None:
    """A reload is confirmed; what is wrong with the file is told where it was asked for."""
    with page_of(browser, f"http://{gateway.admin}", expected="status of 409") as page:
        enter(page)
        page.get_by_role("button", name="Reload").click()
        page.get_by_role("dialog").get_by_role("button", name="Reload").click()
        expect(page.locator("#toast")).to_contain_text("Reloaded")
        gateway.file.write_text(f"{gateway.file.read_text()}\n[colour]\n")
        page.get_by_role("button", name="Reload").click()
        dialog = page.get_by_role("dialog")
        dialog.get_by_role("button", name="Reload").click()
        expect(dialog.get_by_role("alert")).to_contain_text("colour")
