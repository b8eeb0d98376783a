"""The client for threads."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor

import pytest
import redis

from gateway.config.sections import StoreSection
from gateway.stores.link.sync import open_client
from tests.stores.link.linked import NAMES
from tests.wire.faults import FaultProxy
from tests.wire.redis import RedisServer
from tests.wire.waiting import SLACK

__all__: list[str] = []

A = NAMES.key("a", "key")


def section(url: str, connections: int = 3) -> StoreSection:
    """Return the section of a store."""
    return StoreSection.model_validate({"url": url, "max_connections": connections})


def test_threads_share_few_connections(redis_server: RedisServer) -> None:
    """All that ask for a client have one pool, and wait for each other; the link has the connection that is left."""
    before = redis_server.clients
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda number: open_client(section(redis_server.url)).incrby(A, number), range(100)))
    assert redis_server.ask("GET", A) == b"4950"
    assert redis_server.clients - before <= 2
    open_client(section(redis_server.url)).close()
    assert open_client(section(f"redis+unix://{redis_server.unix}?database=2")).set(A, 1)


def test_what_may_have_run_is_not_sent_again(redis_server: RedisServer) -> None:
    """The library's default would repeat it."""
    with FaultProxy(redis_server.address) as proxy:
        client = open_client(section(proxy.url))
        client.incr(A)
        proxy.swallow()
        began = time.monotonic()
        with pytest.raises(redis.RedisError):
            client.incr(A)
        assert time.monotonic() - began < 1.5 + SLACK
        client.close()


def test_a_store_that_is_not_there_is_a_redis_error() -> None:
    """Of whatever kind the store is, and whenever it is found out."""
    for url in ("redis://127.0.0.1:1", "redis+cluster://127.0.0.1:1", "redis+sentinel://127.0.0.1:1/main"):
        with pytest.raises(redis.RedisError):
            open_client(section(url)).get(A)
