"""Writes what was measured into a Markdown file: `python -m loadtest.peers.readme`, and nobody copies figures by hand.

Rules
1. Only what stands between `<!-- measured: NAME -->` and `<!-- end of NAME -->` is replaced.
2. What is written follows from the files of results alone, so writing again changes nothing; `--check` says whether it
   would, by its exit code.
"""

from __future__ import annotations

import argparse
import sys
import textwrap
from collections.abc import Mapping
from pathlib import Path

from loadtest.peers import report, targets
from loadtest.peers.about import sentence

__all__ = ["blocks", "filled", "main"]

_HERE = Path(__file__).resolve().parents[1]


def blocks(results: Path) -> dict[str, str]:
    """Return what can be written from a folder of results, by the name of its place."""
    found = {}
    if (path := results / "proxied.json").exists():
        rows, said = report.read(path)
        tables = "\n".join(report.cell_table(cell) for cell in report.by_cell(rows).values())
        found["proxied"] = f"{_line(sentence(said))}\n\n{targets.table(rows)}\n{tables}"
    if (path := results / "matrix.json").exists():
        rows, said = report.read(path)
        found["matrix"] = f"{_line(sentence(said))}\n\n{report.matrix_table(rows)}"
    return found


def _line(text: str) -> str:
    return textwrap.fill(text, 120, break_long_words=False, break_on_hyphens=False)


def filled(text: str, found: Mapping[str, str]) -> str:
    """Return `text` with every block in its place. Raises ValueError if it has no place for one."""
    for name, block in found.items():
        begin, end = f"<!-- measured: {name} -->", f"<!-- end of {name} -->"
        head, opened, rest = text.partition(f"{begin}\n")
        _, closed, tail = rest.partition(end)
        if not (opened and closed) or begin in tail:
            raise ValueError(f"there has to be one place for {name}")
        text = f"{head}{begin}\n\n{block}\n{end}{tail}"
    return text


def main() -> int:
    """Write, or say whether anything would be written."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--results", type=Path, default=_HERE / "results")
    parser.add_argument("--file", type=Path, default=_HERE / "README.md")
    parser.add_argument("--check", action="store_true", help="change nothing; 1 if the file is not what was measured")
    asked = parser.parse_args()
    before = asked.file.read_text(encoding="utf-8")
    after = filled(before, blocks(asked.results))
    if asked.check:
        return int(before != after)
    asked.file.write_text(after, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
