"""The only clock.

Instants are epoch microseconds that never go backwards: the wall clock is read once, at construction, and carried on by
the monotonic clock. A step of the wall clock (NTP, an operator, a resumed laptop) therefore neither drains a bucket nor
refills one. What must follow the real wall clock, such as a token's expiry, asks `wall`.
"""

from __future__ import annotations

import time
from typing import Final

from policies.native import mypyc_attr
from policies.units import Micros

__all__ = ["Clock"]

# Looked up once: they are asked half a dozen times a request.
_MONOTONIC_NS: Final = time.monotonic_ns
_TIME_NS: Final = time.time_ns


# Tests stand still or jump by clocks of their own, against the compiled form too.
@mypyc_attr(allow_interpreted_subclasses=True)
class Clock:
    """Epoch microseconds, monotone (`now`) or as the system believes (`wall`)."""

    __slots__ = ("_offset_ns",)

    def __init__(self) -> None:
        self._offset_ns = time.time_ns() - time.monotonic_ns()

    def now(self) -> Micros:
        """Return epoch microseconds that never go backwards."""
        return (_MONOTONIC_NS() + self._offset_ns) // 1000

    def wall(self) -> Micros:
        """Return the system's epoch microseconds, steps included."""
        return _TIME_NS() // 1000
