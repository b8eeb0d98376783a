"""Case 53: Retry-After is true. Whole seconds, enough to wait, and not much more than enough.

Everything between a request head and the bytes of the answer is real; only the clock is turned by hand.
"""

from __future__ import annotations

import random
from pathlib import Path

import orjson
import pytest

from gateway.clock import Clock
from policies.units import SECOND
from tests.gateway.proxy.house import House, Told, head, write

PLENTY = 'quota = "100000/s"'


class Hand(Clock):
    """A clock that stands still until it is turned."""

    __slots__ = ("at",)

    def __init__(self) -> None:
        super().__init__()
        self.at = 1_800_000_000 * SECOND

    def now(self) -> int:
        return self.at

    def wall(self) -> int:
        return self.at


POLICY = """
[[policies]]
name = "few per tenant"
match = {}
key = ["tenant"]
quota = "6/min burst 1"
"""

LIMITS = {
    "slow key": ("key", {"quota": "6/min burst 1"}),
    "fast key": ("key", {"quota": "10/s burst 20"}),
    "policy": ("few per tenant", {"quota": "1000/s", "more": POLICY}),
    "backstop": ("share backstop", {"quota": "1000/s", "backstop": 'quota = "6/min burst 1"'}),
}


def ask(house: House) -> Told:
    """Send one request and end it at once if it went on."""
    calls = len(house.upstream.calls)
    _, told = house.begin(head("/"))
    if len(house.upstream.calls) > calls:
        house.call.respond(200, [])
    return told


@pytest.mark.parametrize("name", LIMITS)
def test_waiting_as_told_is_enough(tmp_path: Path, name: str) -> None:
    """200 refusals at random phases: the retry is admitted; the value lies between the wait and 1.25 of it, rounded up.

    Coming back two seconds before `retry_after_ms` is too early, wherever that is more than three; but for share and
    backstop, whose waits are booked one after the other, so that whoever jumps the queue may find it shorter.
    """
    limit, config = LIMITS[name]
    clock, rng = Hand(), random.Random(53)
    house = House(write(tmp_path, **config), clock, rng.random)
    for _ in range(200):
        clock.at += rng.randrange(30 * SECOND)
        told = ask(house)
        while told.status == 200:
            clock.at += rng.randrange(1000)
            told = ask(house)
        assert (told.field("evenhand-refused") or "").replace("%20", " ") in (limit, *limit.split())
        problem = orjson.loads(told.body)
        after, wait_ms = int(told.field("retry-after") or ""), problem["retry_after_ms"]
        assert problem["retry_after"] == after
        assert after >= 1
        assert wait_ms / 1000 <= after <= 1.25 * wait_ms / 1000 + 1
        if wait_ms > 3000 and name != "backstop":
            clock.at += (wait_ms - 2000) * 1000
            assert ask(house).status == 429
            after -= (wait_ms - 2000) / 1000
        clock.at += int(after * SECOND)
        assert ask(house).status == 200


def test_concurrency_is_a_hint(tmp_path: Path) -> None:
    """Nobody knows when a request will end: a positive number of seconds, at most a minute."""
    text = write(tmp_path).read_text().replace('id = "ci"', 'id = "ci"\nconcurrency = 1')
    (tmp_path / "gateway.toml").write_text(text)
    house = House(tmp_path / "gateway.toml", Hand())
    house.begin(head("/"))
    told = house.ask(head("/"))
    assert told.field("evenhand-refused") == "concurrency"
    assert 1 <= int(told.field("retry-after") or 0) <= 60
    house.call.respond(200, [])
    assert ask(house).status == 200
