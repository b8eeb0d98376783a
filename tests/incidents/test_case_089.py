"""Case 89: a stop loses nobody that was accepted; readiness goes first, and the last answers say that they are."""

from __future__ import annotations

import asyncio
import signal
import time
from collections import Counter
from pathlib import Path

import pytest

from tests.wire.caller import Caller, request
from tests.wire.gateway import Gateway, running, tenants, token
from tests.wire.ledger import Ledger
from tests.wire.origin import Origin
from tests.wire.redis import RedisServer
from tests.wire.script import HANG, Answer
from tests.wire.waiting import SLACK, until

__all__: list[str] = []

CONFIG = {"tenants": tenants("a", quota="100000/s burst 100000"), "backstop": {"quota": "100000/s burst 100000"}}


class Load:
    """Callers on kept connections. A refused connect is tried again: that request was never accepted."""

    def __init__(self, address: str) -> None:
        self.address, self.over = address, False
        self.came: Counter[str] = Counter()
        self.lost: list[str] = []

    async def more(self) -> None:
        """Wait for the next hundred answers."""
        wanted = self.came["answered"] + 100
        await until(lambda: self.came["answered"] > wanted, "load", 60)

    async def work(self) -> None:
        """Call until told otherwise."""
        octets, caller = request(token=token("a")), None
        while not self.over:
            if caller is None:
                try:
                    caller = await Caller.connect(self.address)
                except OSError:
                    self.came["turned off"] += 1
                    await asyncio.sleep(0.01)
                    continue
            await caller.send(octets)
            answer = await caller.response()
            if answer.status != 200 or not answer.complete:
                self.lost.append(f"{answer.status} {answer.fault}")
            self.came["answered"] += 1
            if answer.status == 0 or (answer.header("connection") or "") == "close":
                caller.close()
                caller = None
            await asyncio.sleep(0.002)
        if caller is not None:
            caller.close()


@pytest.mark.soak
@pytest.mark.parametrize("number", range(5))
async def test_restarts_under_load_lose_nobody(
    tmp_path: Path, up: Origin, soak: bool, number: int, capsys: pytest.CaptureFixture[str]
) -> None:
    """Every request on a connection that stood was answered, and every exit code is 0; 50 restarts in five rounds."""
    if number and not soak:
        pytest.skip("one round without --soak")
    restarts = 10 if soak else 1
    up.on("/", Answer(delay=0.01))
    gateway = Gateway(tmp_path, up.address, CONFIG)
    gateway.start()
    books = Ledger(gateway, up)
    load = Load(gateway.address)
    workers = [asyncio.create_task(load.work()) for _ in range(16)]
    try:
        for _ in range(restarts):
            await load.more()
            await asyncio.to_thread(gateway.stop)
            await asyncio.to_thread(gateway.start)
        await load.more()
    finally:
        load.over = True
        await asyncio.gather(*workers)
        await asyncio.to_thread(gateway.stop)
    assert load.lost == []
    books.sent("a", load.came["answered"])
    books.balance_ended()
    assert len(up.seen) == load.came["answered"]
    with capsys.disabled():
        print(f"\n  {restarts} restarts, {load.came['answered']} answered, 0 lost")  # noqa: T201 - a figure to keep


async def test_order_of_a_stop(tmp_path: Path, up: Origin) -> None:
    """Readiness first, then `grace` of serving, then no new connections, and what is under way to its end."""
    up.on("/slow", Answer(delay=2.4))
    config = {**CONFIG, "server": {"grace": "1500ms", "drain_timeout": "9s"}}
    with running(tmp_path, up, config) as gateway:
        books = Ledger(gateway, up)
        busy, idle = await Caller.connect(gateway.address), await Caller.connect(gateway.address)
        await busy.send(request(target="/slow", token=token("a")))
        await until(lambda: len(up.seen) == 1, "arrived")
        gateway.signal(signal.SIGTERM)
        await until(lambda: gateway.ask("/readyz").status == 503, "not ready")
        assert gateway.ask("/livez").status == 200
        async with await Caller.connect(gateway.address) as late:
            await late.send(request(token=token("a")))
            answer = await late.response()
            assert (answer.status, answer.header("connection")) == (200, "close")
        answer = await busy.response()
        assert (answer.status, answer.header("connection")) == (200, "close")
        await idle.until_closed()
        await until(lambda: not gateway.running, "ended", 3 + SLACK)
        assert gateway.end() == 0
        books.sent("a", 2)
        books.balance_ended()
    assert len(up.seen) == 2


