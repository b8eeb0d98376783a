"""`python -m loadtest.fuzz [--inputs N] [--seed S]`: N inputs through every parser that touches a caller's octets.

Prints how many each has read and what was answered; ends with 1 at the first exception or answer that may not be, and
prints the input that caused it.
"""

from __future__ import annotations

import argparse
import random
import sys
import time
from collections import Counter

from loadtest.fuzz.mutate import inputs
from loadtest.fuzz.targets import Target, targets

__all__ = ["Broken", "fuzz", "main"]


class Broken(Exception):  # noqa: N818 - it is the finding
    """A parser did what none may; the text says which, what, and with what input."""


def fuzz(total: int, seed: int) -> dict[str, Counter[int]]:
    """Put at least `total` inputs through all parsers, by weight; return the statuses of each. Raises Broken."""
    found = targets()
    weights = sum(target.weight for target in found)
    return {target.name: _one(target, -(-total * target.weight // weights), seed) for target in found}


def _one(target: Target, count: int, seed: int) -> Counter[int]:
    statuses: Counter[int] = Counter()
    made = inputs(target.examples, random.Random(f"{seed} {target.name}"))
    for _ in range(count):
        octets = next(made)
        try:
            status = target.parse(octets)
        except Exception as error:
            raise Broken(f"{target.name} raised {error!r} for {octets!r}") from error
        if status not in target.statuses:
            raise Broken(f"{target.name} answered {status} to {octets!r}")
        statuses[status] += 1
    return statuses


def main(arguments: list[str] | None = None) -> int:
    """Run, and print what came of it."""
    options = argparse.ArgumentParser(prog="python -m loadtest.fuzz")
    options.add_argument("--inputs", type=int, default=1_000_000)
    options.add_argument("--seed", type=int, default=time.time_ns())
    given = options.parse_args(arguments)
    began = time.monotonic()
    try:
        found = fuzz(given.inputs, given.seed)
    except Broken as error:
        print(f"seed {given.seed}: {error}")
        return 1
    for name, statuses in found.items():
        answers = ", ".join(f"{status or 'none'}: {count:,}" for status, count in sorted(statuses.items()))
        print(f"{name:>16} {statuses.total():>10,}  {answers}")
    total = sum(statuses.total() for statuses in found.values())
    took = time.monotonic() - began
    print(f"{total:,} inputs, no exception, no answer that may not be ({took:.0f} s, seed {given.seed})")
    return 0


if __name__ == "__main__":
    sys.exit(main())
