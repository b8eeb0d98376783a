"""Writes what was measured into both READMEs: `python -m loadtest.peers.readme`, and nobody copies figures by hand.

Rules
1. Only what stands between `<!-- measured: NAME -->` and `<!-- end of NAME -->` is replaced.
2. What is written follows from the files of results alone, so writing again changes nothing; `--check` says whether it
   would, by its exit code.
"""

from __future__ import annotations

import argparse
import sys
import textwrap
from collections.abc import Mapping, Sequence
from pathlib import Path

from loadtest.peers import report, targets
from loadtest.peers.about import sentence
from loadtest.peers.cells import ALIKE, CELLS, ENVOY, NGINX, OURS, PURE
from loadtest.peers.report import Row

__all__ = ["PLACES", "blocks", "filled", "main"]

_ROOT = Path(__file__).resolve().parents[2]
#: What stands where.
PLACES = {_ROOT / "loadtest" / "README.md": ("proxied", "matrix"), _ROOT / "README.md": ("costs",)}

#: Who stands in the short table, and as what.
_SHORT = {
    NGINX: "nginx, one `limit_req`",
    OURS: "**Evenhand**, compiled",
    ENVOY: "Envoy, one local rate limit",
    ALIKE: "Envoy, a cached JWT, three buckets, fields and a log",
    "caddy": "Caddy, no limit at all",
    PURE: "Evenhand, pure Python",
    "uvicorn + httpx": "uvicorn and httpx, no limit at all",
}


def blocks(results: Path) -> dict[str, str]:
    """Return what can be written from a folder of results, by the name of its place."""
    found = {}
    if (path := results / "proxied.json").exists():
        rows, said = report.read(path)
        tables = "\n".join(report.cell_table(cell) for cell in report.by_cell(rows).values())
        found["costs"] = _costs(rows)
        found["proxied"] = f"{_line(sentence(said))}\n\n{targets.table(rows)}\n{tables}"
    if (path := results / "matrix.json").exists():
        rows, said = report.read(path)
        found["matrix"] = f"{_line(sentence(said))}\n\n{report.matrix_table(rows)}"
    return found


def _costs(rows: Sequence[Row]) -> str:
    """Return the short table: a request and a refusal on 64 connections, and what 1,000 make of it."""
    at = {(row.cell, row.name, row.side): row for row in rows if not row.why}
    proxied, refused = ({name: at.get((CELLS[place].name, name, "")) for name in _SHORT} for place in (0, 1))
    known = sorted((row.middle(), name) for name, row in proxied.items() if row)
    lines = [
        "| one core, small JSON, 64 connections, everything on | a proxied request | a refusal |",
        "|---|---:|---:|",
    ]
    for _, name in known:
        figures = [_us(row[name], bold=name == OURS) for row in (proxied, refused)]
        lines.append(f"| {_SHORT[name]} | {' | '.join(figures)} |")
    ours, envoy = (at.get((CELLS[5].name, name, "1,000 connections")) for name in (OURS, ENVOY))
    if ours and envoy:
        lines += ["", f"With 1,000 connections a request costs {_us(ours)}, beside Envoy's {_us(envoy)}."]
    return "\n".join(lines) + "\n"


def _us(row: Row | None, *, bold: bool = False) -> str:
    if row is None:
        return ""
    shown = f"{row.middle():,.1f} us" if row.middle() < 1000 else f"{row.middle():,.0f} us"
    return f"**{shown}**" if bold else shown


def _line(text: str) -> str:
    return textwrap.fill(text, 120, break_long_words=False, break_on_hyphens=False)


def filled(text: str, found: Mapping[str, str]) -> str:
    """Return `text` with each block in its place. Raises ValueError if it has no place for one."""
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
    parser.add_argument("--check", action="store_true", help="change nothing; 1 if a file is not what was measured")
    asked, found, stale = parser.parse_args(), blocks(_ROOT / "loadtest" / "results"), 0
    for path, names in PLACES.items():
        before = path.read_text(encoding="utf-8")
        after = filled(before, {name: found[name] for name in names if name in found})
        stale += before != after
        if not asked.check:
            path.write_text(after, encoding="utf-8")
    return int(asked.check and stale > 0)


if __name__ == "__main__":
    sys.exit(main())
