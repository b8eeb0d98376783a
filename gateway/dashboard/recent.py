"""The last ten minutes of every tenant, and the last hour of the whole: what sparklines and the chart are drawn from.

Rules
1. Fed by closed slots and by one sample every few seconds, on telemetry's thread; read by the admin listener's threads.
   Nothing here is on the data plane.
2. Bounded: `POINTS` slots of each tenant that was seen in them, `SAMPLES` of the whole. A tenant unseen for so long is
   forgotten.
3. A point without a request is None, never 1.
"""

from __future__ import annotations

from array import array
from collections import deque
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from gateway.telemetry.breath import breathing
from gateway.telemetry.codebook import Codebook, Tally
from gateway.telemetry.figures import Report, figures
from gateway.telemetry.slots import SLOT, Slot
from policies.units import SECOND, Micros

__all__ = ["EVERY", "POINTS", "SAMPLES", "Headline", "Point", "Recent"]

#: Slots of ten seconds.
POINTS = 60
SAMPLES = 720
EVERY: Micros = 5 * SECOND
#: Numbers of a point, and points beyond `POINTS` that may be kept until they are let go of together.
_MEMBERS = 4
_SPARE = 15
_NOTHING: Mapping[str, int] = {}


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


class _Line:
    """The points of one tenant. Ten thousand tenants have sixty each, so they are numbers in a row, not objects."""

    __slots__ = ("_numbers", "_refused", "last")

    def __init__(self) -> None:
        #: Slot, offered, served and whole, of one point after another.
        self._numbers: array[int] = array("I")
        #: By slot, of those in which anything was.
        self._refused: dict[int, Mapping[str, int]] | None = None
        self.last = 0

    def add(self, slot: int, offered: int, served: int, whole: int, refused: Mapping[str, int]) -> None:
        """Add a slot; they come in order."""
        self.last = slot
        if refused:
            if self._refused is None:
                self._refused = {}
            self._refused[slot] = refused
            for old in [old for old in self._refused if old <= slot - POINTS]:
                del self._refused[old]
        self._numbers.extend((slot, offered, served, whole))
        if len(self._numbers) > _MEMBERS * (POINTS + _SPARE):
            del self._numbers[: -_MEMBERS * POINTS]

    def points(self, oldest: int) -> list[Point]:
        """Return those since a slot, the oldest first; from any thread."""
        numbers, refused = self._numbers[:], self._refused or {}
        members = iter(numbers)
        rows = zip(members, members, members, members, strict=True)
        return [Point(*row, refused.get(row[0], _NOTHING)) for row in rows if row[0] >= oldest][-POINTS:]


class Recent:
    """What was, as far as it is still drawn."""

    def __init__(self, codebook: Codebook) -> None:
        self._codebook = codebook
        self._lines: dict[str, _Line] = {}
        self._headlines: deque[Headline] = deque(maxlen=SAMPLES)
        self._swept = 0

    def add(self, slot: Slot) -> None:
        """Take over a closed slot."""
        number, book, served = slot.number, self._codebook, int(Tally.SERVED)
        for name, counts in breathing(iter(slot.tenants.items())):
            line = self._lines.get(name)
            if line is None:
                line = self._lines[name] = _Line()
            cells = counts.copy()
            if len(cells) == 1:
                # Nearly everybody's: served and nothing else.
                ((code, count),) = cells.items()
                if book.tallies[code] == served:
                    line.add(number, count, count, count, _NOTHING)
                    continue
            row = figures(name, cells, book)
            line.add(number, row.offered, row.served, row.in_profile, row.refused)
        if number >= self._swept + POINTS:
            self._swept = number
            for name, line in breathing(iter(list(self._lines.items()))):
                if line.last < number - POINTS:
                    del self._lines[name]

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
        line = self._lines.get(tenant)
        return [] if line is None else line.points(now // SLOT - POINTS)

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
