"""Sparklines of a day and of a quarter, from the stored series, for the rows that are looked at.

Rules
1. A page asks for the rows that it shows, `MOST` at a time, so the cost is of a page and never of all tenants.
2. What was read is kept for a minute, as far as `KEPT` rows go.
3. A point without a request is None, never 1. A point is half an hour or a day, and the last one is not over yet.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from typing import Any

from gateway.clock import Clock
from gateway.dashboard.past import SPANS
from gateway.errors import GatewayError
from gateway.history.keeper import History
from gateway.history.series import Counted
from gateway.telemetry.codebook import Codebook, Tally
from gateway.telemetry.figures import figures
from gateway.telemetry.slots import Cells
from policies.request import Class
from policies.units import SECOND, Micros

__all__ = ["MOST", "Sparks"]

MOST = 80
KEPT = 4_000
_FRESH: Micros = 60 * SECOND

Lines = Mapping[str, list[Any]]


class Sparks:
    """Reads the history's archive. Raises GatewayError where there is nothing to read."""

    def __init__(self, history: History | None, clock: Clock) -> None:
        self._history = history
        self._clock = clock
        self._lock = threading.Lock()
        self._kept: dict[tuple[str, str], tuple[Micros, Lines]] = {}

    def of(self, window: str, tenants: Sequence[str]) -> dict[str, Lines]:
        """Return by tenant two lines over a window of `SPANS`: success in per cent, and requests a second."""
        with self._lock:
            now = self._clock.now()
            if len(self._kept) > KEPT:
                self._kept.clear()
            wanted = [one for one in tenants[:MOST] if self._kept.get((window, one), (0, {}))[0] <= now]
            if wanted:
                made = self._read(window, wanted, now // SECOND)
                self._kept |= {(window, tenant): (now + _FRESH, lines) for tenant, lines in made.items()}
            return {tenant: self._kept[window, tenant][1] for tenant in tenants[:MOST]}

    def _read(self, window: str, tenants: Sequence[str], now: int) -> dict[str, Lines]:
        if self._history is None:
            raise GatewayError("this process keeps no history")
        step, count = SPANS[window]
        first = now // step * step - (count - 1) * step
        found = self._history.archive.series.points(tenants, first, now, now, step)
        return {
            tenant: _lines(found.get(tenant, {}), range(first, first + count * step, step), now) for tenant in tenants
        }


def _lines(points: Mapping[int, Counted], begins: range, now: int) -> Lines:
    codebook = Codebook()
    success: list[float | None] = []
    offered: list[float] = []
    for at in begins:
        cells: Cells = {}
        for (tally, limit), counted in points.get(at, {}).items():
            code = codebook.code(Tally(tally), Class.INTERACTIVE, limit)
            cells[code] = cells.get(code, 0) + counted
        row = figures("", cells, codebook)
        success.append(None if row.in_profile_success is None else round(100 * row.in_profile_success, 1))
        offered.append(round(row.offered / max(1, min(begins.step, now - at)), 3))
    return {"success": success, "offered": offered}
