"""Request ids: 26 characters that sort by time, as ULIDs do."""

from __future__ import annotations

import random
import re
from typing import Final

from gateway.clock import Clock

__all__ = ["RequestIds", "well_formed"]

_DIGITS: Final = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"
_ONES: Final = tuple(_DIGITS)
_PAIRS: Final = tuple(high + low for high in _DIGITS for low in _DIGITS)

_WELL_FORMED: Final = re.compile(rb"[A-Za-z0-9._~+/=:@-]{1,128}")


class RequestIds:
    """Makes ids: 48 bits of milliseconds, 70 random bits renewed every 1,024 ids, and a count of 10 bits.

    All but the last digit is the same for 32 ids at most, and there are as many last ones, which Python keeps: each is
    at hand, where one of 1,024 pairs is one that nobody had lately.

    Unique without a draw of chance for each (0.2 us an id; a ULID drawn in full takes 1.5 us). They name requests and
    protect nothing, so they need not be hard to guess.
    """

    __slots__ = ("_begins", "_block", "_clock", "_count", "_millisecond")

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._millisecond = -1
        self._begins = ""
        self._block = ""
        self._count = 1024

    def new(self) -> str:
        """Return an id that nothing else has."""
        millisecond = self._clock.now() // 1000
        count = self._count
        if millisecond != self._millisecond or count & 31 == 0:
            if count == 1024:
                count = 0
                self._block = _encoded(random.getrandbits(70), 7)
            self._millisecond = millisecond
            self._begins = _encoded(millisecond, 5) + self._block + _ONES[count >> 5]
        self._count = count + 1
        return self._begins + _ONES[count & 31]


def well_formed(request_id: bytes) -> bool:
    """Return whether an id that a trusted peer sent can go into logs, headers and URNs as it is."""
    return _WELL_FORMED.fullmatch(request_id) is not None


def _encoded(number: int, pairs: int) -> str:
    """Write `number` in Crockford's base 32, two digits a pair, big-endian."""
    return "".join([_PAIRS[number >> shift & 1023] for shift in range(10 * (pairs - 1), -1, -10)])
