"""Whether the path of a request has grown: `python -m loadtest.bench.instructions`, for `make bench-check`.

Times differ from run to run and from machine to machine; instructions hardly do. Counts those of one request with
valgrind, in pure Python, and prints the drift from the committed baseline; exit code 1 if one grew by more than `MOST`.
`--save` makes what is found the baseline. Counts are comparable within one minor version of CPython.
"""

from __future__ import annotations

import argparse
import json
import platform
import shutil
import sys
from pathlib import Path

from loadtest.bench.path import KINDS, instructions

__all__ = ["MOST", "main"]

#: Growth that is let pass, as a part: less than a careless line on the path costs.
MOST = 0.03

_BASELINE = Path(__file__).with_suffix(".json")


def main() -> int:
    """Count, and compare or save."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--save", action="store_true")
    asked = parser.parse_args()
    if shutil.which("valgrind") is None:
        print("valgrind is missing: no instructions counted")
        return 0
    found = {kind: round(instructions(kind)) for kind in KINDS}
    python = ".".join(platform.python_version_tuple()[:2])
    if asked.save:
        _BASELINE.write_text(json.dumps({"python": python, **found}, indent=1) + "\n", encoding="utf-8")
    baseline = json.loads(_BASELINE.read_text(encoding="utf-8"))
    if baseline["python"] != python:
        print(f"the baseline was counted on CPython {baseline['python']}, this is {python}: not compared")
        return 0
    grown = 0
    for kind, count in found.items():
        drift = count / baseline[kind] - 1
        print(f"{kind:10}{count:10,} instructions a request, {drift:+.1%} from the baseline")
        grown += drift > MOST
    return int(grown > 0)


if __name__ == "__main__":
    sys.exit(main())
