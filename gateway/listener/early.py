"""Signals that come before there is a loop to hear them: `evenhand serve` may be told to stop while it still starts.

    arm --SIGTERM--> exit code 0
     hold --SIGTERM, SIGINT--> remembered, and the loop drains by it
      over --> whatever still comes changes nothing

Rules
1. Nothing heavy is imported here: this is what a starting process does first. Before it, while the interpreter itself
   starts, the system's own answer to a signal holds.
2. Until something listens, SIGTERM ends the process at once. From then on callers may have connected: it drains.
3. SIGHUP changes nothing until a reload can be asked for.
"""

from __future__ import annotations

import signal
import sys
from types import FrameType

__all__ = ["Early", "early"]


class Early:
    """What was asked of a process that is not ready yet: `asked` is whether it was told to stop."""

    def __init__(self) -> None:
        self.asked = False

    def arm(self) -> None:
        """Leave at once when told to; to be called on the main thread, as the others are."""
        signal.signal(signal.SIGHUP, signal.SIG_IGN)
        signal.signal(signal.SIGTERM, self._leave)

    def hold(self) -> None:
        """Only remember it: something listens now."""
        signal.signal(signal.SIGHUP, signal.SIG_IGN)
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._remember)

    def over(self) -> None:
        """Hear nothing more: the process has ended but for its last lines."""
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(number, signal.SIG_IGN)

    def _remember(self, _number: int, _frame: FrameType | None) -> None:
        self.asked = True

    def _leave(self, _number: int, _frame: FrameType | None) -> None:
        # Kept as well: an exit that is raised inside a finalizer is swallowed, and would be told as an error.
        self.asked = True
        sys.unraisablehook = _unraisable
        sys.exit(0)


def _unraisable(swallowed: sys.UnraisableHookArgs) -> None:
    if not isinstance(swallowed.exc_value, SystemExit):
        sys.__unraisablehook__(swallowed)


early = Early()
