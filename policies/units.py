"""Units of measure of the core.

Instants and durations are integer microseconds. Work is counted in request units, which may be fractional: a quota of
1/d spends 0.04 units an hour. A rate is kept as an exact fraction, so that "10/min" is shown as it was written, and as
a float per microsecond beside it for the arithmetic of a request.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from fractions import Fraction
from typing import Final, TypeAlias

__all__ = ["NEVER", "SECOND", "Micros", "Rate", "RequestUnits", "Seats"]

Micros: TypeAlias = int
RequestUnits: TypeAlias = float
Seats: TypeAlias = int

SECOND: Final = 1_000_000

#: The wait of what can never be admitted (a zero quota).
NEVER: Final = -1


@dataclass(frozen=True, slots=True)
class Rate:
    """Request units per second, exact; `per_us` is the same as a float per microsecond."""

    per_second: Fraction
    per_us: float = field(init=False, compare=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "per_us", float(self.per_second) / SECOND)

    def window(self) -> tuple[int, int]:
        """Return the rate reduced to integers: (units, seconds), 0.5/s being (1, 2)."""
        return self.per_second.numerator, self.per_second.denominator

    def __str__(self) -> str:
        units, seconds = self.window()
        return f"{units}/s" if seconds == 1 else f"{units} per {seconds} s"
