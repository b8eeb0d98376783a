"""Order among classes: who is lower, what a lower class leaves, what it keeps.

Rules
1. A class is lower than another if its priority number is greater; equal priorities leave each other nothing.
2. Class sits below tenant: it orders the requests of one bucket and never those of two tenants.
3. A class with reserve 0 has no floor: it competes for everything, so nothing need be kept for it.
"""

from __future__ import annotations

from dataclasses import dataclass

from policies.policy import ClassRule
from policies.request import Class

__all__ = ["Rank", "rank"]


@dataclass(frozen=True, slots=True)
class Rank:
    """A class's standing in a bucket of its key, tenant or share.

    `reserve` is a part of the burst that it leaves to a higher class, `floor` a part of the rate that the lower class
    keeps. `low` is true if a higher class exists.
    """

    low: bool
    reserve: float
    floor: float


def rank(classes: tuple[ClassRule, ...], cls: Class) -> Rank:
    """Return where `cls` stands among `classes` (indexed by `Class`)."""
    priority = classes[cls].priority
    lower = [rule for rule in classes if rule.priority > min(other.priority for other in classes)]
    low = any(rule.priority < priority for rule in classes)
    floor = max((rule.floor for rule in lower if rule.reserve > 0.0), default=0.0)
    return Rank(low=low, reserve=classes[cls].reserve if low else 0.0, floor=floor)
