"""One process's portion of a backstop that several processes share: the same kernel, at a capacity that comes and goes.

Rules
1. A portion that grows brings no tokens, and one that shrinks keeps its debt: capacity moves, nothing is minted. So
   what all processes together admit is bounded as in one process.
2. Levels here are as high as if every weight counted whole in each of `processes`: times their number they are those of
   the whole.
3. Ceilings of classes are portions of their own.
"""

from __future__ import annotations

from collections.abc import Sequence

from policies.kernels.ceilings import Make
from policies.kernels.division import Curve, Outlook, divide
from policies.kernels.fairshare import Shares
from policies.kernels.parts import Parts, step_of, weight_of
from policies.kernels.roster import Roster
from policies.kernels.share import ClassPart
from policies.kernels.waterfill import Waterline
from policies.units import SECOND, Micros, RequestUnits

__all__ = ["Portion"]


class Portion(Shares):
    """A backstop of which this process has a part. It begins without a token; rates are as those of `Shares`."""

    __slots__ = ("parts",)

    def __init__(
        self, rate_us: float, burst: RequestUnits, classes: Sequence[ClassPart], unlisted_weight: float, now: Micros,
        max_unlisted: int = 10_000,
    ) -> None:  # fmt: skip
        super().__init__(rate_us, burst, classes, unlisted_weight, now, max_unlisted)
        self._arrival = 0.0
        self.parts = Parts(self._roster, now)

    @property
    def roster(self) -> Roster:
        """Return who shares."""
        return self._roster

    @classmethod
    def _ceiling(cls) -> Make:
        return Portion

    def lease(self, rate_us: float, burst: RequestUnits, debt: RequestUnits, now: Micros) -> None:
        """Go on at another capacity, where at most `debt` units may be owed; what is stored or owed stays, in units."""
        owed = self._debt(now) * self._capacity
        self._used *= self._capacity / rate_us
        self._fit(rate_us, burst, debt)
        self._arrival = now - self._line.solved_us + max(owed * self._cost_us, -self._full_us)
        self._solve(now)

    def keep_level(self, level: float) -> None:
        """Let the level be no lower than that of the whole while less is wanted here than there is."""
        self._line.least = level / SECOND

    def fill(self, now: Micros) -> None:
        """Store all that can be stored."""
        self._arrival = now - self._line.solved_us - self._full_us

    def outlook(self, now: Micros) -> Outlook:
        """Return what is wanted and stored here, in units and seconds."""
        line, capacity = self._line, self._capacity
        line.fold(now)
        used = self._used * capacity * SECOND
        return Outlook(-self._debt(now) * capacity, line.light_wanted() * SECOND, used, _rows(line, now))

    def outlook_of_group(self, now: Micros) -> Outlook:
        """Return the same of unlisted tenants, as of their last solve: their backstop is the share of their group."""
        roster = self._roster
        if not roster.has_unlisted:
            return Outlook(0.0, 0.0, 0.0, [])
        return Outlook(roster.group.held(now) * roster.group.weight, 0.0, 0.0, _rows(roster.inner, now))

    def divide_group(self, curves: Sequence[Curve], now: Micros) -> None:
        """Give the group the weight of what its members use here, of all that they use; `curves` begin with this one's.

        Its members' demand would not do: what they ask for beyond their level is nobody's.
        """
        group, processes = self._roster.group, len(curves)
        share = self._line.level * SECOND * group.whole * processes
        if share <= 0.0 or not any(curve.outlook.rows for curve in curves):
            return
        wants, level = divide(curves, share, share / 4)
        self._roster.inner.least = level / processes / SECOND
        step = step_of(wants[0] / share * processes)
        if abs(step - step_of(group.part)) > 1:
            self._roster.weigh(group, group.whole, weight_of(step), now)

    def pools(self) -> dict[int, Portion]:
        """Return all portions: this one as 0, and each ceiling as one more than the index of its class."""
        ceilings = self._ceilings.services.items()
        return {0: self, **{index + 1: pool for index, pool in ceilings if isinstance(pool, Portion)}}


def _rows(line: Waterline, now: Micros) -> list[tuple[float, float]]:
    return [(ratio * SECOND, weight) for ratio, weight in line.rows(now)]
