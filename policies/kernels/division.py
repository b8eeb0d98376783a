"""One backstop for several processes: how much of its capacity each of them should have.

Theory of operation
-------------------
Each process shares out its part by the same kernel, so if the level comes out the same everywhere, it is that of the
whole. A process that has the tenants' demand d at the weights w uses u(a) = sum(min(d, a * w)) at the level a. What it
holds is spent within a second and what it owes is repaid in one, so it needs u(a) less its tokens; the level is the one
at which all that is needed is the capacity. A few tokens each process keeps, or one whose tenants are all far below
their share would have just what they want, and be contended at every moment in which they want more. Every process
works it out from the same reports, so all agree on what each should have, though nobody decides.

Rules
1. What is wanted is never more than the capacity, over all; what nobody needs is split evenly, so that whoever comes
   first finds something wherever it comes.
2. Nobody wants less than a hundredth of an even part: that, and what it may owe, is for a first ask.
3. All rates are units per second here.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from typing import Final, NamedTuple

__all__ = ["Curve", "Division", "Outlook", "coarse", "debt_bound", "divide"]

#: What an idle process wants, as a part of an even share.
FLOOR: Final = 0.01
#: Tokens that a process keeps, in seconds of its light demand, and as a part of the burst that goes with that.
KEPT: Final = 0.1
KEPT_PART: Final = 0.25
#: Halvings of the range that the level lies in.
STEPS: Final = 26


class Outlook(NamedTuple):
    """What is wanted in one process, and what its backstop holds (or, negative, owes).

    `light` is the demand of those that are far below their share, `used` what is taken; `rows` are (demand per weight,
    weight) of the others, highest first.
    """

    tokens: float
    light: float
    used: float
    rows: Sequence[tuple[float, float]]


def coarse(rows: Sequence[tuple[float, float]], most: int) -> list[tuple[float, float]]:
    """Return at most `most` rows of the same weight and demand: neighbours together."""
    together = -(-len(rows) // most)
    if together <= 1:
        return list(rows)
    merged = []
    for first in range(0, len(rows), together):
        part = rows[first : first + together]
        weight = sum(weight for _, weight in part)
        merged.append((sum(ratio * weight for ratio, weight in part) / weight, weight))
    return merged


class Curve:
    """What one process uses at a level."""

    __slots__ = ("_above", "_below", "_ratios", "demand", "highest", "outlook")

    def __init__(self, outlook: Outlook) -> None:
        self.outlook = outlook
        rows = outlook.rows[::-1]
        self._ratios = [ratio for ratio, _ in rows]
        #: Demand of those below, and weight of those above, each place between two ratios.
        self._below = [0.0]
        self._above = [sum(weight for _, weight in rows)]
        for ratio, weight in rows:
            self._below.append(self._below[-1] + ratio * weight)
            self._above.append(self._above[-1] - weight)
        self.highest = self._ratios[-1] if rows else 0.0
        self.demand = outlook.light + self._below[-1]

    def needs(self, level: float, kept: float, floor: float) -> float:
        """Return the capacity that this process needs for that level; `kept` are the seconds of light demand kept."""
        place = bisect_right(self._ratios, level)
        used = self.outlook.light + self._below[place] + level * self._above[place]
        return max(floor, used + kept * self.outlook.light - self.outlook.tokens)


class Division(NamedTuple):
    """What part of the capacity each process should have, together all of it; and the level that all have then."""

    wants: list[float]
    level: float


def divide(curves: Sequence[Curve], capacity: float, burst: float) -> Division:
    """Divide the capacity of a backstop that stores `burst` units among processes."""
    floor = FLOOR * capacity / len(curves)
    kept = min(KEPT, KEPT_PART * burst / capacity)
    high = max(curve.highest for curve in curves)
    needs = [curve.needs(high, kept, floor) for curve in curves]
    spare = capacity - sum(needs)
    if spare >= 0.0:
        return Division([need + spare / len(curves) for need in needs], high)
    low = 0.0
    for _ in range(STEPS):
        level = (low + high) / 2
        if sum(curve.needs(level, kept, floor) for curve in curves) > capacity:
            high = level
        else:
            low = level
    needs = [curve.needs(low, kept, floor) for curve in curves]
    # What is left is rounding; or, with light ones that alone want more, what there is too little of.
    part = capacity / sum(needs)
    return Division([need * part for need in needs], low)


def debt_bound(held: float, capacity: float, burst: float, processes: int) -> float:
    """Return what a process may owe that holds `held` of the capacity, in units.

    All together half a second of the capacity, as one process: half of it goes with the lease and half of it evenly, so
    that a first burst meets an idle process as it would a busy one.
    """
    return max((held + capacity / processes) / 4, min(5.0, burst / 2))
