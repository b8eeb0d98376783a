"""Outcome to corrections: what goes back when a request has ended.

Rules
1. A charge is kept once the request head was written to an upstream, and given back in full if it never was.
2. A failed authentication is kept although it was never forwarded: the attempt is what its address is charged for.
3. Seats go back exactly once, however the request ended.
4. What was not taken is not given back.
"""

from __future__ import annotations

from dataclasses import dataclass

from policies.request import Kind
from policies.verdict import Verdict

__all__ = ["Corrections", "corrections"]


@dataclass(frozen=True, slots=True)
class Corrections:
    """What a store is to do for a request that has ended."""

    release: bool
    give_back: bool


_NOTHING = Corrections(release=False, give_back=False)
_RELEASE = Corrections(release=True, give_back=False)
_UNDO = Corrections(release=True, give_back=True)


def corrections(verdict: Verdict | None, kind: Kind, *, sent: bool) -> Corrections:
    """Return what to correct; `sent` says that the request head was written to an upstream."""
    if verdict is None or verdict.reading.refused:
        return _NOTHING
    return _RELEASE if sent or kind is Kind.REJECTED else _UNDO
