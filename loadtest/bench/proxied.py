"""What a proxied request and a refusal cost, ours beside the peers: `python -m loadtest.bench.proxied`.

Rules
1. One origin, one client, one run: all contestants stand ready, and take turns in every round of every cell.
2. A contestant runs on the first processor, origin and client on the second (with fewer than two, all together).
3. Cost is the processor time of all processes of a contestant over the requests that were answered; latency is what is
   added to the origin's own in the same round. Figures are medians over the rounds, cost with its spread.
4. An answer that a cell does not ask for (an error, a refusal where none is due) is counted beside the figures.

`--quick` takes less than two minutes; without it about ten. `--out` is where JSON and the drawing go.
"""

from __future__ import annotations

import argparse
import os
import platform
import subprocess
import sys
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from loadtest.peers import client, meter, report
from loadtest.peers.contestants import CONTESTANTS, Contestant, Running, start, start_origin, version
from loadtest.peers.everything import NARROW, WIDE, authorization
from loadtest.peers.report import Row, Sample

__all__ = ["main"]

_OURS = "evenhand"
_PURE = "evenhand, pure Python"
_MANY = "evenhand, 10,000 tenants"
_ASGI = ("evenhand as ASGI app", "evenhand as ASGI app, aiohttp")
_PURE_ASGI = ("evenhand as ASGI app, pure Python", "evenhand as ASGI app, pure Python, aiohttp")
_ENVOY, _NGINX = "envoy", "nginx"
_WARM_UP_MANY = 10
_LIMITERS = (_OURS, "nginx", "haproxy", "envoy")
_ALIKE = "envoy, same work"
_SERVERS = (*_LIMITERS, "envoy, 100 keys", _ALIKE, "caddy", "uvicorn + httpx")


@dataclass(frozen=True, slots=True)
class Cell:
    """One kind of load, and who takes part. `quick` cells are measured in the quick mode too."""

    name: str
    who: tuple[str, ...]
    path: str = "/v1/things/42"
    connections: int = 64
    keep_alive: bool = True
    many: bool = False
    refused: bool = False
    quick: bool = False


SMALL = "100 B, 64 connections"
CELLS = (
    Cell(SMALL, (*_SERVERS, *_ASGI, _PURE, *_PURE_ASGI), quick=True),
    Cell("refused, 64 connections", (*_LIMITERS, _ALIKE, _PURE), path="/refused/1", refused=True, quick=True),
    Cell("1 MB, 64 connections", _LIMITERS, path="/v1/1m", quick=True),
    Cell("10 kB, 64 connections", (*_LIMITERS, "caddy"), path="/v1/10k"),
    Cell("100 B, 1 connection", (*_LIMITERS, "caddy"), connections=1),
    Cell("100 B, 1,000 connections", (*_LIMITERS, "caddy"), connections=1000, quick=True),
    Cell("100 B, 64 connections, 10,000 tenants", (_MANY, "nginx", "haproxy"), many=True, quick=True),
    Cell("100 B, 64 connections, a new one for each request", (*_LIMITERS, "caddy"), keep_alive=False),
)


class _Ring:
    """The contestants, standing ready."""

    def __init__(self, folder: Path, wanted: Sequence[Contestant]) -> None:
        cpus = sorted(os.sched_getaffinity(0))
        self.mine: int | None = cpus[0] if len(cpus) > 1 else None
        self.others: int | None = cpus[1] if len(cpus) > 1 else None
        self._folder = folder
        self.running: dict[str, Running] = {}
        self.missing: list[str] = []
        self.origin = start_origin(folder / "origin", self.others)
        for number, contestant in enumerate(wanted):
            if contestant.path() is None:
                self.missing.append(contestant.name)
                continue
            self.running[contestant.name] = start(contestant, folder / str(number), self.origin.port, self.mine)
        self.tenants = folder / "tenants.txt"
        self.tenants.write_text("\n".join(authorization(number) for number in range(10_000)), encoding="utf-8")

    def close(self) -> None:
        """End everything that was started."""
        for one in (*self.running.values(), self.origin):
            one.stop()

    def ask(self, cell: Cell, port: int, seconds: float) -> client.Seen:
        """Send the load of a cell to a port."""
        asked = client.Asked(
            f"http://127.0.0.1:{port}{cell.path}",
            authorization(0, NARROW if cell.refused else WIDE),
            cell.connections,
            seconds,
            cell.keep_alive,
            self.tenants if cell.many else None,
        )
        return client.run(asked, self.others)

    def measure(self, cell: Cell, name: str, seconds: float, direct: client.Seen) -> Sample:
        """Return one sample of a contestant."""
        one = self.running[name]
        pids = one.pids
        before = meter.cpu_us(pids)
        seen = self.ask(cell, one.port, seconds)
        used = meter.cpu_us(pids) - before
        wrong = abs(seen.other - seen.requests) if cell.refused else seen.other
        return Sample(
            cpu_us=used / max(1, seen.requests),
            per_second=seen.requests / seen.seconds,
            p50_added_us=seen.p50_us - direct.p50_us,
            p99_added_us=seen.p99_us - direct.p99_us,
            resident_mb=meter.resident(pids) / 1e6,
            mb_per_cpu_second=seen.bytes / max(used, 1.0),
            # One or two of a refused credential are let through by their burst.
            errors=seen.errors + (0 if cell.refused and wrong < 20 else wrong),
        )


