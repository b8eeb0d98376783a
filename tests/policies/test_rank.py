"""Order among classes."""

from __future__ import annotations

import pytest

from policies.policy import ClassRule
from policies.rank import Rank, rank
from policies.request import Class

__all__: list[str] = []

INTERACTIVE, BATCH = Class.INTERACTIVE, Class.BATCH

USUAL = (ClassRule(0), ClassRule(1, reserve=0.25, floor=0.05))
EQUAL = (ClassRule(0), ClassRule(0, reserve=0.25, floor=0.05))
NO_RESERVE = (ClassRule(0), ClassRule(1, reserve=0.0, floor=0.05))
UPSIDE_DOWN = (ClassRule(1, reserve=0.5, floor=0.1), ClassRule(0))


@pytest.mark.parametrize(
    ("classes", "cls", "expected"),
    [
        (USUAL, INTERACTIVE, Rank(low=False, reserve=0.0, floor=0.05)),
        (USUAL, BATCH, Rank(low=True, reserve=0.25, floor=0.05)),
        (EQUAL, INTERACTIVE, Rank(low=False, reserve=0.0, floor=0.0)),
        (EQUAL, BATCH, Rank(low=False, reserve=0.0, floor=0.0)),
        (NO_RESERVE, INTERACTIVE, Rank(low=False, reserve=0.0, floor=0.0)),
        (NO_RESERVE, BATCH, Rank(low=True, reserve=0.0, floor=0.0)),
        (UPSIDE_DOWN, INTERACTIVE, Rank(low=True, reserve=0.5, floor=0.1)),
        (UPSIDE_DOWN, BATCH, Rank(low=False, reserve=0.0, floor=0.1)),
    ],
)
def test_rank_follows_priority(classes: tuple[ClassRule, ...], cls: Class, expected: Rank) -> None:
    """A greater priority number is lower; only the lower leaves a reserve, and without a reserve there is no floor."""
    assert rank(classes, cls) == expected
