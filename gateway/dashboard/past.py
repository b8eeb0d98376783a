"""Aggregate and worst over a day and over a quarter, from the stored series.

Rules
1. A point is a span of its own: the worst of a point is the worst of that half hour or day, whoever that was.
2. Reading a quarter takes a while, so what was read is kept for a minute, and one thread reads at a time.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from typing import Any

from gateway.clock import Clock
from gateway.errors import GatewayError
from gateway.history.archive import FileArchive
from gateway.history.explain import explain
from gateway.history.keeper import History
from gateway.history.series import Counted
from gateway.telemetry.codebook import Codebook, Tally
from gateway.telemetry.figures import report
from gateway.telemetry.slots import Cells
from policies.policy import PolicySet
from policies.request import Class
from policies.units import SECOND, Micros

__all__ = ["SPANS", "Past"]

#: Seconds to a point, and how many points.
SPANS: Mapping[str, tuple[int, int]] = {"24h": (1800, 48), "90d": (86_400, 90)}
_KEPT: Micros = 60 * SECOND


class Past:
    """Reads the history's archive. Raises GatewayError where there is nothing to read."""

    def __init__(self, history: History | None, clock: Clock) -> None:
        self._history = history
        self._clock = clock
        self._lock = threading.Lock()
        self._kept: dict[str, tuple[Micros, dict[str, Any]]] = {}

    def headlines(self, window: str) -> dict[str, Any]:
        """Return columns of time (ms), aggregate and worst success, and the worst tenant, of one of SPANS."""
        with self._lock:
            now = self._clock.now()
            until, kept = self._kept.get(window, (0, {}))
            if now < until:
                return kept
            made = self._read(window, now // SECOND)
            self._kept[window] = (now + _KEPT, made)
            return made

    def explain(self, policies: PolicySet, tenant: str) -> list[str]:
        """Return the lines of `evenhand explain`; none of a tenant that nobody listed or saw."""
        archive = FileArchive(None) if self._history is None else self._history.archive
        try:
            return explain(policies, archive, tenant).splitlines()
        except GatewayError:
            return []

    def _read(self, window: str, now: int) -> dict[str, Any]:
        if self._history is None:
            raise GatewayError("this process keeps no history")
        step, count = SPANS[window]
        series = self._history.archive.series
        last = now // step * step
        columns: dict[str, list[Any]] = {"at": [], "aggregate": [], "worst": [], "tenant": []}
        for start in range(last - (count - 1) * step, now, step):
            end = min(start + step, now)
            _, counts = series.tenants(start, end, now)
            codebook = Codebook()
            made = report(
                "", ((tenant, _cells(one, codebook)) for tenant, one in counts.items()), codebook, frozenset()
            )
            columns["at"].append(end * 1000)
            columns["aggregate"].append(made.aggregate.success)
            columns["worst"].append(None if made.worst is None else made.worst.in_profile_success)
            columns["tenant"].append(None if made.worst is None else made.worst.tenant)
        return columns


def _cells(counts: Counted, codebook: Codebook) -> Cells:
    cells: Cells = {}
    for (tally, limit), count in counts.items():
        code = codebook.code(Tally(tally), Class.INTERACTIVE, limit)
        cells[code] = cells.get(code, 0) + count
    return cells
