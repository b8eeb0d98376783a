"""A run as a picture: admitted units over time by group, and each tenant against exact max-min. SVG by hand."""

from __future__ import annotations

from collections.abc import Iterable
from xml.sax.saxutils import escape

from loadtest.sim.figures import Figures

__all__ = ["svg"]

WIDTH, HEIGHT = 960, 620
LEFT, RIGHT = 70, 940
#: Top and bottom of the two panels.
OVER_TIME = (60, 330)
BY_TENANT = (400, 570)
COLOURS = ("#1b6ca8", "#c8553d", "#5b8c5a", "#8e6c8a", "#d9a441", "#4f5d75")
#: Admitted over max-min up to which the lower panel shows.
TOP_RATIO = 2.0


def _text(x: float, y: float, text: str, *, anchor: str = "start", size: int = 12) -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" font-size="{size}">{escape(text)}</text>'


def _rule(y: float, label: str, colour: str = "#ddd") -> str:
    line = f'<line x1="{LEFT}" y1="{y:.1f}" x2="{RIGHT}" y2="{y:.1f}" stroke="{colour}"/>'
    return line + _text(LEFT - 6, y + 4, label, anchor="end", size=11)


def _smooth(values: list[float]) -> list[float]:
    """Return means over half a second, for slots are only 0.1 s long."""
    return [sum(part) / len(part) for part in (values[max(0, at - 4) : at + 1] for at in range(len(values)))]


def _over_time(figures: Figures, colours: dict[str, str]) -> Iterable[str]:
    top, bottom = OVER_TIME
    series = {group: _smooth(values) for group, values in figures.series.items()}
    highest = 1.1 * max(figures.scenario.backstop.per_second, *(max(values) for values in series.values()))

    def y(value: float) -> float:
        return bottom - (bottom - top) * value / highest

    for part in range(5):
        yield _rule(y(highest * part / 4), f"{highest * part / 4:,.0f}/s")
    yield _rule(y(figures.scenario.backstop.per_second), "backstop", "#c00")
    for group, values in series.items():
        step = (RIGHT - LEFT) / max(1, len(values) - 1)
        points = " ".join(f"{LEFT + step * at:.1f},{y(value):.1f}" for at, value in enumerate(values))
        yield f'<polyline fill="none" stroke="{colours[group]}" stroke-width="1.5" points="{points}"/>'
    for second in range(0, int(figures.scenario.seconds) + 1, max(1, int(figures.scenario.seconds / 10))):
        x = LEFT + (RIGHT - LEFT) * second / figures.scenario.seconds
        yield _text(x, bottom + 16, f"{second} s", anchor="middle", size=11)


def _by_tenant(figures: Figures, colours: dict[str, str]) -> Iterable[str]:
    top, bottom = BY_TENANT

    def y(ratio: float) -> float:
        return bottom - (bottom - top) * min(ratio, TOP_RATIO) / TOP_RATIO

    yield _text(LEFT, top - 12, "each tenant's admitted units over exact max-min (1 is fair)")
    for ratio in (0.0, 0.5, 1.0, 1.5, 2.0):
        yield _rule(y(ratio), f"{ratio:g}", "#c00" if ratio == 1.0 else "#ddd")
    step = (RIGHT - LEFT) / max(1, len(figures.rows))
    for at, row in enumerate(figures.rows):
        x = LEFT + step * (at + 0.5)
        yield f'<circle cx="{x:.1f}" cy="{y(row.against_fair):.1f}" r="2.5" fill="{colours[row.group]}"/>'


def svg(figures: Figures) -> str:
    """Return the picture of a run."""
    groups = list(figures.series)
    colours = {group: COLOURS[at % len(COLOURS)] for at, group in enumerate(groups)}
    title = f"{figures.scenario.name}, {figures.mode}: {figures.scenario.about}"
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" font-family="sans-serif">',
        f'<rect width="{WIDTH}" height="{HEIGHT}" fill="#fff"/>',
        _text(LEFT, 26, title, size=15),
        _text(LEFT, 48, "admitted units per second, means of half a second"),
        *_over_time(figures, colours),
        *_by_tenant(figures, colours),
    ]
    for at, group in enumerate(groups):
        x = LEFT + 130 * at
        parts.append(f'<rect x="{x}" y="{HEIGHT - 26}" width="12" height="12" fill="{colours[group]}"/>')
        parts.append(_text(x + 17, HEIGHT - 16, group))
    return "\n".join((*parts, "</svg>", ""))
