"""How a request that we answered ourselves is counted, and what goes back when one has ended.

Rules
1. A charge is kept once the request head was written to an upstream, and given back in full if it never was.
2. A failed authentication is kept although it was never forwarded: the attempt is what its address is charged for.
3. Seats go back exactly once, however the request ended.
4. What was not taken is not given back.
5. An answer of ours that names no limit is the service's failure (500, 502, 503, 504, 508) or else the caller's.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from policies.request import Kind
from policies.verdict import Outcome, Verdict

__all__ = ["Corrections", "corrections", "own_outcome"]

_FAILURES: Final = frozenset({500, 502, 503, 504, 508})


# Looked up once: a member of an enum costs as much as a call.
_REJECTED: Final = Kind.REJECTED


@dataclass(frozen=True, slots=True)
class Corrections:
    """What a store is to do for a request that has ended."""

    release: bool
    give_back: bool


_NOTHING: Final = Corrections(release=False, give_back=False)
_RELEASE: Final = Corrections(release=True, give_back=False)
_UNDO: Final = Corrections(release=True, give_back=True)


def corrections(verdict: Verdict | None, kind: Kind, *, sent: bool) -> Corrections:
    """Return what to correct; `sent` says that the request head was written to an upstream."""
    if verdict is None or verdict.reading.refused:
        return _NOTHING
    return _RELEASE if sent or kind is _REJECTED else _UNDO


def own_outcome(status: int) -> Outcome:
    """Return how an answer of ours is counted that names no limit."""
    return Outcome.UPSTREAM_ERROR if status in _FAILURES else Outcome.REJECTED
