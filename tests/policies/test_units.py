"""Rates are exact, and print as they were written."""

from __future__ import annotations

from fractions import Fraction

import pytest

from policies.units import Rate

__all__: list[str] = []


@pytest.mark.parametrize(
    ("per_second", "window", "printed"),
    [
        (Fraction(80), (80, 1), "80/s"),
        (Fraction(10, 60), (1, 6), "1 per 6 s"),
        (Fraction(1, 2), (1, 2), "1 per 2 s"),
        (Fraction(1, 86_400), (1, 86_400), "1 per 86400 s"),
        (Fraction(0), (0, 1), "0/s"),
    ],
)
def test_rate_is_reduced_to_integers(per_second: Fraction, window: tuple[int, int], printed: str) -> None:
    """A rate is a fraction in lowest terms, and a float per microsecond beside it."""
    rate = Rate(per_second)
    assert rate.window() == window
    assert str(rate) == printed
    assert rate.per_us == pytest.approx(float(per_second) / 1e6)
