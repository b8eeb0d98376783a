"""Many random mixes in a row, and what must hold over all of them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from loadtest.sim.mixes import Mix, run_mix

__all__ = ["Soaked", "soak", "soak_mixes"]

#: Requests of one mix.
EACH = 20_000
#: Tenants per unit of capacity a second: at most this many, and in the sparse half of the mixes at most that.
DENSE, SPARSE = 1 / 20, 1 / 80


@dataclass(slots=True)
class Soaked:
    """Sums over mixes. `sparse_backstop` are refusals by `backstop` of fitting tenants in the sparse ones."""

    mixes: int = 0
    asked: int = 0
    fitting: int = 0
    by_share: int = 0
    by_backstop: int = 0
    sparse_backstop: int = 0
    too_early: int = 0

    @property
    def held(self) -> bool:
        """Return whether everything held that must hold."""
        none = not (self.by_share or self.sparse_backstop or self.too_early)
        return none and self.by_backstop <= 0.001 * self.fitting


def soak_mixes(requests: int, say: Callable[[str], None] | None = None) -> Soaked:
    """Run mixes, sparse and dense in turn, until so many requests were made."""
    sums = Soaked()
    while sums.asked < requests:
        sparse = sums.mixes % 2 == 0
        outcome = run_mix(Mix(sums.mixes, SPARSE if sparse else DENSE), EACH)
        sums.mixes += 1
        sums.asked += outcome.asked
        sums.fitting += outcome.fitting
        sums.by_share += outcome.by_share
        sums.by_backstop += outcome.by_backstop
        sums.sparse_backstop += outcome.by_backstop if sparse else 0
        sums.too_early += outcome.too_early
        if say is not None and sums.mixes % 50 == 0:
            say(f"{sums.asked:,} requests, {sums.by_share} + {sums.by_backstop} refusals of fitting tenants")
    return sums


def soak(requests: int, say: Callable[[str], None]) -> bool:
    """Run and say what came of it; return whether it held."""
    sums = soak_mixes(requests, say)
    say(
        f"{sums.asked:,} requests of {sums.mixes} random mixes, {sums.fitting:,} of them by tenants whose arrivals fit "
        f"their share. Of these refused by share: {sums.by_share} (must be 0); by backstop: {sums.by_backstop}, "
        f"{100 * sums.by_backstop / max(1, sums.fitting):.4f} % (at most 0.1 %), in mixes of up to C/80 tenants: "
        f"{sums.sparse_backstop} (must be 0); before the debt was at its bound: {sums.too_early} (must be 0)."
    )
    return sums.held
