"""The stream of what instances tell each other, on a real server."""

from __future__ import annotations

import pytest

from gateway.config.sections import StoreSection
from gateway.errors import GatewayError
from gateway.stores.stream import KEPT, Stream
from tests.wire.redis import RedisServer

__all__: list[str] = []


def streams(server: RedisServer, count: int = 2) -> list[Stream]:
    """Return the ends of some instances."""
    return [Stream(StoreSection.model_validate({"url": server.url, "namespace": "s"})) for _ in range(count)]


def test_each_hears_what_is_told_after_it_began(redis_server: RedisServer) -> None:
    """Everybody's entries, one's own too, in order; a newcomer nothing of before."""
    one, two = streams(redis_server)
    assert one.trade("one", 1, b"a") == []
    assert one.trade("one", 2, b"b") == [("one", 2, b"b")]
    assert two.trade("two", 1, b"\x00\xff") == []
    assert one.trade("one", 3, b"c") == [("two", 1, b"\x00\xff"), ("one", 3, b"c")]
    assert two.trade("two", 2, b"d") == [("one", 3, b"c"), ("two", 2, b"d")]


def test_it_is_bounded_and_ends_by_itself(redis_server: RedisServer) -> None:
    """An old entry goes with the next one; the record has an end at all times, and the namespace in its name."""
    (one,) = streams(redis_server, 1)
    redis_server.ask("XADD", "s:1:{fleet}:told", "1-1", "i", "old", "n", "1", "b", "x")
    one.trade("one", 1, b"a")
    assert redis_server.ask("XLEN", "s:1:{fleet}:told") == 1
    assert KEPT / 1000 < redis_server.ask("TTL", "s:1:{fleet}:told") <= 60


def test_server_that_lost_it_is_heard_again(redis_server: RedisServer) -> None:
    """After a flush ids may begin anew, below those that were read."""
    one, two = streams(redis_server)
    one.trade("one", 1, b"a")
    redis_server.ask("DEL", "s:1:{fleet}:told")
    redis_server.ask("XADD", "s:1:{fleet}:told", "9999999999999-0", "i", "x", "n", "1", "b", "x")
    one.trade("one", 2, b"b")
    redis_server.clear()
    two.trade("two", 1, b"c")
    assert one.trade("one", 3, b"d") == [("two", 1, b"c"), ("one", 3, b"d")]


def test_store_that_is_gone_is_one_sentence() -> None:
    """For whoever shows figures of this instance alone."""
    with pytest.raises(GatewayError, match="cannot be used"):
        Stream(StoreSection.model_validate({"url": "redis://127.0.0.1:1"})).trade("one", 1, b"a")
