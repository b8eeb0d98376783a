"""The bucket of the backstop: what the service can serve, what is stored of it, and what may be owed.

Rules
1. It is kept as a theoretical arrival time in microseconds after the last solve of the level. A float that counted from
   an older instant would soon round to more than a unit takes.
2. Takes within a share may owe `_debt_us`, takes over it leave `_head_us`, so hammering gains nothing.
3. Whoever changes the capacity says what becomes of what is stored.
"""

from __future__ import annotations

from policies.kernels.waterfill import Waterline
from policies.units import SECOND, Micros, RequestUnits

__all__ = ["Reservoir"]


class Reservoir:
    """A bucket that fills at `_capacity` units per microsecond up to `_burst`; `_line` says when the level was solved.

    The hot path of `fairshare` looks at all of this without a detour.
    """

    __slots__ = (
        "_arrival", "_burst", "_capacity", "_cost_us", "_debt_us", "_full_us", "_half_us", "_head_us", "_line",
        "_saved_us",
    )  # fmt: skip

    def __init__(self, rate_us: float, burst: RequestUnits, line: Waterline) -> None:
        self._line = line
        self._fit(rate_us, burst)
        self._arrival = -self._full_us

    def _fit(self, rate_us: float, burst: RequestUnits, debt: RequestUnits = 0.0) -> None:
        self._capacity = rate_us
        self._burst = burst
        self._cost_us = cost_us = 1.0 / rate_us if rate_us > 0.0 else 0.0
        self._full_us = burst * cost_us
        self._debt_us = debt * cost_us or max(SECOND / 2, min(5.0, burst / 2) * cost_us)
        self._half_us = self._debt_us / 2
        #: What tenants have saved up may be used down to this.
        self._saved_us = self._half_us * 0.75
        self._head_us = min(SECOND / 20, self._full_us / 4)

    def _debt(self, now: Micros) -> float:
        """Return how long the backstop takes to be at zero again; negative while it holds tokens."""
        debt = self._arrival - (now - self._line.solved_us)
        return -self._full_us if debt < -self._full_us else debt  # noqa: FURB136 - a call of max() costs three times

    def _spare(self, debt: float, cost: RequestUnits) -> bool:
        """Return whether the backstop holds `cost` tokens besides what takes over the share leave alone."""
        return debt + min(cost * self._cost_us, self._full_us - self._head_us) + self._head_us <= 0.0

    def _refit(self, rate_us: float, burst: RequestUnits, now: Micros) -> None:
        """Change both: as full as before, and a debt takes as long to repay as before."""
        debt = self._debt(now)
        part = debt / self._full_us if debt < 0.0 else 0.0
        self._fit(rate_us, burst)
        self._arrival = now - self._line.solved_us + (part * self._full_us if debt < 0.0 else debt)
