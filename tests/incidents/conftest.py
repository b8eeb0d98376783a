"""What the cases share: one scripted upstream a module, forgotten between tests; one gateway that loses its store."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator

import pytest

from tests.wire.lost import Lost, losing
from tests.wire.origin import Origin, serving
from tests.wire.redis import RedisServer
from tests.wire.waiting import SLACK

__all__: list[str] = []


@pytest.fixture(scope="package", autouse=True)
def _untraced() -> Iterator[None]:
    """Start the cases' processes without coverage, which makes them half as slow again: theirs is what callers see."""
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("COVERAGE_PROCESS_CONFIG", raising=False)
        yield


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


@pytest.fixture(scope="session")
def losing_store(tmp_path_factory: pytest.TempPathFactory, redis_process: RedisServer) -> Iterator[Lost]:
    """Run one gateway whose store can be lost, for all tests of this process."""
    redis_process.clear()
    with losing(tmp_path_factory.mktemp("lost"), redis_process) as lost:
        yield lost


@pytest.fixture
async def lost(losing_store: Lost) -> AsyncIterator[Lost]:
    """Lend it with the store up, and leave it so."""
    await losing_store.heal(within=5.0 + SLACK)
    yield losing_store
    await losing_store.heal(within=5.0 + SLACK)
