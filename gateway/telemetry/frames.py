"""What one process tells of itself twice a second, and how another counts it as its own.

    worker: Outflow.take --frame--> (a pipe) --frame--> Inflow.add :parent

Rules
1. Whatever only ever grows travels as what was added since the frame before, and is added once: a process that dies
   takes nothing back. Whatever describes the moment travels as it is, and goes with its process (`merged.py`).
2. A frame is JSON, and bounded: counts by what is counted, refusals one by one up to `MAX_REFUSED`, warnings and
   addresses as many as a process keeps.
3. `Outflow` reads what the data plane's thread writes, as a scrape does; `Inflow` is called on the thread that counts.
"""

from __future__ import annotations

import os
import resource
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

from gateway.telemetry.gauges import Gauges
from gateway.telemetry.recorder import Telemetry
from gateway.telemetry.refusals import Refused
from gateway.telemetry.tap import Tap, pour
from policies.units import Micros

__all__ = ["GROWING", "ITS_OWN", "MOMENTARY", "Frame", "Inflow", "Outflow", "Process", "asked"]

Frame = dict[str, Any]

MAX_REFUSED = 200
#: Gauges of the moment.
MOMENTARY = (
    "in_flight", "connections", "keys", "store_up", "backstop_contended", "backstop_used_ratio", "jwks_age_seconds",
)  # fmt: skip
#: Those that only grow.
GROWING = ("store_errors", "overflow_requests")
#: Those that are the same in every process, or of the parent: it answers for them itself.
ITS_OWN = (
    "key_quota", "starved_keys", "canary_ok", "workers", "worker_restarts", "instances", "config_last_reload_ok",
)  # fmt: skip
_PAGE = resource.getpagesize()


class Process(NamedTuple):
    """What the system says of a process: octets, and descriptors."""

    resident: int
    virtual: int
    files: int


class Outflow:
    """Makes the frames of one process. `warnings` are what its operator should know."""

    def __init__(self, telemetry: Telemetry, warnings: Callable[[], Iterable[str]] = tuple) -> None:
        self._telemetry = telemetry
        self._warnings = warnings
        self._tap = Tap(telemetry.tenants)
        self._before: dict[str, Any] = {}
        self._refused: deque[tuple[str, Refused]] = deque(maxlen=MAX_REFUSED)
        telemetry.last_refusals.heard = self._refused

    def take(self, now: Micros) -> Frame:
        """Return what came since the last frame, and how things stand."""
        telemetry, gauges = self._telemetry, self._telemetry.gauges
        found = {name: asked(gauges, name) for name in (*MOMENTARY, *GROWING)}
        counters = telemetry.counters
        return {
            "counts": self._tap.take(now),
            "times": {
                name: {**self._more(name, one.state()), "last": one.last()}
                for name, one in telemetry.histograms.items()
            },
            "exempted": self._more("exempted", counters.exempted.copy()),
            "posture": [
                (*names, count) for names, count in self._more("posture", counters.posture.copy()).items() if count
            ],
            "would_reject": self._more("would_reject", telemetry.would_reject.copy()),
            "grown": {
                "cpu_seconds": self._more("cpu_seconds", time.process_time()),
                **{name: self._more(name, found[name]) for name in GROWING if found[name] is not None},
            },
            "gauges": {name: found[name] for name in MOMENTARY if found[name] is not None},
            "refused": self._latest(),
            "forwarders": list(telemetry.forwarders.copy()),
            "doubtful": list(telemetry.doubtful.copy()),
            "warnings": list(self._warnings()),
            "process": tuple(_process()),
        }

    def _more(self, name: str, value: Any) -> Any:
        """Return by how much `value`, which may hold others by name or in order, has grown."""
        before, self._before[name] = self._before.get(name), value
        return _difference(value, before)

    def _latest(self) -> list[tuple[str, tuple[Any, ...]]]:
        found = []
        while self._refused:
            tenant, refused = self._refused.popleft()
            found.append((tenant, tuple(refused)))
        return found


def _difference(value: Any, before: Any) -> Any:
    if isinstance(value, Mapping):
        had = before or {}
        return {name: _difference(one, had.get(name)) for name, one in value.items()}
    if isinstance(value, list):
        return [_difference(one, had) for one, had in zip(value, before or [0] * len(value), strict=True)]
    return value - (before or 0)


def asked(gauges: Gauges, name: str) -> Any:
    """Return what a gauge says now, None if nobody sets it."""
    gauge = getattr(gauges, name)
    value = None if gauge is None else gauge()
    return dict(value) if isinstance(value, Mapping) else value


class Inflow:
    """Counts the frames of other processes in a telemetry that counts nothing else."""

    def __init__(self, telemetry: Telemetry) -> None:
        self._telemetry = telemetry
        #: What only grows, of all frames so far.
        self.grown: dict[str, Any] = {}

    def add(self, frame: Frame, now: Micros) -> None:
        """Count a frame; once."""
        telemetry, counters = self._telemetry, self._telemetry.counters
        pour(frame["counts"], telemetry.tenants.ledger, now)
        for name, more in frame["times"].items():
            last = [(request_id, value) for request_id, value in more["last"]]  # JSON knows no tuples
            telemetry.histograms[name].add(more["counts"], more["total"], last)
        _add(counters.exempted, frame["exempted"])
        _add(counters.posture, {(posture, outcome): count for posture, outcome, count in frame["posture"]})
        _add(telemetry.would_reject, frame["would_reject"])
        for name, more in frame["grown"].items():
            if isinstance(more, Mapping):
                _add(self.grown.setdefault(name, {}), more)
            else:
                self.grown[name] = self.grown.get(name, 0) + more
        for tenant, refused in frame["refused"]:
            telemetry.last_refusals.keep(tenant, Refused(*refused))
        telemetry.forwarders |= dict.fromkeys(frame["forwarders"])
        telemetry.doubtful |= dict.fromkeys(frame["doubtful"])


def _add(counts: dict[Any, int], more: Mapping[Any, int]) -> None:
    for name, count in more.items():
        if count or name not in counts:
            counts[name] = counts.get(name, 0) + count


def _process() -> Process:
    """Ask the system about this process; nothing is known where there is no /proc."""
    try:
        with open("/proc/self/statm", "rb") as found:  # noqa: PTH123 - twice a second, and no path is built for it
            virtual, resident = (int(pages) * _PAGE for pages in found.read().split()[:2])
        files = len(os.listdir("/proc/self/fd")) - 1  # noqa: PTH208 - as above; one is the folder itself
    except OSError:
        virtual = resident = files = 0
    return Process(resident, virtual, files)
