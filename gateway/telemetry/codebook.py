"""What one count means, as a small integer.

Rules
1. Every settled request is exactly one count of a tally up to REJECTED; SHADOW and RAISED are counted beside it.
2. Codes are handed out once, never reused, and their number is bounded: tallies x classes x configured limits. Nothing
   a caller chooses is part of a code.
3. The tallies below REJECTED are what the figures need to tell apart and no more (contract, section 7).
"""

from __future__ import annotations

from enum import IntEnum
from typing import NamedTuple

from policies.request import Class
from policies.verdict import Outcome

__all__ = ["CODE_BITS", "REFUSED", "Codebook", "Entry", "Tally"]

CODE_BITS = 16
_MAX_CODES = 1 << CODE_BITS
#: Stands for the names of limits that no longer fit: two per policy and class, so only after thousands of reloads.
_ANY = "other"


class Tally(IntEnum):
    """How a request counts in the figures; a refusal is split by whose doing it was.

    In this order what is offered, and what is excused, are one slice each (`figures.py`).
    """

    SERVED = 0
    UPSTREAM_ERROR = 1
    ABORTED = 2
    #: The caller left before a verdict: no part of the in-profile denominator.
    ABORTED_EARLY = 3
    #: Refused by one of its own limits.
    OWN = 4
    #: Refused by share or backstop, beyond what its own limits would have let through: counts as own.
    BEYOND = 5
    #: Refused over its fair share, of the backstop or of an upstream's seats.
    OVER = 6
    #: Refused by share, backstop or connections within its fair share: must not happen.
    WITHIN = 7
    #: Refused by something else it has no part in: class, posture.
    OTHERS = 8
    REJECTED = 9
    #: A refusal that was not enforced.
    SHADOW = 10
    #: The caller asked for a higher class than it may have.
    RAISED = 11


REFUSED = frozenset({Tally.OWN, Tally.BEYOND, Tally.OVER, Tally.WITHIN, Tally.OTHERS})

_OUTCOMES = {
    Tally.SERVED: Outcome.SERVED,
    Tally.UPSTREAM_ERROR: Outcome.UPSTREAM_ERROR,
    Tally.ABORTED: Outcome.ABORTED,
    Tally.ABORTED_EARLY: Outcome.ABORTED,
    Tally.REJECTED: Outcome.REJECTED,
    **dict.fromkeys(REFUSED, Outcome.REFUSED),
}


class Entry(NamedTuple):
    """The meaning of one code. `limit` is empty unless something refused."""

    tally: Tally
    cls: Class
    limit: str = ""

    @property
    def outcome(self) -> Outcome | None:
        """The outcome users see, None for what is counted beside a request."""
        return _OUTCOMES.get(self.tally)


class Codebook:
    """Hands out codes. Written by the thread that records; `entries` may be read by any: it only grows."""

    __slots__ = ("_codes", "_last", "_last_cls", "_last_limit", "_last_tally", "entries", "limits", "tallies")

    def __init__(self) -> None:
        self._codes: dict[tuple[Tally, Class, str], int] = {}
        #: What was last asked for: who floods is refused by the same limit each time.
        self._last = -1
        self._last_tally, self._last_cls, self._last_limit = Tally.SERVED, Class.INTERACTIVE, ""
        self.entries: list[Entry] = []
        #: The same by column, for loops that look at thousands of counts.
        self.tallies: list[int] = []
        self.limits: list[str] = []

    def code(self, tally: Tally, cls: Class, limit: str = "") -> int:
        """Return the code of this meaning."""
        if limit is self._last_limit and tally is self._last_tally and cls is self._last_cls and self._last >= 0:
            return self._last
        # A plain tuple equals the named one and is three times as fast to build.
        found = self._codes.get((tally, cls, limit))
        if found is None:
            found = self._add(Entry(tally, cls, limit))
        self._last, self._last_tally, self._last_cls, self._last_limit = found, tally, cls, limit
        return found

    def _add(self, entry: Entry) -> int:
        if len(self.entries) >= _MAX_CODES - 2 * len(Tally) and entry.limit != _ANY:
            return self.code(entry.tally, entry.cls, _ANY)
        code = len(self.entries)
        # Columns first: a reader that meets a code finds it in all of them.
        self.tallies.append(int(entry.tally))
        self.limits.append(entry.limit)
        self.entries.append(entry)
        self._codes[entry] = code
        return code
