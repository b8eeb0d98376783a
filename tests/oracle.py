"""Exact weighted max-min: what is fair, worked out in fractions by filling up. Shares no code with what it judges."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction

__all__ = ["exact_maxmin"]


def exact_maxmin(demands: Sequence[float], weights: Sequence[float], supply: float) -> list[Fraction]:
    """Return everybody's part of `supply`.

    Whoever wants less than an even part (by weight) of what is left gets what it wants, and what is left is looked at
    again; once nobody does, it is handed out evenly.
    """
    left = Fraction(supply)
    parts = [Fraction(0)] * len(demands)
    hungry = set(range(len(demands)))
    while hungry:
        even = left / sum(Fraction(weights[index]) for index in hungry)
        content = {index for index in hungry if Fraction(demands[index]) <= even * Fraction(weights[index])}
        for index in content or hungry:
            parts[index] = Fraction(demands[index]) if content else even * Fraction(weights[index])
            left -= parts[index]
        hungry -= content or hungry
    return parts
