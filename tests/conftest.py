"""What all tests share: how large a run is.

Rules
1. The suite fits ten minutes on two cores. What needs more is marked `soak`, takes its size from the fixture `soak`,
   and reaches full size under `make soak` (`--soak`).
2. Property tests draw 100 examples, `make fuzz` many more; none has a deadline, for the machine may be busy. Where `CI`
   is set they draw the same ones every time: whether a change lands must not depend on luck, finding more is fuzzing's
   job.
3. Coverage is not taken of tests marked `untraced`: millions of simulated decisions, each of whose lines other tests
   reach too. The tracer makes those four times as slow.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Generator, Iterator
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, settings

if TYPE_CHECKING:
    from tests.wire.redis import RedisCluster, RedisServer

__all__: list[str] = []

settings.register_profile(
    "default",
    max_examples=100,
    deadline=None,
    derandomize="CI" in os.environ,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.register_profile("fuzz", settings.get_profile("default"), max_examples=20_000, derandomize=False)
settings.load_profile("default")


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add `--soak`."""
    parser.addoption("--soak", action="store_true", help="run tests marked `soak` at their full size")


@pytest.fixture(scope="session")
def soak(request: pytest.FixtureRequest) -> bool:
    """Return whether tests marked `soak` run at full size: `count = 200_000 if soak else 5_000`."""
    return bool(request.config.getoption("--soak"))


@pytest.fixture(scope="session")
def redis_process(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RedisServer]:
    """Return the server that all tests of this process share."""
    from tests.wire.redis import RedisServer  # loads redis-py, which few tests need

    with RedisServer(tmp_path_factory.mktemp("redis")) as server:
        yield server


@pytest.fixture
def redis_server(redis_process: RedisServer) -> RedisServer:
    """Return a real server that holds nothing."""
    redis_process.clear()
    return redis_process


@pytest.fixture(scope="session")
def redis_members(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RedisCluster]:
    """Return the cluster of three primaries that all tests of this process share; it takes 2 s to come together."""
    from tests.wire.redis import RedisCluster

    with RedisCluster(tmp_path_factory.mktemp("cluster")) as cluster:
        yield cluster


@pytest.fixture
def redis_cluster(redis_members: RedisCluster) -> RedisCluster:
    """Return a real cluster that holds nothing."""
    redis_members.clear()
    return redis_members


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None]:
    """Run a test marked `untraced` without the tracer of coverage."""
    tracer = sys.gettrace()
    if tracer is None or item.get_closest_marker("untraced") is None:
        return (yield)
    sys.settrace(None)
    try:
        return (yield)
    finally:
        sys.settrace(tracer)
