"""What was measured: samples, rows and ratios of them, as tables and as JSON.

Rules
1. A row keeps its samples in the order of the rounds. Its figure is their median; lowest and highest tell the spread.
2. A ratio is the median of the ratios of each round, never a ratio of medians: what slows the machine slows both.
"""

from __future__ import annotations

import json
import statistics
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from loadtest.peers.cells import ENVOY, NGINX, OURS, Load

__all__ = ["Ratio", "Row", "Sample", "by_cell", "cell_table", "matrix_table", "ratio", "read", "to_json"]

#: Above this part of failed requests a figure would be of something else than was asked for.
_MOST_FAILED = 0.01


@dataclass(frozen=True, slots=True)
class Sample:
    """One run of one contestant in one cell. Latency is what it adds to the origin's own in the same round."""

    cpu_us: float
    per_second: float
    p50_added_us: float
    p99_added_us: float
    resident_mb: float
    mb_per_cpu_second: float
    requests: int
    errors: int


@dataclass(frozen=True, slots=True)
class Row:
    """A contestant in a cell, on one side of it if it has two; without samples, `reason` says why it has none."""

    cell: str
    name: str
    load: Load
    samples: tuple[Sample, ...]
    side: str = ""
    reason: str = ""

    def middle(self, field: str = "cpu_us") -> float:
        """Return the median of a figure."""
        return float(statistics.median(getattr(sample, field) for sample in self.samples))

    @property
    def low(self) -> float:
        """The lowest cost of a round."""
        return min(sample.cpu_us for sample in self.samples)

    @property
    def high(self) -> float:
        """The highest."""
        return max(sample.cpu_us for sample in self.samples)

    @property
    def failed(self) -> int:
        """Answers that were not asked for, and connections that broke."""
        return sum(sample.errors for sample in self.samples)

    @property
    def why(self) -> str:
        """Why there is no figure to show; empty where there is one."""
        asked = sum(sample.requests for sample in self.samples)
        if self.samples and self.failed > _MOST_FAILED * asked:
            return f"{self.failed:,} failures beside {asked:,} answers"
        return self.reason

    @property
    def ours(self) -> bool:
        """Whether it is a way of ours."""
        return self.name.startswith(OURS)


@dataclass(frozen=True, slots=True)
class Ratio:
    """One figure over another in the same round: the median of the rounds, the lowest and the highest."""

    median: float
    low: float
    high: float

    def __str__(self) -> str:
        return f"{self.median:.2f} ({self.low:.2f} to {self.high:.2f})"


def ratio(over: Row | None, under: Row | None, field: str = "cpu_us") -> Ratio | None:
    """Return the ratio of two rows of a cell, or None where one of them has no figure."""
    if over is None or under is None or over.why or under.why:
        return None
    pairs = zip(over.samples, under.samples, strict=True)
    found = [getattr(one, field) / getattr(other, field) for one, other in pairs if getattr(other, field) > 0]
    return Ratio(statistics.median(found), min(found), max(found)) if found else None


def by_cell(rows: Iterable[Row]) -> dict[str, list[Row]]:
    """Return the rows of each cell, in the order in which cells were measured."""
    found: dict[str, list[Row]] = {}
    for row in rows:
        found.setdefault(row.cell, []).append(row)
    return found


def cell_table(rows: Sequence[Row]) -> str:
    """Return the Markdown table of one cell: cheapest first, or both sides of each contestant in one line."""
    shown = [row for row in rows if not row.why]
    sides = list(dict.fromkeys(row.side for row in shown))
    lines = _both(shown, *sides) if len(sides) == 2 else _single(shown)
    absent = [f"{row.name}{f', {row.side}' if row.side else ''}: {row.why}." for row in rows if row.why]
    return "\n".join([f"**{rows[0].cell}**", "", *lines, *(["", *absent] if absent else [])]) + "\n"


