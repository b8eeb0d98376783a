"""The stream of what instances tell each other, on a real server."""

from __future__ import annotations

import time

import pytest

from gateway.config.sections import StoreSection
from gateway.errors import GatewayError
from gateway.stores.calls import CallError
from gateway.stores.stream import KEPT, Stream
from tests.wire.redis import RedisServer

__all__: list[str] = []

KEY = "s:1:{fleet}:told"


def streams(server: RedisServer, count: int = 2) -> list[Stream]:
    """Return the ends of some instances."""
    return [Stream(StoreSection.model_validate({"url": server.url, "namespace": "s"})) for _ in range(count)]


def heard(entries: list[tuple[str, int, bytes]], instance: str) -> list[int]:
    """Return the numbers of an instance's entries."""
    return [number for name, number, _ in entries if name == instance]


def test_each_hears_what_is_told_after_it_began(redis_server: RedisServer) -> None:
    """Everybody's entries, one's own too, in order, each once."""
    one, two = streams(redis_server)
    assert one.trade("one", 1, b"a") == [("one", 1, b"a")]
    assert one.trade("one", 2, b"b") == [("one", 2, b"b")]
    assert two.trade("two", 1, b"\x00\xff") == [("one", 1, b"a"), ("one", 2, b"b"), ("two", 1, b"\x00\xff")]
    assert one.trade("one", 3, b"c") == [("two", 1, b"\x00\xff"), ("one", 3, b"c")]
    assert two.trade("two", 2, b"d") == [("one", 3, b"c"), ("two", 2, b"d")]


def test_slow_start_skips_nothing(redis_server: RedisServer, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever is answered late hears what was told since it began, and nothing of before."""
    (slow,) = streams(redis_server, 1)
    slow._began -= 5
    now = int(time.time() * 1000)
    for ago, number in ((9_000, 1), (3_000, 2)):
        redis_server.ask("XADD", KEY, f"{now - ago}-0", "i", "x", "n", number, "b", "x")
    with monkeypatch.context() as patched:
        patched.setattr("gateway.stores.stream.Calls.run", _refuse)
        with pytest.raises(GatewayError):
            slow.trade("slow", 1, b"a")
    assert heard(slow.trade("slow", 1, b"a"), "x") == [2]


def _refuse(*_: object) -> None:
    raise CallError("the shared store did not answer in time")


def test_it_is_bounded_and_ends_by_itself(redis_server: RedisServer) -> None:
    """An old entry goes with the next one; the record has an end at all times, and the namespace in its name."""
    (one,) = streams(redis_server, 1)
    redis_server.ask("XADD", KEY, "1-1", "i", "old", "n", "1", "b", "x")
    one.trade("one", 1, b"a")
    assert redis_server.ask("XLEN", KEY) == 1
    assert KEPT / 1000 < redis_server.ask("TTL", KEY) <= 60


def test_server_that_lost_it_is_heard_again(redis_server: RedisServer) -> None:
    """After a flush ids may begin anew, below those that were read."""
    one, two = streams(redis_server)
    one.trade("one", 1, b"a")
    redis_server.ask("DEL", KEY)
    redis_server.ask("XADD", KEY, f"{int(time.time() * 1000) + 9_000}-0", "i", "x", "n", "1", "b", "x")
    assert heard(one.trade("one", 2, b"b"), "x") == [1]
    redis_server.clear()
    two.trade("two", 1, b"c")
    assert heard(one.trade("one", 3, b"d"), "two") == [1]


def test_what_the_store_lost_is_told_again(redis_server: RedisServer) -> None:
    """In order and before anything new; whoever began after it was told first hears nothing of it."""
    one, two = streams(redis_server)
    two.trade("two", 1, b"")
    for number in (1, 2, 3):
        one.trade("one", number, b"a")
    redis_server.clear()
    (late,) = streams(redis_server, 1)
    late._since = str(int(time.time() * 1000) + 1)
    assert heard(one.trade("one", 4, b"b"), "one") == [1, 2, 3, 4]
    assert heard(two.trade("two", 2, b""), "one") == [1, 2, 3, 4]
    late._after = "0-0"
    assert heard(late.trade("late", 1, b""), "one") == [4]
    assert heard(one.trade("one", 5, b"b"), "one") == [5]


PLANTED = {
    "a list": ("RPUSH", KEY, "x"),
    "a string": ("SET", KEY, "x"),
    "its last id": ("XADD", KEY, f"{2**64 - 1}-{2**64 - 1}", "x", "y"),
    "ids that never grow old": ("XADD", KEY, "9999999999999-0", "x", "y"),
}


@pytest.mark.parametrize("words", PLANTED.values(), ids=PLANTED)
def test_what_is_no_such_stream_is_replaced(
    redis_server: RedisServer, words: tuple[str, ...], caplog: pytest.LogCaptureFixture
) -> None:
    """Whatever somebody put there in its place: nothing is lost by it, and the log says so once for each instance."""
    one, two = streams(redis_server)
    two.trade("two", 1, b"")
    one.trade("one", 1, b"a")
    redis_server.ask("DEL", KEY)
    redis_server.ask(*words)
    one.trade("one", 2, b"b")
    assert heard(two.trade("two", 2, b""), "one") == [1, 2]
    assert 0 < redis_server.ask("TTL", KEY) <= 60
    redis_server.ask("DEL", KEY)
    redis_server.ask(*words)
    one.trade("one", 3, b"b")
    assert len(caplog.messages) == 1


def test_entry_of_somebody_else_is_passed_over(redis_server: RedisServer, caplog: pytest.LogCaptureFixture) -> None:
    """The others of that turn are heard; the log says so once."""
    one, two = streams(redis_server)
    one.trade("one", 1, b"")
    for _ in range(2):
        for fields in (
            ("x", "y"),
            ("i", "x", "n", "many", "b", ""),
            ("i", "x", "n", "9" * 40, "b", ""),
            ("i", "x") * 3,
        ):
            redis_server.ask("XADD", KEY, "*", *fields)
        two.trade("two", 1, b"c")
        assert heard(one.trade("one", 2, b""), "two") == [1]
    assert len([line for line in caplog.messages if "passed over" in line]) == 2  # once of each


def test_store_that_is_gone_is_one_sentence() -> None:
    """For whoever shows figures of this instance alone."""
    with pytest.raises(GatewayError, match="cannot be used"):
        Stream(StoreSection.model_validate({"url": "redis://127.0.0.1:1"})).trade("one", 1, b"a")
