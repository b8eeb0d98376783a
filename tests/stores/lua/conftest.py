"""One server for the tests of the scripts."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import redis

from tests.wire.redis import RedisServer

__all__: list[str] = []


@pytest.fixture(scope="package")
def lua_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RedisServer]:
    """Run a server while the tests of the scripts do."""
    with RedisServer(tmp_path_factory.mktemp("lua")) as server:
        yield server


@pytest.fixture
def client(lua_server: RedisServer) -> Iterator[redis.Redis]:
    """Return a client of a server that holds nothing."""
    with lua_server.client() as client:
        client.flushall()
        yield client
