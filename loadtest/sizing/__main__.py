"""Run every scenario of sizing and print what came of it; exits 1 where one does not hold."""

from __future__ import annotations

import sys
import time

from loadtest.sizing.scenarios import SCENARIOS

__all__: list[str] = []

failed = 0
for name, scenario in SCENARIOS.items():
    began = time.perf_counter()
    outcome = scenario()
    failed += not outcome.ok
    shown = ", ".join(
        f"{what} {value:.4g}" if isinstance(value, float) else f"{what} {value}"
        for what, value in outcome.figures.items()
    )
    print(f"{name:28} {'holds' if outcome.ok else 'FAILS'}  {shown}  ({time.perf_counter() - began:.1f} s)")
sys.exit(bool(failed))
