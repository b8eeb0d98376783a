"""`python -m loadtest sim SCENARIO`, `sim --all`, `soak-shares`: the fair backstop in simulated time.

The exit code is 1 if a line that must hold does not.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Iterable
from pathlib import Path

from loadtest.plot import svg
from loadtest.report import holds, text
from loadtest.scenarios.catalogue import CATALOGUE
from loadtest.sim.model import Mode
from loadtest.sim.run import simulate
from loadtest.sim.soak import soak

__all__ = ["main"]


def _arguments() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m loadtest")
    commands = parser.add_subparsers(dest="command", required=True)
    sim = commands.add_parser("sim", help="run a scenario in simulated time")
    sim.add_argument("scenario", nargs="?", choices=sorted(CATALOGUE), metavar="SCENARIO", help=", ".join(CATALOGUE))
    sim.add_argument("--all", action="store_true", help="run every scenario in each of its modes")
    sim.add_argument("--mode", choices=[mode.value for mode in Mode], help="instead of the scenario's own modes")
    sim.add_argument("--seed", type=int, default=1)
    sim.add_argument("--svg", type=Path, help="draw the run into this file (with several, its mode is added)")
    sim.add_argument("--tenants", action="store_true", help="show every tenant")
    shares = commands.add_parser("soak-shares", help="random mixes of tenants, 10 million requests")
    shares.add_argument("--requests", type=int, default=10_000_000)
    return parser


def _sim(arguments: argparse.Namespace) -> bool:
    names = CATALOGUE if arguments.all else [arguments.scenario]
    held = True
    for name in names:
        scenario = CATALOGUE[name]
        modes: Iterable[Mode] = scenario.modes if arguments.mode is None else (Mode(arguments.mode),)
        for mode in modes:
            begun = time.perf_counter()
            figures = simulate(scenario, mode, arguments.seed)
            print(text(figures, every=arguments.tenants))
            print(f"({time.perf_counter() - begun:.1f} s)\n", flush=True)
            held &= all(line[2] for line in holds(figures))
            if arguments.svg is not None:
                path: Path = arguments.svg
                path.with_stem(
                    f"{path.stem}-{name}-{mode}" if arguments.all or not arguments.mode else path.stem
                ).write_text(svg(figures), encoding="utf-8")
    return held


def main() -> int:
    """Run what the command line says."""
    parser = _arguments()
    arguments = parser.parse_args()
    if arguments.command == "soak-shares":
        return 0 if soak(arguments.requests, print) else 1
    if not arguments.all and arguments.scenario is None:
        parser.error("name a scenario, or --all")
    return 0 if _sim(arguments) else 1


if __name__ == "__main__":
    sys.exit(main())
