"""Weighted max-min in the plain way, by sorting: what the report calls fair. It shares no code with the gateway."""

from __future__ import annotations

from collections.abc import Sequence

__all__ = ["maxmin"]


def maxmin(demands: Sequence[float], weights: Sequence[float], supply: float) -> list[float]:
    """Return each one's part of `supply`.

    Nobody gets more than its demand, and nobody less than another of its weight unless it wanted less.
    """
    shares = [0.0] * len(demands)
    left, weight = supply, sum(weights)
    for index in sorted(range(len(demands)), key=lambda i: demands[i] / weights[i]):
        shares[index] = min(demands[index], left * weights[index] / weight)
        left -= shares[index]
        weight -= weights[index]
        if weight <= 0.0:
            break
    return shares
