"""The last ten minutes of every tenant, and the last hour of the whole: what sparklines and the chart are drawn from.

Rules
1. Fed by closed slots and by one sample every few seconds, on telemetry's thread; read by the admin listener's threads.
   Nothing here is on the data plane.
2. Bounded: `POINTS` slots of each tenant that was seen in them, `SAMPLES` of the whole. A tenant unseen for so long is
   forgotten.
3. A point without a request is None, never 1.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from gateway.telemetry.codebook import Codebook
from gateway.telemetry.figures import Report, figures
from gateway.telemetry.slots import SLOT, Slot
from gateway.telemetry.windows import breathing
from policies.units import SECOND, Micros

__all__ = ["EVERY", "POINTS", "SAMPLES", "Headline", "Point", "Recent"]

#: Slots of ten seconds.
POINTS = 60
SAMPLES = 720
EVERY: Micros = 5 * SECOND


class Point(NamedTuple):
    """One tenant in one slot. `whole` is the denominator of in-profile success."""

    slot: int
    offered: int
    served: int
    whole: int
    refused: Mapping[str, int]


class Headline(NamedTuple):
    """The whole at one instant: success of the last minute, and who was worst."""

    at_us: Micros
    aggregate: float | None
    worst: float | None
    tenant: str | None
    offered: int


class Recent:
    """What was, as far as it is still drawn."""

    def __init__(self, codebook: Codebook) -> None:
        self._codebook = codebook
        self._points: dict[str, deque[Point]] = {}
        self._headlines: deque[Headline] = deque(maxlen=SAMPLES)
        self._swept = 0

    def add(self, slot: Slot) -> None:
        """Take over a closed slot."""
        for name, counts in breathing(iter(slot.tenants.items())):
            row = figures(name, counts.copy(), self._codebook)
            points = self._points.get(name)
            if points is None:
                points = self._points[name] = deque(maxlen=POINTS)
            points.append(Point(slot.number, row.offered, row.served, row.in_profile, row.refused))
        if slot.number >= self._swept + POINTS:
            self._swept = slot.number
            oldest = slot.number - POINTS
            for name in [name for name, points in self._points.items() if points[-1].slot < oldest]:
                del self._points[name]

    def sample(self, report: Report, now: Micros) -> None:
        """Note the whole at `now`."""
        worst = report.worst
        self._headlines.append(
            Headline(
                now,
                report.aggregate.success,
                None if worst is None else worst.in_profile_success,
                None if worst is None else worst.tenant,
                report.aggregate.offered,
            )
        )

    def headlines(self, since: Micros) -> list[Headline]:
        """Return the samples of the whole after `since`."""
        return [headline for headline in self._headlines.copy() if headline.at_us > since]

    def points(self, tenant: str, now: Micros) -> list[Point]:
        """Return what is known of one tenant's last slots, the oldest first; slots without a request are left out."""
        points = self._points.get(tenant)
        oldest = now // SLOT - POINTS
        return [] if points is None else [point for point in points.copy() if point.slot >= oldest]

    def spark(self, tenant: str, now: Micros) -> dict[str, list[float | int | None]]:
        """Return a line of success in per cent and one of requests a second, two slots to a point."""
        return spark(self.points(tenant, now), now // SLOT)


def spark(points: Iterable[Point], end: int, merged: int = 2) -> dict[str, list[float | int | None]]:
    """Return the two sparklines of slots before `end`, `merged` of them to a point."""
    size = POINTS // merged
    served, whole, offered = [0] * size, [0] * size, [0] * size
    first = end - POINTS
    for point in points:
        index = (point.slot - first) // merged
        if 0 <= index < size:
            served[index] += point.served
            whole[index] += point.whole
            offered[index] += point.offered
    seconds = merged * SLOT // SECOND
    return {
        "success": [round(100 * part / of, 1) if of else None for part, of in zip(served, whole, strict=True)],
        "offered": [round(count / seconds, 2) for count in offered],
    }
