"""What others write under the names of a shared history."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.gateway.history.together import Together, rates
from tests.wire.redis import RedisServer

__all__: list[str] = []


PLANTED: dict[str, Callable[[str, str], list[Any]]] = {
    "another type": lambda name, _: ["RPUSH", name, "x"],
    "noise": lambda name, kind: (
        ["HSET", name, "k:x", "?", "1", "?", "3", "?"] if kind == "hash" else ["SET", name, "?"]
    ),
}


@pytest.mark.parametrize("plant", PLANTED.values(), ids=PLANTED)
def test_what_is_not_ours_is_replaced(
    both: Together, redis_server: RedisServer, plant: Callable[[str, str], list[Any]], caplog: pytest.LogCaptureFixture
) -> None:
    """In every record at once: nothing fails, it is counted and led on, numbers stay in force, also for who comes."""
    both.days(2, 400)
    before = rates(both.processes[0].history.sized)
    caplog.clear()
    names = [name.decode() for name in redis_server.ask("KEYS", "*history*")]
    for name in names:
        kind = redis_server.ask("TYPE", name).decode()
        words = plant(name, kind)
        if words[0] != "HSET":
            redis_server.ask("DEL", name)
        redis_server.ask(*words)
    for _ in range(4):
        both.use(20)
    both.to(both.at + 300)
    both.to(both.at + 300)
    assert rates(both.processes[1].history.sized) == before
    if plant is PLANTED["noise"]:  # which is found a day later
        both.days(1, 400)
    assert rates(both.join().opened) == rates(both.processes[0].history.sized)
    assert before.keys() == both.processes[2].opened.keys()
    assert sum(one.history.leads for one in both.processes) == 1
    assert all("too late" in told for one in both.processes for told in one.history.warnings())
    assert "Traceback" not in caplog.text
    for name in ("lease", "token", "fence", "meta", "processes"):
        assert redis_server.ask("TYPE", f"evenhand:1:{{history}}:{name}") in {b"hash", b"string"}