def _single(rows: Sequence[Row]) -> list[str]:
    base = next((row for row in rows if row.name == ENVOY), rows[0] if rows else None)
    columns = ["CPU us a request", "low to high", "requests/s", "p50 added us", "p99 added us", "MB"]
    lines = [f"| | {' | '.join(columns)} | of {base.name if base else ''} |", "|---|" + "---:|" * (len(columns) + 1)]
    for row in sorted(rows, key=Row.middle):
        part = ratio(row, base)
        figures = [
            f"{row.middle(field):,.0f}" for field in ("per_second", "p50_added_us", "p99_added_us", "resident_mb")
        ]
        cost, spread = f"{row.middle():.1f}", f"{row.low:.1f} to {row.high:.1f}"
        last = f"{part.median:.2f}" if part else ""
        lines.append(f"| {' | '.join([_called(row), cost, spread, *figures, last])} |")
    return lines


def _both(rows: Sequence[Row], one: str, other: str) -> list[str]:
    at = {(row.name, row.side): row for row in rows}
    names = [name for name in dict.fromkeys(row.name for row in rows) if (name, one) in at and (name, other) in at]
    lines = [
        f"| CPU us a request | {one}, low to high | {other}, low to high | over the former | p99 added us | MB |",
        "|---|---:|---:|---:|---:|---:|",
    ]
    for name in sorted(names, key=lambda name: at[name, one].middle()):
        first, second = at[name, one], at[name, other]
        costs = [f"{row.middle():.1f} ({row.low:.1f} to {row.high:.1f})" for row in (first, second)]
        late, size = (
            f"{first.middle(field):,.0f}, {second.middle(field):,.0f}" for field in ("p99_added_us", "resident_mb")
        )
        lines.append(f"| {_called(first)} | {costs[0]} | {costs[1]} | {ratio(second, first)} | {late} | {size} |")
    return lines


def _called(row: Row) -> str:
    shown = f"**{row.name}**" if row.name == OURS else row.name
    return f"{shown} ({row.failed} failed)" if row.failed else shown


def matrix_table(rows: Sequence[Row]) -> str:
    """Return the Markdown table of the matrix: a line for each cell, CPU us a request of each contestant."""
    names = list(dict.fromkeys(row.name for row in rows))
    head = ["body", "connections", "", "tenants", *names, "of Envoy", "of nginx"]
    lines = [f"| {' | '.join(head)} |", "|---|---:|---|---:|" + "---:|" * (len(names) + 2)]
    notes: list[str] = []
    for found in by_cell(rows).values():
        at, load = {row.name: row for row in found}, found[0].load
        costs = [_cost(at.get(name), notes) for name in names]
        parts = [ratio(at.get(OURS), at.get(name)) for name in (ENVOY, NGINX)]
        what = ["refused", f"{load.connections:,}", "kept", "1"] if load.refused else _axes(load)
        lines.append(f"| {' | '.join([*what, *costs, *(f'{part.median:.2f}' if part else '' for part in parts)])} |")
    return (
        "\n".join([*lines, *(["", " ".join(f"({at}) {note}." for at, note in enumerate(notes, 1))] if notes else [])])
        + "\n"
    )


def _axes(load: Load) -> list[str]:
    return [load.body, f"{load.connections:,}", "kept" if load.keep_alive else "new", f"{load.tenants:,}"]


def _cost(row: Row | None, notes: list[str]) -> str:
    """Return what a contestant costs, or the number of the note that says why that is not known."""
    if row is None:
        return ""
    if not row.why:
        return f"{row.middle():.1f}"
    note = f"{row.name} {row.why}"
    if note not in notes:
        notes.append(note)
    return f"({notes.index(note) + 1})"


def to_json(rows: Iterable[Row], about: dict[str, Any]) -> str:
    """Return everything, for programs: a row with its samples in each line."""
    head = json.dumps(about, indent=1)[:-2]
    lines = (json.dumps(_plain(asdict(row)), separators=(",", ":")) for row in rows)
    return head + ',\n "rows": [\n' + ",\n".join(lines) + "\n ]\n}\n"


def _plain(value: Any) -> Any:
    """Return `value` with no more digits than were measured."""
    if isinstance(value, dict):
        return {key: _plain(one) for key, one in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(one) for one in value]
    return round(value, 3) if isinstance(value, float) else value


def read(path: Path) -> tuple[list[Row], dict[str, Any]]:
    """Return the rows of a file that `to_json` made, and what is said about them."""
    about = json.loads(path.read_text(encoding="utf-8"))
    rows = [
        Row(**{**row, "load": Load(**row["load"]), "samples": tuple(Sample(**one) for one in row["samples"])})
        for row in about.pop("rows")
    ]
    return rows, about
