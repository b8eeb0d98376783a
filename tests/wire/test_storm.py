"""Everything at once, at random, through a real gateway: every request ends once, in the right book, and nothing stays.

The same storm on the pool alone is `tests/gateway/proxy/test_upstream_storm.py`.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.wire.caller import Caller, Response, request
from tests.wire.gateway import Gateway, running, tenants, token
from tests.wire.ledger import balanced
from tests.wire.load import at_once
from tests.wire.origin import Origin, Seen, serving
from tests.wire.script import Answer, Ending
from tests.wire.waiting import until

__all__: list[str] = []

NAMES = tuple("abcdefgh")
BODY = b"0123456789" * 100
CHUNKED = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + b"64\r\n%b\r\n" % BODY[:100] * 10 + b"0\r\n\r\n"
LENGTH = b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n" + BODY
SLOTS = 32


@pytest.fixture
def up() -> Iterator[Origin]:
    """Run a scripted upstream."""
    with serving() as origin:
        yield origin


def sockets_of(pid: int) -> int:
    """Return how many sockets a process has open; files and pipes come and go with what runs in the background."""
    count = 0
    for number in Path(f"/proc/{pid}/fd").iterdir():
        with contextlib.suppress(FileNotFoundError):  # closed meanwhile
            count += os.readlink(number).startswith("socket:")  # noqa: PTH115 - no path at all
    return count


def answer(dice: random.Random) -> Answer:
    """Return an answer: 5 % reset, 5 % truncated, the others whole, in both framings and at several paces."""
    whole, fate = dice.choice((CHUNKED, LENGTH)), dice.random()
    if fate < 0.1:
        ending: Ending = "reset" if fate < 0.05 else "close"
        return Answer(raw=whole, cut=dice.randrange(len(whole)), ending=ending)
    return Answer(raw=whole, delay=dice.choice((0, 0, 0, 0.001, 0.005)))


def asked(dice: random.Random, name: str) -> tuple[str, bytes]:
    """Return a request of tenant `name`, some with a body."""
    method = dice.choice(("GET", "GET", "GET", "POST", "PUT"))
    body = None if method == "GET" else b"b" * dice.choice((0, 10, 5000))
    return method, request(method, "/x", token=token(name), body=body, chunked=bool(body) and dice.random() < 0.5)


def right(found: Response) -> bool:
    """Return whether an answer that looks complete is what the upstream meant, or a problem of ours."""
    return found.body == BODY if found.status == 200 else found.status in {429, 502}


class Lane:
    """One caller after the other of one tenant; `ends` is what each of them saw."""

    def __init__(self, gateway: Gateway, name: str, dice: random.Random) -> None:
        self._gateway, self.name, self._dice = gateway, name, dice
        self._caller: Caller | None = None
        self.ends: Counter[str] = Counter()

    async def run(self, count: int) -> None:
        """Make `count` requests, one of ten left at a random moment."""
        for _ in range(count):
            await self._one()
        if self._caller is not None:
            self._caller.close()
            await self._caller.until_closed()

    async def _one(self) -> None:
        if self._caller is None or self._caller.closed:
            self._caller = await Caller.connect(self._gateway.address)
        caller, dice = self._caller, self._dice
        method, octets = asked(dice, self.name)
        await caller.send(octets)
        if dice.random() < 0.1:
            await asyncio.sleep(dice.choice((0, 0.0005, 0.002, 0.01)))
            dice.choice((caller.reset, caller.close))()
            await caller.until_closed()
            self.ends["left"] += 1
            return
        found = await caller.response(method, 30)
        assert not found.complete or right(found), found
        self.ends[str(found.status) if found.complete else "broken"] += 1
        if not found.complete or found.header("connection") == "close":
            caller.close()
            await caller.until_closed()


def agree(row: dict[str, Any], seen: Counter[str]) -> None:
    """Hold a tenant's row to what its callers saw; of those who left nobody but the gateway knows."""
    refused = sum(row["refused"].values())
    counted = {
        "served": (row["served"], seen["200"]),
        "refused": (refused, seen["429"]),
        "upstream_error": (row["upstream_error"], seen["502"] + seen["broken"]),
        "aborted": (row["aborted"], 0),
    }
    for outcome, (count, least) in counted.items():
        assert least <= count <= least + seen["left"], (outcome, row, seen)
    assert row["aborted"] > 0
    assert bool(refused) is (row["tenant"] == "a")


