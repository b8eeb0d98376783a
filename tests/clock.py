"""A clock that stands until a test moves it."""

from __future__ import annotations

from gateway.clock import Clock
from policies.units import SECOND, Micros

__all__ = ["EPOCH", "StandingClock"]

EPOCH: Micros = 1_790_000_000 * SECOND


class StandingClock(Clock):
    """Instants are what the test says; `at` is what both readings return."""

    __slots__ = ("at",)

    def __init__(self, at: Micros = EPOCH) -> None:
        super().__init__()
        self.at = at

    def now(self) -> Micros:
        """Return the instant that the test set."""
        return self.at

    def wall(self) -> Micros:
        """Return the same."""
        return self.at
