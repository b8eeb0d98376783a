"""What history costs: `python -m loadtest.bench.history [KEYS [SERIES_KEYS]]`, 10,000 and 1,000 unless told otherwise.

Prints nanoseconds per counted decision; how long sizing KEYS from 30 days takes in a gateway that serves meanwhile, and
what its callers' p99 is then and afterwards, three times; how long "who was shed in these ten minutes of last week"
takes over 90 days of SERIES_KEYS. Exits 1 where a target is missed: 200 ns, 60 s, 1.3 x, 200 ms.
"""

from __future__ import annotations

import asyncio
import contextlib
import http.client
import os
import socket
import sqlite3
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

from gateway.history.archive import FileArchive
from gateway.history.books import Books
from gateway.history.identity import Identity, tenant_identity
from gateway.history.meter import SLOT, Meter
from gateway.history.packing import pack_counts, pack_day
from gateway.history.schema import connect
from policies.request import Kind, Principal
from policies.sizing_past import Day, Peak, Step

__all__ = ["main"]

_RATE = 400.0
_CONNECTIONS = 16
#: A busy machine makes one comparison a matter of luck.
_ROUNDS = 3
_CONFIG = """
[server]
listen = "127.0.0.1:{listen}"
admin = "127.0.0.1:{admin}"
[upstream]
url = "http://127.0.0.1:{origin}"
[backstop]
quota = "100000/s"
[auth]
unknown = "anonymous"
anonymous_quota = "100000/s"
[telemetry]
decision_log = "off"
"""


def _note() -> float:
    """Return the nanoseconds of counting one admitted decision."""
    meter, best = Meter(100_000), float("inf")
    who = [Principal(Kind.USER, f"tenant-{number}", "ci") for number in range(100)] * 20
    for lap in range(20):
        now = 1_000 * SLOT + lap * 1000
        began = time.perf_counter_ns()
        for principal in who:
            meter.note(principal, 1.0, "", now)
        best = min(best, (time.perf_counter_ns() - began) / len(who))
    return best


def _port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def fill_days(path: Path, keys: int, today: int, days: int = 30) -> None:
    """Write a history of `keys` keys and as many tenants, each with as many days and a number for each."""
    books = Books(connect(path), 10 * keys)
    books.begin()
    for number in range(keys):
        tenant = f"tenant-{number}"
        for identity in (Identity.of(Principal(Kind.USER, tenant, "ci")), tenant_identity(tenant)):
            key = books.key(identity, today - days, listed=True)
            peak = Peak(10.0 + number % 90, 5, 20.0)
            taught = [(key, today - ago, pack_day(Day(0, peak, peak, offered=50.0))) for ago in range(1, days + 1)]
            books.connection.executemany("INSERT INTO day VALUES (?, ?, ?)", taught)
            books.connection.executemany(
                "INSERT INTO step VALUES (?, ?, ?, ?, ?)",
                [(key, *Step(today - ago, 20 * 10**9, 20.0), "") for ago in range(days, 0, -3)],
            )
    books.connection.execute("UPDATE step SET sized = ?", (_SIZED,))
    books.end(well=True)
    books.connection.close()


_SIZED = (
    '{"quota":[20,1,20.0],"next":[20,1,20.0],"mode":"enforce","provenance":"sized","day":1,"terms":[],'
    '"peak":[10.0,5,"sustained"],"grown":[1.0,false],"starved":false,"proposal":null,"offered":50.0}'
)


