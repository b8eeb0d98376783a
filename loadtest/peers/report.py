"""What was measured, as a table, as JSON and as a drawing."""

from __future__ import annotations

import json
import statistics
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from html import escape
from pathlib import Path

__all__ = ["Row", "Sample", "median_row", "svg", "table", "to_json", "write"]


@dataclass(frozen=True, slots=True)
class Sample:
    """One run of one contestant in one cell. Latency is what it adds to the origin's own in the same round."""

    cpu_us: float
    per_second: float
    p50_added_us: float
    p99_added_us: float
    resident_mb: float
    mb_per_cpu_second: float
    errors: int


@dataclass(frozen=True, slots=True)
class Row:
    """The median of a contestant's rounds in one cell, and the lowest and highest CPU figure."""

    cell: str
    name: str
    cpu_us: float
    low: float
    high: float
    per_second: float
    p50_added_us: float
    p99_added_us: float
    resident_mb: float
    mb_per_cpu_second: float
    errors: int


def median_row(cell: str, name: str, samples: Sequence[Sample]) -> Row:
    """Return the row of a contestant's samples in a cell."""

    def middle(field: str) -> float:
        return float(statistics.median(getattr(sample, field) for sample in samples))

    costs = [sample.cpu_us for sample in samples]
    middles = {
        field: middle(field)
        for field in ("cpu_us", "per_second", "p50_added_us", "p99_added_us", "resident_mb", "mb_per_cpu_second")
    }
    return Row(cell=cell, name=name, low=min(costs), high=max(costs), errors=sum(s.errors for s in samples), **middles)


def table(rows: Iterable[Row], reference: str) -> str:
    """Return a Markdown table for each cell, cheapest first; the last column is the cost over that of `reference`."""
    by_cell: dict[str, list[Row]] = {}
    for row in rows:
        by_cell.setdefault(row.cell, []).append(row)
    return "\n".join(line for cell, found in by_cell.items() for line in _cell(cell, found, reference))


def _cell(cell: str, rows: list[Row], reference: str) -> list[str]:
    base = next((row.cpu_us for row in rows if row.name == reference), None)
    lines = [
        f"**{cell}**",
        "",
        f"| | CPU us a request | low to high | requests/s | p50 added us | p99 added us | MB | of {reference} |",
        "|---|---:|---:|---:|---:|---:|---:|---:|",
    ]
    for row in sorted(rows, key=lambda row: row.cpu_us):
        part = "" if base is None else f"{row.cpu_us / base:.2f}"
        failed = f" ({row.errors} failed)" if row.errors else ""
        lines.append(
            f"| {row.name}{failed} | {row.cpu_us:.1f} | {row.low:.1f} to {row.high:.1f} | {row.per_second:,.0f} "
            f"| {row.p50_added_us:,.0f} | {row.p99_added_us:,.0f} | {row.resident_mb:.0f} | {part} |"
        )
    return [*lines, ""]


def to_json(rows: Iterable[Row], about: dict[str, object]) -> str:
    """Return everything, for programs."""
    return json.dumps({**about, "rows": [asdict(row) for row in rows]}, indent=1) + "\n"


_BAR, _LEFT, _WIDTH = 18, 220, 420


def svg(rows: Sequence[Row], cells: Sequence[str]) -> str:
    """Return a drawing of CPU a request in `cells`: a bar to the median, a line from the lowest to the highest."""
    parts: list[str] = []
    y = 10
    for cell in cells:
        found = sorted((row for row in rows if row.cell == cell), key=lambda row: row.cpu_us)
        if not found:
            continue
        # One that is far off would flatten all others.
        longest = sorted(row.cpu_us for row in found)[-1 if len(found) < 3 else -2] * 1.25
        parts.append(f'<text x="10" y="{y + 14}" font-weight="bold">{escape(cell)}: CPU microseconds</text>')
        y += 24
        for row in found:
            parts += _bar(row, y, longest)
            y += _BAR + 4
        y += 12
    head = f'<svg xmlns="http://www.w3.org/2000/svg" width="760" height="{y}" font-family="sans-serif" font-size="12">'
    return "\n".join([head, f'<rect width="760" height="{y}" fill="white"/>', *parts, "</svg>\n"])


def _bar(row: Row, y: int, longest: float) -> list[str]:
    def at(value: float) -> float:
        return min(value / longest, 1.0) * _WIDTH

    colour = "#2a6f97" if row.name.startswith("evenhand") else "#a9b4bd"
    middle = y + _BAR / 2
    return [
        f'<text x="{_LEFT - 8}" y="{y + 13}" text-anchor="end">{escape(row.name)}</text>',
        f'<rect x="{_LEFT}" y="{y}" width="{at(row.cpu_us):.1f}" height="{_BAR}" fill="{colour}"/>',
        f'<path d="M{_LEFT + at(row.low):.1f} {middle}H{_LEFT + at(row.high):.1f}" stroke="black"/>',
        f'<text x="{_LEFT + at(max(row.cpu_us, row.high)) + 6:.1f}" y="{y + 13}">{row.cpu_us:.1f}</text>',
    ]


def write(folder: Path, stem: str, rows: Sequence[Row], about: dict[str, object], cells: Sequence[str]) -> None:
    """Write the JSON and the drawing."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"{stem}.json").write_text(to_json(rows, about), encoding="utf-8")
    (folder / f"{stem}.svg").write_text(svg(rows, cells), encoding="utf-8")
