"""One tenant floods at ten times the backstop: what the others see of it, through a gateway on real sockets.

Rules
1. Everything is on with the gateway, as beside the peers (`loadtest/peers/everything.py`); only the backstop is small.
2. Rounds take turns, quiet and flooded, and both of a pair send the light tenants' requests at the same instants.
3. The gateway has the first processor to itself; origin, light callers and the flood share the second, where the flood
   runs only when nobody else wants to (`caller`, rule 3).
4. Whether a light request succeeded is counted from before the flood sets in; how long it took, once it is under way.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

from loadtest.flood.caller import Asked, Seen
from loadtest.peers import everything, meter
from loadtest.peers.contestants import Contestant, Running, free_port, start, start_origin

__all__ = ["COMPILED", "FAST", "FULL", "PURE", "SLOW", "Found", "Round", "Size", "measure", "p99"]

_ROOT: Final = Path(__file__).resolve().parents[2]
PURE: Final = _ROOT
COMPILED: Final = _ROOT / "build" / "compiled"
#: What the origin does: answer at once, or after 5 to 10 ms.
FAST, SLOW = "/v1/things/42", "/v1/wait"

#: Seconds for callers to start and connect; until the flood sets in; until it counts.
_START: Final = 1.0
_ONSET: Final = 0.5
_SKIP: Final = 2.0


@dataclass(frozen=True, slots=True)
class Size:
    """How large it is. Each of `light` tenants asks `rate` times a second, the flood `times` the backstop."""

    backstop: int = 400
    light: int = 10
    rate: float = 20.0
    times: int = 10
    lines: int = 128
    depth: int = 1
    burst: int = 1
    seconds: float = 10.0
    rounds: int = 5


FULL: Final = Size()


@dataclass(frozen=True, slots=True)
class Round:
    """What was seen in one round; `cpu` is the part of its processor that the gateway used."""

    light: Seen
    flood: Seen | None
    cpu: float


@dataclass(frozen=True, slots=True)
class Found:
    """All rounds with one origin."""

    quiet: list[Round]
    flooded: list[Round]

    def median(self, part: float, *, flooded: bool) -> float:
        """Return a quantile of the light tenants' seconds, in the median of the rounds."""
        return statistics.median(quantile(one.light.took, part) for one in (self.flooded if flooded else self.quiet))

    @property
    def rise(self) -> float:
        """How many times the p99 of the quiet rounds that of the flooded ones is."""
        return self.median(0.99, flooded=True) / self.median(0.99, flooded=False)

    @property
    def failed(self) -> int:
        """How many requests of light tenants were not served."""
        return sum(sum(one.light.statuses.values()) - served(one.light) for one in self.quiet + self.flooded)

    @property
    def sent(self) -> int:
        """How many requests light tenants sent."""
        return sum(sum(one.light.statuses.values()) for one in self.quiet + self.flooded)


def quantile(took: Sequence[float], part: float) -> float:
    """Return a quantile."""
    return sorted(took)[min(len(took) - 1, int(len(took) * part))]


def p99(seen: Seen) -> float:
    """Return the 99th percentile."""
    return quantile(seen.took, 0.99)


def served(seen: Seen) -> int:
    """Return how many answers were 200."""
    return seen.statuses.get("200", 0)


class _Stand:
    """A gateway and its origin, ready."""

    def __init__(self, folder: Path, size: Size, tree: Path, within: ExitStack) -> None:
        cpus = sorted(os.sched_getaffinity(0))
        mine: int | None = cpus[0] if len(cpus) > 1 else None
        self._others: int | None = cpus[1] if len(cpus) > 1 else None
        self._size = size
        origin = start_origin(folder / "origin", self._others)
        within.callback(origin.stop)
        self._gateway = self._started(folder / "gateway", tree, origin.port, mine)
        within.callback(self._gateway.stop)
        self._tokens = [everything.authorization(number) for number in range(size.light + 1)]

    def _started(self, folder: Path, tree: Path, origin: int, cpu: int | None) -> Running:
        def command(folder: Path, listen: int, upstream: int) -> list[str]:
            ports = {"listen": listen, "admin": free_port(), "upstream": upstream}
            path = everything.write(folder, **ports, tenants=self._size.light + 1, backstop=self._size.backstop)
            return [sys.executable, "-m", "gateway", "serve", "-c", str(path)]

        return start(Contestant("evenhand", "", command, tree=tree), folder, origin, cpu)

    def round(self, path: str, seed: int, *, flooded: bool) -> Round:
        """Let the light tenants ask, alone or beside the flood."""
        size, begin = self._size, time.monotonic() + _START
        whole = _SKIP + size.seconds
        light = Asked(
            self._gateway.port, path, self._tokens[1:], size.rate, 8, begin, whole, _SKIP, seed
        )  # fmt: skip
        flood = Asked(
            self._gateway.port, path, self._tokens[:1], float(size.backstop * size.times), size.lines,
            begin + _ONSET, whole - _ONSET, _SKIP - _ONSET, seed, size.depth, size.burst, idle=True,
        )  # fmt: skip
        callers = [self._call(one) for one in ([light, flood] if flooded else [light])]
        time.sleep(max(0.0, begin + _SKIP - time.monotonic()))
        used, at = meter.cpu_us(self._gateway.pids), time.monotonic()
        time.sleep(max(0.0, begin + whole - 0.1 - time.monotonic()))
        cpu = (meter.cpu_us(self._gateway.pids) - used) / 1e6 / (time.monotonic() - at)
        seen = [one() for one in callers]
        return Round(seen[0], seen[1] if flooded else None, cpu)

    def _call(self, asked: Asked) -> Callable[[], Seen]:
        command = ["taskset", "-c", str(self._others)] if self._others is not None else []
        process = subprocess.Popen(
            [*command, sys.executable, "-m", "loadtest.flood.caller", json.dumps(asdict(asked))],
            cwd=_ROOT, stdout=subprocess.PIPE, text=True,
        )  # fmt: skip

        def result() -> Seen:
            with process:
                told, _ = process.communicate()
            if process.returncode:
                raise RuntimeError("a caller failed")
            return Seen(**json.loads(told))

        return result


def measure(folder: Path, size: Size, tree: Path, paths: Sequence[str]) -> dict[str, Found]:
    """Run all rounds with each kind of origin, and return what was found by its path."""
    found = {path: Found([], []) for path in paths}
    with ExitStack() as within:
        stand = _Stand(folder, size, tree, within)
        for number in range(size.rounds):
            for path in paths:
                found[path].quiet.append(stand.round(path, number, flooded=False))
                found[path].flooded.append(stand.round(path, number, flooded=True))
    return found