def _cells(ring: _Ring, cells: Sequence[Cell], rounds: int, seconds: float) -> list[Row]:
    rows = []
    for cell in cells:
        samples: dict[str, list[Sample]] = defaultdict(list)
        names = [name for name in cell.who if name in ring.running]
        for name in names:
            # Ten thousand tenants are warm once each has come by.
            ring.ask(cell, ring.running[name].port, _WARM_UP_MANY if cell.many else 1)
        for turn in range(rounds):
            direct = ring.ask(cell, ring.origin.port, seconds)
            shift = turn % len(names)
            for name in names[shift:] + names[:shift]:
                samples[name].append(ring.measure(cell, name, seconds, direct))
        found = [report.median_row(cell.name, name, samples[name]) for name in names]
        print(report.table(found, _ENVOY if _ENVOY in names else names[0]), flush=True)
        rows += found
    return rows


def _targets(rows: Sequence[Row]) -> list[tuple[str, float, float]]:
    """Return what must be reached: what, the figure, and what it may be at most."""
    cost = {(row.cell, row.name): row.cpu_us for row in rows}
    late = {(row.cell, row.name): row.p99_added_us for row in rows}
    rate = {(row.cell, row.name): row.mb_per_cpu_second for row in rows}
    refused, large, many = CELLS[1].name, CELLS[2].name, CELLS[6].name
    asked = [
        ("proxied, over envoy", cost, (SMALL, _OURS), (SMALL, _ENVOY), 0.7),
        ("proxied, over envoy with the same work", cost, (SMALL, _OURS), (SMALL, _ALIKE), 0.7),
        ("proxied, over nginx", cost, (SMALL, _OURS), (SMALL, _NGINX), 2.6),
        ("p99 added, over envoy", late, (SMALL, _OURS), (SMALL, _ENVOY), 1.0),
        ("refused, over envoy", cost, (refused, _OURS), (refused, _ENVOY), 0.8),
        ("refused, over envoy with the same work", cost, (refused, _OURS), (refused, _ALIKE), 0.8),
        ("1 MB, nginx's bytes a CPU second over ours", rate, (large, _NGINX), (large, _OURS), 1 / 0.6),
        ("1,000 connections, over 64", cost, (CELLS[5].name, _OURS), (SMALL, _OURS), 1.25),
        ("10,000 tenants, over one", cost, (many, _MANY), (SMALL, _OURS), 1.25),
        ("as ASGI app, over envoy", cost, (SMALL, _ASGI[0]), (SMALL, _ENVOY), 1.5),
        ("own pool, over aiohttp's client", cost, (SMALL, _ASGI[0]), (SMALL, _ASGI[1]), 0.5),
        ("the same in pure Python", cost, (SMALL, _PURE_ASGI[0]), (SMALL, _PURE_ASGI[1]), 0.5),
    ]
    return [
        (label, figures[ours] / figures[theirs], most)
        for label, figures, ours, theirs, most in asked
        if ours in figures and figures.get(theirs)
    ]


def _about(ring: _Ring, rounds: int, seconds: float) -> dict[str, object]:
    model = next(
        (
            line.partition(":")[2].strip()
            for line in Path("/proc/cpuinfo").read_text().splitlines()
            if "model name" in line
        ),
        platform.machine(),
    )
    commit = subprocess.run(["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=False).stdout
    return {
        "machine": f"{model}, {os.cpu_count()} cores, {platform.system()}, Python {platform.python_version()}",
        "commit": commit.strip(),
        "client": client.name(),
        "rounds": rounds,
        "seconds": seconds,
        "versions": {one.name: version(one) for one in CONTESTANTS if one.version and one.name in ring.running},
        "missing": ring.missing,
    }


def main() -> int:
    """Measure, print, write; return 1 if a target is missed."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--rounds", type=int)
    parser.add_argument("--seconds", type=float)
    parser.add_argument("--cell", type=int, action="append", help="only this cell, by its place; repeatable")
    parser.add_argument("--only", action="append", help="only this contestant; repeatable")
    parser.add_argument("--out", type=Path, default=Path("loadtest/results"))
    asked = parser.parse_args()
    rounds, seconds = asked.rounds or (1 if asked.quick else 5), asked.seconds or (1 if asked.quick else 2)
    cells = [CELLS[place] for place in asked.cell or range(len(CELLS)) if CELLS[place].quick or not asked.quick]
    names = {name for cell in cells for name in cell.who if not asked.only or name in asked.only}
    with TemporaryDirectory() as folder:
        ring = _Ring(Path(folder), [one for one in CONTESTANTS if one.name in names])
        try:
            about = _about(ring, rounds, seconds)
            for key, value in about.items():
                print(f"{key}: {value}")
            print()
            rows = _cells(ring, cells, rounds, seconds)
        finally:
            ring.close()
    missed = 0
    for label, ratio, most in _targets(rows):
        print(f"{label:45}{ratio:6.2f}  at most {most:.2f}  {'reached' if ratio <= most else 'MISSED'}")
        missed += ratio > most
    if not asked.only:
        report.write(asked.out, "quick" if asked.quick else "proxied", rows, about, [cell.name for cell in CELLS[:2]])
    return int(missed > 0)


if __name__ == "__main__":
    sys.exit(main())
