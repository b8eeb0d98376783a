"""When to stop asking a server, and when to try again. Time is an argument: seconds of any monotone clock.

Rules
1. Closed, everything is sent. It opens at once where there is no connection to be had, and else after a few failures in
   a row, spread over at least `spread` seconds: one hiccup fails many calls at the same moment.
2. Open, nothing is sent but one attempt at a time: a connection, or a probe on the one there is.
3. Attempts back off: 50 ms, doubling to 0.75 s, each drawn from the upper half (so that many processes do not come back
   at one moment, case 73). One that has hung for a second has waited enough: the next follows within 0.25 s. So a
   server that returns is found within 2 s.
"""

from __future__ import annotations

from collections.abc import Callable

__all__ = ["Circuit"]

#: Failures in a row that open it. Envoy's outlier detection and gRPC's ring take 5.
FAILURES = 5
FIRST_PAUSE = 0.05
LONGEST_PAUSE = 0.75
HUNG_PAUSE = 0.25


class Circuit:
    """One server's. `opened` is true while it is not to be asked; `draw` returns a number from 0 to 1."""

    __slots__ = ("_draw", "_failures", "_since", "_spread", "_steps", "opened")

    def __init__(self, spread: float, draw: Callable[[], float]) -> None:
        self._spread = spread
        self._draw = draw
        self._failures = 0
        self._since = 0.0
        self._steps = 0
        self.opened = False

    def failed(self, now: float) -> bool:
        """Note a call that failed, and return whether that opens the circuit."""
        if self._failures == 0:
            self._since = now
        self._failures += 1
        if self.opened or self._failures < FAILURES or now - self._since < self._spread:
            return False
        self.opened = True
        return True

    def succeeded(self) -> None:
        """Note a call that did not fail."""
        self._failures = 0

    def trip(self) -> None:
        """Open now: there is nobody to ask."""
        self.opened = True

    def close(self) -> None:
        """Close: somebody answered."""
        self.opened = False
        self._failures = 0

    def pause(self, took: float = 0.0) -> float:
        """Return the seconds to let pass before the next attempt; the last one `took` so many to fail."""
        longest: float = min(FIRST_PAUSE * 2.0**self._steps, LONGEST_PAUSE)
        self._steps = min(self._steps + 1, 10)
        if took >= LONGEST_PAUSE:
            return HUNG_PAUSE * self._draw()
        return longest * (0.5 + 0.5 * self._draw())

    def steady(self) -> None:
        """Forget past attempts: what was reached has held for a while."""
        self._steps = 0
