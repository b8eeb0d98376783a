"""The Date field, written once a second (RFC 9110 section 6.6.1)."""

from __future__ import annotations

from email.utils import formatdate

from gateway.clock import Clock
from policies.units import SECOND

__all__ = ["Dates"]


class Dates:
    """Formats the wall clock as an HTTP date, at most once for each second."""

    __slots__ = ("_clock", "_second", "_text")

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._second = -1
        self._text = b""

    def now(self) -> bytes:
        """Return the date to send now."""
        second = self._clock.wall() // SECOND
        if second != self._second:
            self._second = second
            self._text = formatdate(second, usegmt=True).encode("ascii")
        return self._text
