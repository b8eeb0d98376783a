"""What was measured, drawn: a panel for each cell, and the matrix as a table of colours. SVG by hand, light and dark.

Rules
1. Cost is drawn: a bar to the median, a line from the lowest round to the highest, and the figure in words.
2. Ours is coloured, its other builds and shells paler, everybody else grey; the name says it too.
3. A cell of the matrix is coloured by the ratio that stands in it: blue where ours is cheaper, orange where it is not.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from html import escape

from loadtest.peers.cells import ENVOY, NGINX, OURS, Load
from loadtest.peers.report import Row, by_cell, ratio

__all__ = ["cells", "matrix"]

_STYLE = """<style>
svg { color-scheme: light dark; font: 12px system-ui, sans-serif }
.page { fill: #ffffff } text { fill: #1c2730 } .faint { fill: #5c6b77 } .title { font-weight: 600 }
.ours { fill: #0b6bb8 } .also { fill: #7fb3dc } .peer { fill: #b6c0c8 } .spread { stroke: #1c2730 }
.cell { fill: #12202b } .mine { font-weight: 600 }
@media (prefers-color-scheme: dark) {
.page { fill: #11181f } text { fill: #e3eaf0 } .faint { fill: #9fb0bd }
.ours { fill: #4ba6ec } .also { fill: #2f6690 } .peer { fill: #56636e } .spread { stroke: #e3eaf0 }
.cell { fill: #12202b }
}
</style>"""

_WIDTH, _GAP = 1160, 24
_PANEL = (_WIDTH - 3 * _GAP) // 2
_NAMES, _FIGURE = 276, 64
_LINE, _BAR = 20, 14
#: A bar more than so many times the second longest is cut off.
_FAR = 3


def _page(height: float, title: str, parts: Iterable[str], width: float = _WIDTH) -> str:
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:g} {height:g}" width="{width:g}" '
        f'height="{height:g}" role="img"><title>{escape(title)}</title>'
    )
    return "\n".join([head, _STYLE, f'<rect class="page" width="{width:g}" height="{height:g}"/>', *parts, "</svg>\n"])


def _text(x: float, y: float, text: str, kind: str = "", anchor: str = "start") -> str:
    shown = f' class="{kind}"' if kind else ""
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}"{shown}>{escape(text)}</text>'


def cells(rows: Sequence[Row]) -> str:
    """Return a drawing with a panel for each cell, in two columns."""
    bottoms = [44.0, 44.0]
    parts = [_text(_GAP, 26, "CPU microseconds a request: median, lowest and highest round", "title")]
    for cell, found in by_cell(row for row in rows if not row.why).items():
        column = bottoms.index(min(bottoms))
        parts += _panel(cell, found, _GAP + column * (_PANEL + _GAP), bottoms[column])
        bottoms[column] += (len(found) + 1) * _LINE + _GAP
    return _page(max(bottoms), "What a request costs, ours beside the peers", parts)


def _panel(cell: str, rows: Sequence[Row], x: float, y: float) -> Iterable[str]:
    first = {row.name: row.middle() for row in reversed(rows)}
    # Both sides of a contestant stand together.
    drawn = sorted(rows, key=lambda row: (first[row.name], row.name) if row.side else (row.middle(), row.name))
    costs = sorted(row.high for row in drawn)
    longest = costs[-1] if len(costs) < 3 or costs[-1] < _FAR * costs[-2] else 1.2 * costs[-2]
    room = _PANEL - _NAMES - _FIGURE
    yield _text(x, y + 13, cell, "title")
    for at, row in enumerate(drawn, 1):
        yield from _bar(row, x + _NAMES, y + at * _LINE, room / longest, room)


def _bar(row: Row, x: float, y: float, scale: float, room: float) -> Iterable[str]:
    end, low, high = (x + min(room, scale * value) for value in (row.middle(), row.low, row.high))
    kind = "ours" if row.name == OURS else "also" if row.ours else "peer"
    label = f"{row.name}, {row.side}" if row.side else row.name
    cut = " »" if scale * row.middle() > room else ""
    yield _text(x - 8, y + 12, label, "mine" if row.name == OURS else "", "end")
    yield f'<rect x="{x:.1f}" y="{y + 1:.1f}" width="{end - x:.1f}" height="{_BAR}" rx="2" class="{kind}"/>'
    yield f'<path d="M{low:.1f} {y + 1 + _BAR / 2:.1f}H{high:.1f}" class="spread"/>'
    yield _text(max(end, high) + 6, y + 12, f"{row.middle():,.1f}{cut}", "mine" if row.name == OURS else "")


_SQUARE = 92
_ROW = 26
_AXIS = 250


def matrix(rows: Sequence[Row]) -> str:
    """Return a drawing of what ours costs over Envoy and over nginx in every cell of the matrix."""
    found = by_cell(rows)
    lines = list(dict.fromkeys(_line(cell[0].load) for cell in found.values()))
    columns = sorted({cell[0].load.connections for cell in found.values()})
    width, wide = _AXIS + 2 * (len(columns) * _SQUARE + _GAP), len(columns) * _SQUARE
    parts = [
        _text(_GAP, 26, "What a request costs with us over what it costs a peer: below 1 ours is cheaper", "title")
    ]
    for at, (peer, called) in enumerate(((ENVOY, "of Envoy"), (NGINX, "of nginx"))):
        x = _AXIS + at * (wide + _GAP)
        parts.append(_text(x + wide / 2, 52, called, "title", "middle"))
        parts += [
            _text(x + (place + 0.5) * _SQUARE, 70, _many(columns[place]), "faint", "middle")
            for place in range(len(columns))
        ]
        for cell in found.values():
            load = cell[0].load
            y = 78 + lines.index(_line(load)) * _ROW
            parts += _square(cell, peer, x + columns.index(load.connections) * _SQUARE, y)
    parts += [_text(_AXIS - 10, 95 + at * _ROW, line, "", "end") for at, line in enumerate(lines)]
    return _page(78 + len(lines) * _ROW + _GAP, "Ours over Envoy and over nginx", parts, width)


def _line(load: Load) -> str:
    if load.refused:
        return "refused"
    tenants = "1 tenant" if load.tenants == 1 else f"{load.tenants:,} tenants"
    return f"{load.body}, {'kept' if load.keep_alive else 'new'}, {tenants}"


def _many(connections: int) -> str:
    return "1 connection" if connections == 1 else f"{connections:,}"


def _square(cell: Sequence[Row], peer: str, x: float, y: float) -> Iterable[str]:
    at = {row.name: row for row in cell}
    part = ratio(at.get(OURS), at.get(peer))
    if part is None:
        yield _text(x + _SQUARE / 2, y + 17, "none", "faint", "middle")
        return
    yield (
        f'<rect x="{x + 1:.1f}" y="{y + 1:.1f}" width="{_SQUARE - 2}" height="{_ROW - 2}" rx="3" '
        f'fill="{_colour(part.median)}"><title>{escape(f"{cell[0].cell}: {part} of {peer}")}</title></rect>'
    )
    yield _text(x + _SQUARE / 2, y + 17, f"{part.median:.2f}", "cell", "middle")


def _colour(value: float) -> str:
    """Return pale at 1, and full where ours costs a third, or three times as much."""
    share = max(-1.0, min(1.0, math.log(value) / math.log(3)))
    full = (88, 166, 226) if share < 0 else (240, 150, 70)
    pale = (238, 240, 242)
    mixed = (round(light + (dark - light) * abs(share)) for light, dark in zip(pale, full, strict=True))
    return "#" + "".join(f"{part:02x}" for part in mixed)
