"""The gauges of several processes as those of one. What only grows is counted by `frames.py`, and is added here.

Rules
1. Each gauge has one meaning over processes, in MEANINGS: their sum, the highest, or the lowest. Of the backstop each
   tells how the whole of it stands, so there the highest is taken. What is the same everywhere is the reader's own.
2. Only living processes are in it: one that ended is out at once, one that is silent for `SILENT` as well.
3. Written on one thread, read on others.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from prometheus_client.core import Metric

from gateway.telemetry.frames import Frame, Inflow, Process
from gateway.telemetry.gauges import Gauges
from gateway.telemetry.recorder import Telemetry
from policies.kernels.share import SharesView, ShareView
from policies.units import SECOND, Micros

__all__ = ["MEANINGS", "SILENT", "Merged"]

SILENT: Micros = 4 * SECOND
#: How long a tenant's share is shown that nobody has asked under since.
REMEMBERED: Micros = 60 * SECOND
_MOST_SHARES = 20_000

#: How the values of one gauge become one.
MEANINGS: Mapping[str, Callable[[Iterable[Any]], Any]] = {
    "in_flight": sum,
    "keys": sum,
    "connections": lambda values: _by_label(values, sum),
    "store_up": min,
    "backstop_contended": max,
    "backstop_used_ratio": max,
    "jwks_age_seconds": lambda values: _by_label(values, max),
}


_UNKNOWN = SharesView(
    contended=False,
    level=0.0,
    unlisted_level=0.0,
    tokens=0.0,
    debt=0.0,
    debt_bound=0.0,
    demand=0.0,
    used_ratio=0.0,
    tenants=0,
)


class Merged:
    """The last frame of each process that lives."""

    def __init__(self, telemetry: Telemetry, inflow: Inflow) -> None:
        self._now = telemetry.now
        self._inflow = inflow
        self._frames: dict[object, tuple[Micros, Frame]] = {}
        self._shares: OrderedDict[str, tuple[Micros, float]] = OrderedDict()
        self._wire(telemetry.gauges)
        telemetry.metrics.processes = self._processes

    def put(self, source: object, frame: Frame, now: Micros) -> None:
        """Take what a process says of itself; `source` stands for it."""
        self._frames[source] = (now, frame)
        for tenant, share in frame.get("shares", {}).items():
            self._shares[tenant] = (now, share)
            self._shares.move_to_end(tenant)
        while len(self._shares) > _MOST_SHARES:
            self._shares.popitem(last=False)

    def drop(self, source: object) -> None:
        """Forget a process."""
        self._frames.pop(source, None)

    def frames(self) -> list[Frame]:
        """Return the last frames of those who live."""
        now = self._now()
        return [frame for heard, frame in self._frames.copy().values() if now - heard < SILENT]

    def warnings(self) -> list[str]:
        """Return what they warn of, each sentence once."""
        return list(dict.fromkeys(warning for frame in self.frames() for warning in frame["warnings"]))

    def cause(self) -> str:
        """Return why the store does not answer one of them, empty if it answers all."""
        return next((cause for frame in self.frames() if (cause := str(frame.get("cause", "")))), "")

    def standing(self) -> dict[str, object] | None:
        """Return how the store stands, as the admin API tells it: the worst of what they say."""
        told = [found for frame in self.frames() if (found := frame.get("standing"))]
        if not told:
            return None
        return {
            "up": all(one["up"] for one in told),
            "cause": next((one["cause"] for one in told if one["cause"]), None),
            "lost_seconds": max(one["lost_seconds"] for one in told),
            "decided": sum(one["decided"] for one in told),
        }

    def view(self, _now: Micros) -> SharesView:
        """Return the backstop, of which each process knows the whole, as far as any of them does."""
        told = [found for frame in self.frames() if (found := frame.get("backstop"))]
        return SharesView(**{name: max(one[name] for one in told) for name in told[0]}) if told else _UNKNOWN

    def share_of(self, tenant: str, now: Micros) -> ShareView | None:
        """Return a tenant's share; None if nobody has told of it lately."""
        heard, share = self._shares.get(tenant, (0, 0.0))
        return ShareView(share, 0.0, 0.0, over=False, within_refused=0) if now - heard < REMEMBERED else None

    def value(self, name: str) -> Any:
        """Return a gauge; None if no living process has it."""
        found = [frame["gauges"] for frame in self.frames() if name in frame["gauges"]]
        if not found:
            return None
        return MEANINGS[name](one[name] for one in found)

    def _wire(self, gauges: Gauges) -> None:
        for name in MEANINGS:
            setattr(gauges, name, lambda name=name: self.value(name))
        # Of what may be asked without a sample, nothing; of sums over nobody, 0.
        gauges.in_flight = lambda: self.value("in_flight") or 0
        gauges.keys = lambda: self.value("keys") or 0
        gauges.connections = lambda: self.value("connections") or {"caller": 0, "upstream": 0}
        gauges.jwks_age_seconds = lambda: self.value("jwks_age_seconds") or {}
        gauges.store_up = lambda: self.value("store_up") is not False
        own_errors = gauges.store_errors
        grown = self._inflow.grown
        gauges.store_errors = lambda: _by_label(
            [{} if own_errors is None else own_errors(), grown.get("store_errors", {}).copy()], sum
        )
        gauges.overflow_requests = lambda: grown.get("overflow_requests", 0)

    def _processes(self, own: Iterable[Metric]) -> Iterator[Metric]:
        """Yield the families of the process with what the others use added."""
        processes = [Process(*frame["process"]) for frame in self.frames()]
        more = {
            "process_cpu_seconds": self._inflow.grown.get("cpu_seconds", 0.0),
            "process_resident_memory_bytes": sum(one.resident for one in processes),
            "process_virtual_memory_bytes": sum(one.virtual for one in processes),
            "process_open_fds": sum(one.files for one in processes),
        }
        for family in own:
            family.samples = [
                sample._replace(value=sample.value + more.get(family.name, 0.0)) for sample in family.samples
            ]
            yield family


def _by_label(values: Iterable[Mapping[str, Any]], together: Callable[[Iterable[Any]], Any]) -> dict[str, Any]:
    found: dict[str, list[Any]] = {}
    for value in values:
        for label, number in value.items():
            found.setdefault(label, []).append(number)
    return {label: together(numbers) for label, numbers in found.items()}
