"""`python -m loadtest.flood`: the others' p99 beside a tenant that floods at ten times the backstop.

The exit code is 1 if a light tenant was not served once, or their p99 rose by more than 30 %.
"""

from __future__ import annotations

import argparse
import statistics
import sys
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

from loadtest.flood.rounds import COMPILED, FAST, FULL, PURE, SLOW, Found, Round, measure, p99

__all__ = ["HEAD", "MOST", "main", "table"]

#: How many times their quiet p99 the others' may be.
MOST = 1.3
HEAD = """\
| gateway | origin | p50, quiet and flooded | p99, quiet | p99, flooded | rise | others served | flood admitted/s | \
refused/s | gateway's processor, quiet and flooded |
|---|---|---|---|---|---|---|---|---|---|"""


def _span(rounds: list[Round]) -> str:
    took = sorted(1e6 * p99(one.light) for one in rounds)
    return f"{statistics.median(took):,.0f} us ({took[0]:,.0f} to {took[-1]:,.0f})"


def _rate(rounds: list[Round], *, admitted: bool) -> float:
    floods = [one.flood for one in rounds if one.flood is not None]
    return statistics.median(
        sum(count for status, count in flood.statuses.items() if (status == "200") is admitted) / flood.seconds
        for flood in floods
    )


def table(gateway: str, found: dict[str, Found]) -> str:
    """Return the rows of a Markdown table."""
    rows = []
    for path, one in found.items():
        busy = [statistics.median(each.cpu for each in rounds) for rounds in (one.quiet, one.flooded)]
        halves = [1e6 * one.median(0.5, flooded=flooded) for flooded in (False, True)]
        rows.append(
            f"| {gateway} | {'5 to 10 ms' if path == SLOW else 'at once'} | {halves[0]:,.0f}, {halves[1]:,.0f} us "
            f"| {_span(one.quiet)} | {_span(one.flooded)} | {one.rise:.2f} "
            f"| {one.sent - one.failed:,} of {one.sent:,} | {_rate(one.flooded, admitted=True):.0f} "
            f"| {_rate(one.flooded, admitted=False):,.0f} | {busy[0]:.1%}, {busy[1]:.1%} |"
        )
    return "\n".join(rows)


def main() -> int:
    """Measure and print; return 1 where it does not hold."""
    parser = argparse.ArgumentParser(prog="python -m loadtest.flood", description=__doc__.partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=FULL.rounds)
    parser.add_argument("--seconds", type=float, default=FULL.seconds)
    parser.add_argument("--lines", type=int, default=FULL.lines, help="connections of the flood")
    parser.add_argument("--depth", type=int, default=FULL.depth, help="requests it has under way on each")
    parser.add_argument("--burst", type=int, default=FULL.burst, help="requests it sends at once")
    parser.add_argument("--times", type=int, default=FULL.times, help="of the backstop that it asks for")
    parser.add_argument("--pure", action="store_true", help="only in pure Python")
    parser.add_argument("--fast", action="store_true", help="only with an origin that answers at once")
    asked = parser.parse_args()
    flood = {"lines": asked.lines, "depth": asked.depth, "burst": asked.burst, "times": asked.times}
    size = replace(FULL, rounds=asked.rounds, seconds=asked.seconds, **flood)
    trees = {"compiled": COMPILED, "pure Python": PURE}
    held = True
    print(HEAD)
    for name, tree in trees.items():
        if not tree.exists() or (asked.pure and tree is COMPILED):
            continue
        with TemporaryDirectory() as folder:
            found = measure(Path(folder), size, tree, [FAST] if asked.fast else [FAST, SLOW])
        print(table(name, found), flush=True)
        for one in found.values():
            late = [1e6 * each.light.late for each in one.quiet + one.flooded]
            print(f"(sent late by, p99 of each round: {', '.join(f'{each:.0f}' for each in late)} us)", file=sys.stderr)
            held &= one.rise <= MOST and not one.failed
    return 0 if held else 1


if __name__ == "__main__":
    sys.exit(main())
