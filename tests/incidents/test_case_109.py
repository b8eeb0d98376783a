"""Case 109: who sends slowly is cut by its deadline, who streams is not, and nobody else notices."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.wire.caller import Caller, request
from tests.wire.gateway import Gateway, running, tenants, token
from tests.wire.ledger import balanced
from tests.wire.origin import Origin
from tests.wire.script import Answer
from tests.wire.waiting import until

__all__: list[str] = []

HEAD = b"GET /slow HTTP/1.1\r\nHost: a\r\nX-Slow: " + b"x" * 200


def configured(header: str, body: str) -> dict[str, object]:
    """Return a configuration with these deadlines."""
    return {
        "server": {"header_timeout": header, "body_timeout": body, "max_connections_per_address": 700},
        "tenants": tenants("a", "b", quota="100000/s burst 100000"),
        "backstop": {"quota": "100000/s burst 100000"},
    }


class Slow:
    """Connections that send one octet a second each, from many loopback addresses; they say when each was closed."""

    def __init__(self, address: str, octets: bytes, gap: float = 1.0) -> None:
        self.address, self.octets, self.gap = address, octets, gap
        self.callers: list[tuple[float, Caller]] = []

    async def open(self, count: int, per_address: int = 500) -> None:
        """Open them."""
        for number in range(count):
            source = f"127.0.{1 + number // per_address // 250}.{1 + number // per_address % 250}"
            caller = await Caller.connect(self.address, source=source)
            self.callers.append((time.monotonic(), caller))
            if number % 100 == 99:
                await asyncio.sleep(0)

    async def drip(self, seconds: float) -> None:
        """Send octet by octet until all are closed, or for `seconds`."""
        start, at = time.monotonic(), 0
        while time.monotonic() - start < seconds and any(caller.closed is None for _, caller in self.callers):
            for _, caller in self.callers:
                if caller.closed is None and not caller.transport.is_closing():
                    caller.transport.write(self.octets[at : at + 1])
            at += 1
            await asyncio.sleep(max(0.0, start + at * self.gap - time.monotonic()))

    def lasted(self) -> list[float]:
        """Return how long each was open; fail for one that still is."""
        assert all(caller.closed_at is not None for _, caller in self.callers)
        return [(caller.closed_at or 0.0) - opened for opened, caller in self.callers]


async def served_beside(gateway: Gateway, until_done: asyncio.Task[None], rate: float = 20.0) -> list[float]:
    """Call as A at a steady rate until the task is done; return how long each answer took. All must be 200."""
    took: list[float] = []
    async with await Caller.connect(gateway.address, source="127.0.99.1") as caller:
        while not until_done.done():
            started = time.monotonic()
            await caller.send(request(token=token("a")))
            assert (await caller.response()).status == 200
            took.append(time.monotonic() - started)
            await asyncio.sleep(max(0.0, 1 / rate - took[-1]))
    return took


@pytest.mark.soak
async def test_slow_heads_are_cut(tmp_path: Path, up: Origin, soak: bool, capsys: pytest.CaptureFixture[str]) -> None:
    """Thousands at once, from many addresses: all closed by their deadline, memory bounded, others served."""
    count, timeout = (10_000, 10.0) if soak else (500, 2.0)
    with running(tmp_path, up, configured(f"{timeout:.0f}s", "30s")) as gateway:
        before = gateway.memory()
        async with balanced(gateway, up) as books:
            slow = Slow(gateway.address, HEAD, 1.0 if soak else 0.3)
            await slow.open(count)
            dripping = asyncio.create_task(slow.drip(timeout * 3))
            beside = asyncio.create_task(served_beside(gateway, dripping))
            await asyncio.sleep(timeout / 2)
            during = gateway.memory()
            await dripping
            took = await beside
            await until(lambda: all(caller.closed for _, caller in slow.callers), "closed")
            # Each had begun a head, and is told.
            assert all(b" 408 " in caller.raw for _, caller in slow.callers)
            books.rejected(count)
            books.sent("a", len(took))
        longest = max(slow.lasted())
        # One octet after half the deadline opens a head: what begins later has its own time.
        assert longest < 2 * timeout + 2.0
        assert during < (200 if soak else 150) << 20
        assert gateway.row("a") is not None
        with capsys.disabled():
            worst = sorted(took)[int(len(took) * 0.99)]
            print(  # noqa: T201 - figures to keep
                f"\n  {count} slow connections: {before >> 20} -> {during >> 20} MB, closed within {longest:.1f} s; "
                f"{len(took)} requests beside them, all served, p99 {worst * 1000:.1f} ms"
            )


async def test_slow_bodies_are_cut_and_streams_are_not(tmp_path: Path, up: Origin) -> None:
    """A body at 20 octets a second is 408; a response that runs longer than every deadline is whole."""
    up.on("/stream", Answer(body=lambda: iter([b"x"] * 30), framing="chunked", gap=0.1))
    with running(tmp_path, up, configured("1s", "1s")) as gateway:
        async with balanced(gateway, up) as books:
            streaming = await Caller.connect(gateway.address)
            await streaming.send(request(target="/stream", token=token("b")))
            head = request("POST", "/slow", token=token("a"), fields=[("Content-Length", "100000")])
            slow = Slow(gateway.address, b"x" * 1000, 0.05)
            await slow.open(50)
            for _, caller in slow.callers:
                await caller.send(head)
            await slow.drip(10)
            assert max(slow.lasted()) < 4
            for _, caller in slow.callers:
                assert b" 408 " in caller.raw
            answer = await streaming.response()
            assert (answer.complete, len(answer.body)) == (True, 30)
            streaming.close()
            books.sent("b")
            books.rejected(50)
            books.turned_back = 50
        assert (gateway.row("b") or {})["served"] == 1


@pytest.fixture(scope="module")
def capped(tmp_path_factory: pytest.TempPathFactory, origin: Origin) -> Iterator[Gateway]:
    """Run a gateway that lets an address hold 20 connections."""
    config = {"server": {"max_connections_per_address": 20}, "tenants": tenants("a", quota="1000/s")}
    with running(tmp_path_factory.mktemp("gateway"), origin, config) as one:
        yield one


async def test_connections_of_an_address_are_capped(capped: Gateway, up: Origin) -> None:
    """The 21st is closed unanswered and counted; another address is served."""
    async with balanced(capped, up) as books:
        held = [await Caller.connect(capped.address, source="127.0.5.1") for _ in range(20)]
        await until(lambda: capped.sockets() >= 20, "held")
        for _ in range(5):
            late = await Caller.connect(capped.address, source="127.0.5.1")
            await late.until_closed()
            assert late.raw == b""
        async with await Caller.connect(capped.address, source="127.0.5.2") as other:
            await other.send(request(token=token("a")))
            assert (await other.response()).status == 200
        turned_away = [line for line in capped.log_lines() if line.get("limit") == "too-many-connections"]
        await until(lambda: capped.metrics().sum("evenhand_requests_total", outcome="rejected") == 5, "counted")
        assert len(turned_away) <= 5
        for caller in held:
            caller.close()
        books.rejected(5)
        books.sent("a")