def fill_series(path: Path, keys: int, now: int, days: int = 90) -> None:
    """Write five minutes of `keys` tenants for so many days before `now`."""
    books = Books(connect(path), 10 * keys)
    numbers = [books.key(tenant_identity(f"tenant-{number}"), 0, listed=True) for number in range(keys)]
    books.begin()
    meanings = [books.meaning(*what) for what in ((0, ""), (4, "key"), (6, "share"))]
    books.counts(0, [(numbers[0] or 0, pack_counts(dict.fromkeys(meanings, 1)))])
    blob = pack_counts({1: 900, 2: 300, 3: 7})
    last = now // 300
    for five in range(last - days * 288, last):
        books.connection.executemany("INSERT INTO five VALUES (?, ?, ?)", [(five, key, blob) for key in numbers])
    books.connection.executemany(
        "INSERT INTO total VALUES (?, ?, ?)",
        [(day, key, blob) for day in range(now // 86_400 - days, now // 86_400 + 1) for key in numbers],
    )
    books.note("five", last)
    books.end(well=True)
    books.connection.close()


@contextlib.contextmanager
def _running(*command: str, folder: Path) -> Iterator[subprocess.Popen[bytes]]:
    environ = os.environ | {"PYTHONPATH": str(Path(__file__).resolve().parents[2])}
    with (folder / "log").open("ab") as log:
        process = subprocess.Popen([sys.executable, "-m", *command], cwd=folder, env=environ, stderr=log)
    try:
        yield process
    finally:
        process.terminate()
        process.wait(20)


async def _origin(port: int) -> asyncio.Server:
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError, asyncio.CancelledError):
            while True:
                await reader.readuntil(b"\r\n\r\n")
                writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
        writer.close()

    return await asyncio.start_server(answer, "127.0.0.1", port)


async def _load(port: int, until: asyncio.Event) -> list[float]:
    """Ask at a steady pace until told; return milliseconds from when each was due."""
    took: list[float] = []
    start, numbers = time.perf_counter(), iter(range(10**9))

    async def caller() -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        for number in numbers:
            due = start + number / _RATE
            await asyncio.sleep(max(0.0, due - time.perf_counter()))
            if until.is_set():
                break
            writer.write(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n")
            await reader.readuntil(b"ok")
            took.append((time.perf_counter() - due) * 1000)
        writer.close()

    await asyncio.gather(*(caller() for _ in range(_CONNECTIONS)))
    return took


def _sized(path: Path) -> int:
    """Return when sizing was last done, in epoch seconds."""
    with contextlib.closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as connection:
        row = connection.execute("SELECT value FROM meta WHERE name = 'sized'").fetchone()
    return 0 if row is None else int(row[0])


async def _next_sizing(path: Path, since: int) -> None:
    while await asyncio.to_thread(_sized, path) < since:  # noqa: ASYNC110 - another process writes it
        await asyncio.sleep(0.1)


async def _serving(folder: Path, keys: int) -> list[tuple[float, float, float]]:
    """Return of each round the seconds of sizing, and the p99 of callers meanwhile and afterwards, in milliseconds."""
    listen, admin, origin = _port(), _port(), _port()
    (folder / "gateway.toml").write_text(_CONFIG.format(listen=listen, admin=admin, origin=origin), encoding="utf-8")
    path, today = folder / "evenhand-history.sqlite3", int(time.time() - 1810) // 86_400
    fill_days(path, keys, today)
    server = await _origin(origin)
    async with server:
        with _running("gateway", "serve", "-c", "gateway.toml", folder=folder):
            await _next_sizing(path, 1)
            await asyncio.sleep(1)
            return [await _round(path, listen, admin) for _ in range(_ROUNDS)]


async def _round(path: Path, listen: int, admin: int) -> tuple[float, float, float]:
    ended = asyncio.Event()
    load = asyncio.create_task(_load(listen, ended))
    await asyncio.sleep(1)
    asked, began = int(time.time()) + 1, time.perf_counter()
    await asyncio.sleep(asked - time.time())
    await asyncio.to_thread(_reload, admin)
    await _next_sizing(path, asked)
    seconds = time.perf_counter() - began
    ended.set()
    during = await load
    ended.clear()
    asyncio.get_running_loop().call_later(max(5.0, seconds), ended.set)
    return seconds, _p99(during), _p99(await _load(listen, ended))


def _reload(admin: int) -> None:
    connection = http.client.HTTPConnection("127.0.0.1", admin, timeout=30)
    connection.request("POST", "/api/reload")
    connection.getresponse().read()
    connection.close()


def _p99(took: list[float]) -> float:
    return sorted(took)[int(len(took) * 0.99)]


def main(keys: int = 10_000, series_keys: int = 1_000) -> int:
    """Measure, print, and return how many targets were missed."""
    missed = 0

    def told(line: str, *, ok: bool) -> None:
        nonlocal missed
        missed += not ok
        print(f"{line}{'' if ok else '   MISSED'}", flush=True)

    cost = _note()
    told(f"counting a decision      {cost:6.0f} ns", ok=cost <= 200)
    with TemporaryDirectory() as name:
        rounds = asyncio.run(_serving(Path(name), keys))
    seconds = max(seconds for seconds, _, _ in rounds)
    told(f"sizing {keys} keys and tenants x 30 days   {seconds:.1f} s", ok=seconds < 60)
    for _, during, after in rounds:
        print(f"callers' p99 meanwhile {during:.2f} ms, afterwards {after:.2f} ms, x {during / after:.2f}")
    middle = statistics.median(during / after for _, during, after in rounds)
    told(f"the median of those ratios   x {middle:.2f}", ok=middle <= 1.3)
    with TemporaryDirectory() as name:
        path, now = Path(name) / "h", int(time.time())
        fill_series(path, series_keys, now)
        size = path.stat().st_size
        for what, start, length in (
            ("ten minutes of last week", now - 7 * 86_400, 600), ("90 days", now - 90 * 86_400, 90 * 86_400),
        ):  # fmt: skip
            began = time.perf_counter()
            _, found = FileArchive(path).series.tenants(start, start + length, now)
            took = (time.perf_counter() - began) * 1000
            told(f"who was shed in {what}, {len(found)} tenants   {took:.0f} ms", ok=took < 200 or length > 600)
        began = time.perf_counter()
        FileArchive(path).series.tenant("tenant-7", now - 7 * 86_400, now, now)
        told(f"one tenant's series over a week   {(time.perf_counter() - began) * 1000:.0f} ms", ok=True)
        print(f"the file   {size / 1e6:.0f} MB, {size / series_keys / 1e3:.0f} KB a key")
    return missed


if __name__ == "__main__":
    sys.exit(bool(main(*map(int, sys.argv[1:]))))
