"""How many calls may be sent a second time: a part of all calls, and a little more where there are few.

The rule is Finagle's and linkerd's RetryBudget: every call deposits a part of a token, every repetition costs one, and
10 tokens a second come for nothing, so that a quiet upstream which closes its idle connections never costs a call.
"""

from __future__ import annotations

__all__ = ["RetryBudget"]

#: Repetitions a second that need no calls to pay for them; the same in Finagle and linkerd.
_MINIMUM = 10.0


class RetryBudget:
    """Tokens for repetitions. `ratio` 0 allows none at all; `saved` is the most that is kept. Times are in seconds."""

    __slots__ = ("_at", "_ratio", "_saved", "_tokens")

    def __init__(self, ratio: float, saved: int, now: float) -> None:
        self._ratio = ratio
        self._saved = float(saved)
        self._tokens = min(_MINIMUM, self._saved)
        self._at = now

    def deposit(self) -> None:
        """Count a call."""
        self._tokens += self._ratio

    def withdraw(self, now: float) -> bool:
        """Take a token for a repetition; false if there is none."""
        if not self._ratio:
            return False
        tokens = min(self._tokens + (now - self._at) * _MINIMUM, self._saved)
        self._at = now
        spend = tokens >= 1.0
        self._tokens = tokens - spend
        return spend
