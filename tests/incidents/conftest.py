"""What the cases share: one scripted upstream a module, forgotten between tests."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.wire.origin import Origin, serving

__all__: list[str] = []


@pytest.fixture(scope="module")
def origin() -> Iterator[Origin]:
    """Run one upstream for the module."""
    with serving() as up:
        yield up


@pytest.fixture
def up(origin: Origin) -> Iterator[Origin]:
    """Lend the module's upstream, without past or script; whatever reaches it must be strictly readable."""
    origin.forget()
    yield origin
    assert origin.faults == []
