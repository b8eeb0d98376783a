"""A real Chromium, and what every test of the page asks of it: no error in its console, no script from elsewhere.

Rules
1. The system's browser is driven; none is downloaded. `.ci/run` installs it.
2. A page that says anything at `error` level, or throws, fails its test.
"""

from __future__ import annotations

import contextlib
import json
import shutil
from collections.abc import Iterator
from importlib.resources import files
from pathlib import Path
from typing import Any

from playwright.sync_api import Browser, ConsoleMessage, Page, Request, sync_playwright

__all__ = ["AXE", "chromium", "grave", "page_of"]

#: axe-core, as a package of the test group ships it.
AXE = Path(str(files("axe_playwright_python").joinpath("axe.min.js")))
_NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
_ARGUMENTS = (
    "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
    "--disable-component-update", "--disable-sync", "--disable-dev-shm-usage",
)  # fmt: skip


@contextlib.contextmanager
def chromium() -> Iterator[Browser]:
    """Run the system's Chromium with a profile of its own."""
    found = next(filter(None, map(shutil.which, _NAMES)), None)
    assert found is not None, "no Chromium: apt-get install chromium"
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=found, args=list(_ARGUMENTS))
        try:
            yield browser
        finally:
            browser.close()


@contextlib.contextmanager
def page_of(
    browser: Browser,
    address: str,
    *,
    width: int = 1280,
    height: int = 900,
    dark: bool = False,
    expected: str = "never",
    **context: Any,
) -> Iterator[Page]:
    """Open a page whose relative addresses are below `address`, and fail if it complained about anything.

    While its gateway is away a page may say that it cannot be reached, and it may say what is `expected`.
    """
    opened = browser.new_context(
        viewport={"width": width, "height": height},
        color_scheme="dark" if dark else "light",
        base_url=address,
        **context,
    )
    opened.set_default_timeout(10_000)
    page = opened.new_page()
    complaints: list[str] = []
    elsewhere: list[str] = []

    def hear(message: ConsoleMessage) -> None:
        if message.type == "error" and "net::ERR_" not in message.text and expected not in message.text:
            complaints.append(message.text)

    def watch(request: Request) -> None:
        if not request.url.startswith((address, "data:")):
            elsewhere.append(request.url)

    page.on("console", hear)
    page.on("pageerror", lambda error: complaints.append(str(error)))
    page.on("request", watch)
    try:
        yield page
        assert complaints == []
        assert elsewhere == []
    finally:
        opened.close()


def grave(page: Page) -> list[str]:
    """Return what axe-core finds of serious and critical violations (WCAG 2.2 A and AA)."""
    page.add_script_tag(path=AXE)
    tags = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"]
    found = page.evaluate("tags => axe.run(document, {runOnly: tags})", tags)
    return [
        f"{one['id']}: {one['help']} at {json.dumps([node['target'] for node in one['nodes']])}"
        for one in found["violations"]
        if one["impact"] in {"serious", "critical"}
    ]
