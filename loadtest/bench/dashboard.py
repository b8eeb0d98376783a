"""What an open dashboard costs a gateway with ten thousand tenants: processor, p99 of the data plane, a scrape.

    python -m loadtest.bench.dashboard [SECONDS]

A gateway and an origin are started; callers take turns over ten thousand tenants at a steady pace. The same pace is
measured with nobody looking, then with a page's stream open; the difference in processor time is the admin side's.
"""

from __future__ import annotations

import asyncio
import gzip
import random
import sys
import tempfile
import time
import urllib.request
from collections.abc import Sequence
from pathlib import Path

import psutil

from gateway.demo.processes import Children, free_ports
from gateway.identity.pat import digest, mint

__all__: list[str] = []

TENANTS = 10_000
PER_SECOND = 600
CONNECTIONS = 24


def main(seconds: float) -> int:
    """Print the figures; 1 if a target is missed."""
    with tempfile.TemporaryDirectory() as folder, Children(Path(folder)) as children:
        origin, tell = children.origin()
        tell(1e6)
        port, admin = free_ports(2)
        tokens = [mint() for _ in range(TENANTS)]
        config = Path(folder) / "gateway.toml"
        config.write_text(_toml(tokens, port, admin, origin))
        began = time.monotonic()
        children.gateway(["gateway", "serve"], config)
        gateway = psutil.Process(children.pids["gateway"])
        _until_ready(children, admin)
        print(f"{TENANTS} tenants; ready after {time.monotonic() - began:.1f} s")
        # Every tenant once, so that all are in the window.
        asyncio.run(_load(port, tokens, TENANTS / PER_SECOND))
        quiet, quiet_cpu = _measured(gateway, _load(port, tokens, seconds))
        seen, seen_cpu = _measured(gateway, _watched(port, tokens, seconds, admin))
        sizes, scrape = asyncio.run(_sizes(admin)), _scrape(admin)
    cost = 100 * (seen_cpu - quiet_cpu)
    ratio = seen / quiet
    print(f"p99: nobody looking {1000 * quiet:.2f} ms, a page open {1000 * seen:.2f} ms: {ratio:.2f}x (target 1.2x)")
    print(
        f"processor: {100 * quiet_cpu:.1f} % and {100 * seen_cpu:.1f} % of a core, the page {cost:.1f} % (target 5 %)"
    )
    print(f"a snapshot: {sizes[0]:,} octets, {sizes[1]:,} compressed (target 200,000)")
    print(f"a scrape: {1000 * scrape:.0f} ms (target 50)")
    return int(ratio > 1.2 or cost > 5 or sizes[1] > 200_000 or scrape > 0.05)


def _toml(tokens: Sequence[str], port: int, admin: int, origin: int) -> str:
    head = (
        f'[server]\nlisten = "127.0.0.1:{port}"\nadmin = "127.0.0.1:{admin}"\n[upstream]\nurl = "http://127.0.0.1:{origin}"\n'
        '[backstop]\nquota = "100000/s"\n[telemetry]\ndecision_log = "off"\n'
    )
    entry = '[[tenants]]\nid = "tenant-{0:05}"\n[[tenants.credentials]]\nid = "main"\npat = "{1}"\nquota = "100/s"\n'
    return head + "".join(entry.format(number, digest(token)) for number, token in enumerate(tokens))


def _until_ready(children: Children, admin: int) -> None:
    while True:
        children.check()
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{admin}/readyz", timeout=5):
                return
        except OSError:
            time.sleep(0.1)


def _measured(gateway: psutil.Process, work: object) -> tuple[float, float]:
    """Return the p99 in seconds, and the part of a core that the gateway took."""
    before, began = sum(gateway.cpu_times()[:2]), time.monotonic()
    latencies: list[float] = asyncio.run(work)  # type: ignore[arg-type]  # a coroutine of a list
    took = sum(gateway.cpu_times()[:2]) - before
    return sorted(latencies)[int(len(latencies) * 0.99)], took / (time.monotonic() - began)


async def _load(port: int, tokens: Sequence[str], seconds: float) -> list[float]:
    """Call in turn, at a steady pace; return how long each call took."""
    numbers, start, latencies = iter(range(int(PER_SECOND * seconds))), time.monotonic(), list[float]()
    shift = random.randrange(TENANTS)

    async def worker() -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        for number in numbers:
            await asyncio.sleep(max(0.0, start + number / PER_SECOND - time.monotonic()))
            began = time.perf_counter()
            token = tokens[(number + shift) % TENANTS]
            writer.write(f"GET /x HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer {token}\r\n\r\n".encode())
            head = await reader.readuntil(b"\r\n\r\n")
            length = next((line for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:")), b":0")
            await reader.readexactly(int(length.split(b":")[1]))
            latencies.append(time.perf_counter() - began)
        writer.close()

    await asyncio.gather(*(worker() for _ in range(CONNECTIONS)))
    return latencies


async def _watched(port: int, tokens: Sequence[str], seconds: float, admin: int) -> list[float]:
    """Do the same while a page listens."""
    stop = asyncio.Event()

    async def listen() -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", admin)
        writer.write(b"GET /api/stream?window=1m&limit=60 HTTP/1.1\r\nHost: localhost\r\n\r\n")
        while not stop.is_set():
            await reader.read(65536)
        writer.close()

    listening = asyncio.create_task(listen())
    latencies = await _load(port, tokens, seconds)
    stop.set()
    await listening
    return latencies


async def _sizes(admin: int) -> tuple[int, int]:
    reader, writer = await asyncio.open_connection("127.0.0.1", admin)
    writer.write(b"GET /api/stream?window=1m&limit=60 HTTP/1.1\r\nHost: localhost\r\n\r\n")
    data = b""
    while b"\n\ndata" not in data and data.count(b"event: fairness") < 2:
        data += await reader.read(65536)
    writer.close()
    snapshot = data.split(b"data: ", 1)[1].split(b"\n\n", 1)[0]
    return len(snapshot), len(gzip.compress(snapshot))


def _scrape(admin: int) -> float:
    """Return the median of five scrapes, each of figures of its own."""
    took = []
    for _ in range(5):
        time.sleep(1.1)
        began = time.perf_counter()
        with urllib.request.urlopen(f"http://127.0.0.1:{admin}/metrics", timeout=10) as answer:
            answer.read()
        took.append(time.perf_counter() - began)
    return sorted(took)[2]


if __name__ == "__main__":
    sys.exit(main(float(sys.argv[1]) if len(sys.argv) > 1 else 15.0))
