"""Waits that are booked: whoever is told to come back later is given a place in a queue that nobody stands in.

Telling everybody the same wait makes a wave that is refused again. So each refusal books its cost: the next one to be
refused is told to come after it. The book is kept as the instant at which the next caller may come, which moves on by
what the last one will take at the full rate: the jitter that is added to a told wait, up to a quarter of it, leaves
room for those who come uninvited. (At nine tenths of the rate, a herd of 1,000 over 100/s was away a second longer, and
not one more of it got in at its first return.)

Rules
1. A wait is never shorter than what this limit alone would need.
2. Half a second is added to a first wait: a wave that was just refused is still arriving.
3. Nobody is booked further ahead than 60 s; there the queue stops growing, and callers are told its end.
"""

from __future__ import annotations

from typing import Final

from policies.units import SECOND, Micros

__all__ = ["Queue"]

GRACE_US: Final = SECOND // 2
HORIZON_US: Final = 60 * SECOND


class Queue:
    """Those who were told to come back; `end_us` is when the next one may come."""

    __slots__ = ("end_us",)

    def __init__(self, now: Micros) -> None:
        self.end_us: Micros = now - SECOND

    def book(self, ready_us: float, taking_us: float, now: Micros) -> Micros:
        """Book one more, and return how long it is to stay away.

        `ready_us` is how long from now the limit alone would need, `taking_us` how long the rate takes for its cost.
        """
        come = now + int(ready_us) + GRACE_US
        if come < self.end_us:  # noqa: PLR1730 - a call of max() costs three times as much
            come = self.end_us
        wait = come - now
        if wait > HORIZON_US:
            return max(HORIZON_US, int(ready_us))
        self.end_us = come + int(taking_us)
        return wait
