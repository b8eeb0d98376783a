"""What a proxied request and a refusal cost, ours beside the peers: `python -m loadtest.bench.proxied`.

Rules
1. One origin, one client, one run: all contestants stand ready, and take turns in every round of every cell
   (`loadtest/peers/ring.py`).
2. Cost is the processor time of all processes of a contestant over the requests that were answered; latency is what is
   added to the origin's own in the same round. Figures are medians over the rounds, cost with its spread.
3. An answer that a cell does not ask for (an error, a refusal where none is due) is counted beside the figures.
4. What was measured is written after each cell, so that a run that ends early is not lost (`--resume`).

`--quick` takes two minutes; without it about twelve; `--matrix`, every body on every number of connections, kept and
not, of one tenant and of many, twenty. `--out` is where JSON and drawing go.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from loadtest.peers import drawing, report, targets
from loadtest.peers.about import about, sentence
from loadtest.peers.cells import CELLS, MATRIX, Cell
from loadtest.peers.contestants import CONTESTANTS, Contestant
from loadtest.peers.report import Row
from loadtest.peers.ring import Ring

__all__ = ["chosen", "main", "run"]

_RESULTS = Path(__file__).resolve().parents[1] / "results"
#: What must be the same for a run to be taken up again.
_SAME = ("commit", "machine", "client", "rounds", "seconds", "missing")


def main() -> int:
    """Measure, print, write; return 1 if a target is missed."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--matrix", action="store_true")
    parser.add_argument("--rounds", type=int)
    parser.add_argument("--seconds", type=float)
    parser.add_argument("--cell", type=int, action="append", help="only this cell, by its place; repeatable")
    parser.add_argument("--only", action="append", help="only this contestant; repeatable")
    parser.add_argument("--out", type=Path, help="loadtest/results, and nowhere for a part of the cells or contestants")
    parser.add_argument("--resume", action="store_true", help="go on with what an earlier run wrote into --out")
    asked = parser.parse_args()
    rounds = asked.rounds or (1 if asked.quick else 3 if asked.matrix else 5)
    seconds = asked.seconds or (1 if asked.quick or asked.matrix else 2)
    stem = "matrix" if asked.matrix else "quick" if asked.quick else "proxied"
    out = asked.out or (None if asked.cell or asked.only else _RESULTS)
    cells = chosen(MATRIX if asked.matrix else CELLS, asked.cell, asked.only, quick=asked.quick)
    rows = run(cells, CONTESTANTS, rounds, seconds, out and out / stem, resume=asked.resume)
    if asked.matrix:
        print(report.matrix_table(rows))
    else:
        print(targets.table(rows))
    return int(any(not one.reached for one in targets.outcomes(rows)))


def chosen(
    cells: Sequence[Cell], places: Sequence[int] | None, only: Sequence[str] | None, *, quick: bool
) -> list[Cell]:
    """Return the cells that were asked for, each with the contestants that were, by name or by who runs."""
    wanted = [cells[place] for place in places or range(len(cells)) if cells[place].quick or not quick]
    if not only:
        return wanted
    kept = [tuple(one for one in cell.entries if {one.name, one.contestant} & set(only)) for cell in wanted]
    return [Cell(cell.name, entries) for cell, entries in zip(wanted, kept, strict=True) if entries]


def run(
    cells: Sequence[Cell],
    contestants: Sequence[Contestant],
    rounds: int,
    seconds: float,
    out: Path | None,
    *,
    resume: bool = False,
) -> list[Row]:
    """Measure cells, printing each as it comes, and write what is known so far to `out` with `.json` and `.svg`."""
    needed = {entry.contestant for cell in cells for entry in cell.entries}
    with TemporaryDirectory() as folder:
        ring = Ring(Path(folder), [one for one in contestants if one.name in needed])
        try:
            said = about("loadtest.bench.proxied", ring.running, ring.missing, rounds, seconds)
            rows = _resumed(out, said) if resume and out else []
            print(f"{sentence(said)}\n", flush=True)
            for cell in cells:
                if cell.name in report.by_cell(rows):
                    continue
                found = ring.measured(cell, rounds, seconds)
                print(report.cell_table(found), flush=True)
                rows += found
                if out:
                    _write(out, rows, said)
        finally:
            ring.close()
    return rows


def _resumed(out: Path, said: dict[str, Any]) -> list[Row]:
    """Return what was measured before; raises SystemExit if it was something else."""
    path = out.with_suffix(".json")
    if not path.exists():
        return []
    rows, before = report.read(path)
    if other := [name for name in _SAME if before[name] != said[name]]:
        raise SystemExit(f"{path} cannot be taken up again: {', '.join(other)} differ")
    said.update(before, resumed=True)
    return rows


def _write(out: Path, rows: Sequence[Row], said: dict[str, Any]) -> None:
    out.parent.mkdir(parents=True, exist_ok=True)
    out.with_suffix(".json").write_text(report.to_json(rows, said), encoding="utf-8")
    of_matrix = any(row.load.tenants for row in rows) and not any(row.side for row in rows)
    drawn = drawing.matrix(rows) if of_matrix else drawing.cells(rows)
    out.with_suffix(".svg").write_text(drawn, encoding="utf-8")


if __name__ == "__main__":
    sys.exit(main())
