"""One browser for each module of tests of the page."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser

from tests.gateway.dashboard.browser import chromium

__all__: list[str] = []


# Not for the whole session: while Playwright is open, its loop runs on this thread, and no asynchronous test could.
@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """Run Chromium."""
    with chromium() as started:
        yield started