async def test_end_of_the_drain_is_counted(tmp_path: Path, up: Origin) -> None:
    """What `drain_timeout` cuts is told so: a 503, a broken stream, a closed WebSocket; each with its reason."""
    up.on("/hang", HANG)
    up.on("/stream", Answer(body=lambda: iter([b"x"] * 10_000), framing="chunked", gap=0.02))
    config = {**CONFIG, "server": {"drain_timeout": "500ms"}}
    with running(tmp_path, up, config) as gateway:
        books = Ledger(gateway, up)
        waiting, streaming = await Caller.connect(gateway.address), await Caller.connect(gateway.address)
        await waiting.send(request(target="/hang", token=token("a")))
        await streaming.send(request(target="/stream", token=token("a")))
        await streaming.head()
        await until(lambda: len(up.seen) == 2, "arrived")
        started = time.monotonic()
        gateway.signal(signal.SIGTERM)
        answer = await waiting.response()
        assert (answer.status, answer.header("connection")) == (503, "close")
        assert not (await streaming.response()).complete
        assert time.monotonic() - started < 3 + SLACK
        waiting.close()
        await until(lambda: not gateway.running, "ended")
        assert gateway.end() == 0
        ended = [(line["outcome"], line["status"], line["ended"]) for line in gateway.log_lines() if line.get("ended")]
        assert sorted(ended) == [("served", 200, "drain"), ("upstream_error", 503, "drain")]
        assert "were ended: 2" in gateway.stderr
        books.sent("a", 2)
        books.balance_ended()


async def test_second_interrupt_leaves_at_once(tmp_path: Path, up: Origin) -> None:
    """Whoever asks twice does not wait for the grace."""
    up.on("/hang", HANG)
    config = {**CONFIG, "server": {"grace": "10s", "drain_timeout": "10s"}}
    with running(tmp_path, up, config) as gateway:
        books = Ledger(gateway, up)
        async with await Caller.connect(gateway.address) as caller:
            await caller.send(request(target="/hang", token=token("a")))
            await until(lambda: len(up.seen) == 1, "arrived")
            started = time.monotonic()
            gateway.signal(signal.SIGINT)
            await asyncio.sleep(0.2)
            assert gateway.end(signal.SIGINT) == 0
            assert time.monotonic() - started < 5
        books.sent("a")
        books.balance_ended()


async def test_hangup_ends_nothing(tmp_path: Path, up: Origin) -> None:
    """SIGHUP reloads, whatever else happens; requests go on."""
    with running(tmp_path, up, CONFIG) as gateway:
        books = Ledger(gateway, up)
        async with await Caller.connect(gateway.address) as caller:
            for _ in range(5):
                gateway.signal(signal.SIGHUP)
                await caller.send(request(token=token("a")))
                assert (await caller.response()).status == 200
                books.sent("a")
        await books.balance()


class Balancer:
    """Callers on kept connections over some instances, as behind a balancer: a refused connect goes elsewhere."""

    def __init__(self, addresses: list[str]) -> None:
        self.addresses, self.over = addresses, False
        self.answered = 0
        self.lost: list[str] = []

    async def work(self, first: int) -> None:
        """Call until told otherwise; a connection that ended well is made anew at the next instance."""
        octets, at = request(token=token("a")), first
        caller: Caller | None = None
        while not self.over:
            if caller is None:
                at += 1
                try:
                    caller = await Caller.connect(self.addresses[at % len(self.addresses)])
                except OSError:
                    await asyncio.sleep(0.01)
                    continue
            await caller.send(octets)
            answer = await caller.response()
            self.answered += 1
            if answer.status != 200 or not answer.complete:
                limit = answer.header("evenhand-refused") or ""
                self.lost.append(f"{answer.status} {limit} {answer.fault}")
            if answer.status == 0 or answer.header("connection") == "close":
                caller.close()
                caller = None
            await asyncio.sleep(0.02)
        if caller is not None:
            caller.close()


@pytest.mark.soak
@pytest.mark.parametrize("number", range(4))
async def test_rolling_restart_of_instances_loses_nobody(
    tmp_path: Path, up: Origin, soak: bool, number: int, redis_server: RedisServer
) -> None:
    """Three instances on one store restarted in turn under load: 0 resets, 0 5xx, each request counted once."""
    if number and not soak:
        pytest.skip("one round without --soak")
    gateways = []
    for name in ("a", "b", "c"):
        (tmp_path / name).mkdir()
        gateways.append(Gateway(tmp_path / name, up.address, {**CONFIG, "store": {"url": redis_server.url}}))
    await asyncio.gather(*[asyncio.to_thread(gateway.start) for gateway in gateways])
    load = Balancer([gateway.address for gateway in gateways])
    callers = [asyncio.create_task(load.work(first)) for first in range(12)]
    try:
        for gateway in gateways * (5 if soak else 1):
            seen = load.answered
            await until(lambda: load.answered > seen + 30, "load", 60)  # noqa: B023 - waited for at once
            await asyncio.to_thread(gateway.stop)
            await asyncio.to_thread(gateway.start)
        await until(lambda: len(gateways[0].ask("/api/fleet").json()["instances"]) == 3, "one view of the living", 30)
    finally:
        load.over = True
        await asyncio.gather(*callers)
        await asyncio.gather(*[asyncio.to_thread(gateway.stop) for gateway in gateways])
    assert load.lost == []
    served = Counter(
        line["outcome"] for gateway in gateways for line in gateway.log_lines() if line.get("tenant") == "a"
    )
    assert served == {"served": load.answered}
    assert len(up.seen) == load.answered
