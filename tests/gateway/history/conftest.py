"""What several tests of the history stand on."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from gateway.history.shared import keeper
from tests.gateway.history.together import Together
from tests.wire.redis import RedisServer

__all__ = ["both"]


@pytest.fixture
def both(redis_server: RedisServer, monkeypatch: pytest.MonkeyPatch) -> Iterator[Together]:
    """Return two processes on an empty store."""
    monkeypatch.setattr(keeper, "_BEYOND", 1)
    monkeypatch.setattr(keeper, "_PATIENCE_SECONDS", 600.0)
    made = Together(redis_server)
    yield made
    for one in made.processes:
        one.history.stop()
