"""What a checker says of one credential: NOT_MINE, INVALID, or the resolution it proves.

Rules
1. NOT_MINE says that no entry of this kind could have issued the credential; it accuses nobody.
2. INVALID says that one of our own, or of our issuers, was presented and proves nothing: wrong, expired, revoked,
   malformed. Nothing finer is said, so that no answer tells what exists.
3. UNAVAILABLE and UNJUDGED say that whoever could judge it does not answer, and what its posture makes of that: no
   service for now, or on as nobody.
4. OK is the `Resolution` itself, made once and shared by every request with that credential.
"""

from __future__ import annotations

from enum import StrEnum
from typing import TypeAlias

from gateway.ports import Resolution
from policies.request import Principal

__all__ = ["Answer", "Finding", "proven"]


class Answer(StrEnum):
    """The ways of proving nothing."""

    NOT_MINE = "not_mine"
    INVALID = "invalid"
    UNAVAILABLE = "unavailable"
    UNJUDGED = "unjudged"


Finding: TypeAlias = Resolution | Answer


def proven(principal: Principal) -> Resolution:
    """Return the OK of a checker: `principal`, its credential consumed."""
    return Resolution(principal, None, consumed=True)