@pytest.mark.soak
async def test_storm_leaves_nothing_behind(tmp_path: Path, up: Origin, soak: bool) -> None:
    """5,000 requests (200,000) of 8 tenants, 10 % left by callers, 5 % reset, 5 % truncated: all accounted for."""
    count, dice = 200_000 if soak else 5_000, random.Random(3)

    def script(_: Seen) -> Answer:
        return answer(dice)

    up.on("/", script)
    config = {
        "upstream": {"max_connections": SLOTS, "connect_timeout": "30s"},
        "backstop": {"quota": "100000/s"},
        # One of them is over its quota much of the time.
        "tenants": [*tenants(*NAMES[1:], quota="100000/s", concurrency=100), *tenants("a", quota="50/s burst 50")],
    }
    with running(tmp_path, up, config) as gateway:
        sockets = sockets_of(gateway.pid)
        async with balanced(gateway, up) as books:
            lanes = [Lane(gateway, name, random.Random(f"{name}{number}")) for name in NAMES for number in range(6)]
            each = -(-count // len(lanes))
            await asyncio.gather(*(lane.run(each) for lane in lanes))
            for name in NAMES:
                books.sent(name, 6 * each)
            books.retries = count
            up.on("/", Answer(delay=0.05))
            fresh = await at_once(gateway.address, [request(token=token("b"))] * SLOTS)
            books.sent("b", SLOTS)
            assert fresh.statuses == {200: SLOTS}
        ends = sum((lane.ends for lane in lanes), Counter[str]())
        assert ends.total() == 6 * 8 * each
        assert ends["left"] > count * 0.08
        assert ends["broken"] > count * 0.03
        assert ends["502"] > 0
        assert ends["429"] > 0
        await until(lambda: sockets_of(gateway.pid) <= sockets, "every socket is closed")
        for name in NAMES:
            seen = sum((lane.ends for lane in lanes if lane.name == name), Counter[str]())
            seen["200"] += SLOTS if name == "b" else 0
            agree(gateway.row(name, "24h") or {}, seen)


async def at_rest(gateway: Gateway) -> int:
    """Wait until all that was sent has been read and has ended; return how many requests of A there were."""
    before, now = -1, 0
    while before != now or gateway.metrics().sum("evenhand_in_flight"):
        # Longer than figures may be stale.
        await asyncio.sleep(1.2)
        before, now = now, (gateway.row("a", "24h") or {}).get("offered", 0)
    return now


@pytest.mark.soak
async def test_connections_cut_at_random_moments(tmp_path: Path, up: Origin, soak: bool) -> None:
    """1,000 connections opened, and cut anywhere: before a head, inside it, in a body, in an answer. Back to zero."""
    count, dice = 20_000 if soak else 1_000, random.Random(4)
    up.on("/", lambda _: Answer(body=lambda: [b"x" * 500] * 5, framing="chunked", gap=0.002))
    config = {"backstop": {"quota": "100000/s"}, "tenants": tenants("a", quota="100000/s", concurrency=2000)}

    async def one() -> None:
        caller = await Caller.connect(gateway.address)
        _, octets = asked(dice, "a")
        await caller.send(octets[: dice.choice((0, dice.randrange(len(octets)), len(octets), len(octets)))])
        await asyncio.sleep(dice.choice((0, 0.001, 0.005, 0.02)))
        dice.choice((caller.reset, caller.close, caller.half_close))()
        if not caller.transport.is_closing():
            await asyncio.sleep(0.01)
            caller.close()
        await caller.until_closed()

    async def lane() -> None:
        for _ in range(count // 100):
            await one()

    with running(tmp_path, up, config) as gateway:
        sockets = sockets_of(gateway.pid)
        async with balanced(gateway, up) as books:
            await asyncio.gather(*(lane() for _ in range(100)))
            offered = await at_rest(gateway)
            # Whoever left inside the head asked for nothing: only the gateway knows how many those were.
            assert offered > count / 3
            books.sent("a", offered)
            books.rejected(round(gateway.metrics().sum("evenhand_requests_total", outcome="rejected")))
            books.turned_back = count
        await until(lambda: sockets_of(gateway.pid) <= sockets, "every socket is closed")
        await until(lambda: gateway.metrics().sum("evenhand_connections", side="caller") == 0, "no caller is counted")
