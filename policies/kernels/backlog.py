"""Waits that are booked: whoever is told to come back later is given a place in a queue that nobody stands in.

Telling everybody the same wait makes a wave that is refused again. So each refusal books its cost: the next one to be
refused is told to come after it. The book is kept as the instant at which the next caller may come, which moves on by
what the last one will take at nine tenths of the rate (those who come uninvited need room too).

Rules
1. A wait is never shorter than what this limit alone would need.
2. Half a second is added to a first wait: a wave that was just refused is still arriving.
3. Nobody is booked further ahead than 60 s; there the queue stops growing, and callers are told its end.
"""

from __future__ import annotations

from typing import Final

from policies.units import SECOND, Micros

__all__ = ["booked"]

GRACE_US: Final = SECOND // 2
HORIZON_US: Final = 60 * SECOND


def booked(queue_us: Micros, ready_us: Micros, cost: float, rate_us: float, now: Micros) -> tuple[Micros, Micros]:
    """Book `cost` units; return when to come (an instant) and the new end of the queue.

    `queue_us` is the end of the queue so far, `ready_us` when the limit alone could admit this cost, both instants;
    `rate_us` is in units per microsecond.
    """
    come = max(queue_us, ready_us + GRACE_US)
    if come - now > HORIZON_US:
        return max(now + HORIZON_US, ready_us), queue_us
    return come, come + int(cost / rate_us)
