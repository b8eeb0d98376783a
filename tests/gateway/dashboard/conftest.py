"""One browser for all tests of the page."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser

from tests.gateway.dashboard.browser import chromium

__all__: list[str] = []


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    """Run Chromium."""
    with chromium() as started:
        yield started
