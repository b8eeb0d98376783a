"""What must be reached, each the ratio of two rows of one cell."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from loadtest.peers.cells import (
    ALIKE,
    ASGI,
    ASGI_AIOHTTP,
    CELLS,
    ENVOY,
    NGINX,
    OURS,
    PURE_ASGI,
    PURE_ASGI_AIOHTTP,
)
from loadtest.peers.report import Ratio, Row, ratio

__all__ = ["Outcome", "outcomes", "table"]

_SMALL, _REFUSED, _LARGE, _CONNECTIONS, _TENANTS = (CELLS[at].name for at in (0, 1, 2, 5, 6))

#: What, in which cell, which figure, of whom over whom (a name and its side), and what the ratio may be at most.
_ASKED = (
    ("proxied, over Envoy", _SMALL, "cpu_us", (OURS, ""), (ENVOY, ""), 0.7),
    ("proxied, over an Envoy that does the same work", _SMALL, "cpu_us", (OURS, ""), (ALIKE, ""), 0.7),
    ("proxied, over nginx", _SMALL, "cpu_us", (OURS, ""), (NGINX, ""), 2.6),
    ("p99 added, over Envoy", _SMALL, "p99_added_us", (OURS, ""), (ENVOY, ""), 1.0),
    ("refused, over Envoy", _REFUSED, "cpu_us", (OURS, ""), (ENVOY, ""), 0.8),
    ("refused, over an Envoy that does the same work", _REFUSED, "cpu_us", (OURS, ""), (ALIKE, ""), 0.8),
    ("1 MB: nginx's bytes a CPU second over ours", _LARGE, "mb_per_cpu_second", (NGINX, ""), (OURS, ""), 1 / 0.6),
    ("1,000 connections, over 64", _CONNECTIONS, "cpu_us", (OURS, "1,000 connections"), (OURS, "64 connections"), 1.25),
    ("10,000 tenants, over one", _TENANTS, "cpu_us", (OURS, "10,000 tenants"), (OURS, "one tenant"), 1.25),
    ("as ASGI app, over Envoy", _SMALL, "cpu_us", (ASGI, ""), (ENVOY, ""), 1.5),
    ("own pool, over aiohttp's client", _SMALL, "cpu_us", (ASGI, ""), (ASGI_AIOHTTP, ""), 0.5),
    ("the same in pure Python", _SMALL, "cpu_us", (PURE_ASGI, ""), (PURE_ASGI_AIOHTTP, ""), 0.5),
)


@dataclass(frozen=True, slots=True)
class Outcome:
    """What was asked for and what was found."""

    label: str
    found: Ratio
    most: float

    @property
    def reached(self) -> bool:
        """Whether the median is within what was asked for."""
        return self.found.median <= self.most


def outcomes(rows: Sequence[Row]) -> list[Outcome]:
    """Return what can be said of these rows."""
    at = {(row.cell, row.name, row.side): row for row in rows}
    found = [
        (label, ratio(at.get((cell, *one)), at.get((cell, *other)), field), most)
        for label, cell, field, one, other, most in _ASKED
    ]
    return [Outcome(label, part, most) for label, part, most in found if part is not None]


def table(rows: Sequence[Row]) -> str:
    """Return the outcomes as a Markdown table."""
    lines = ["| must reach | median of the rounds, low to high | at most | |", "|---|---:|---:|---|"]
    lines += [
        f"| {one.label} | {one.found} | {one.most:.2f} | {'reached' if one.reached else 'missed'} |"
        for one in outcomes(rows)
    ]
    return "\n".join(lines) + "\n"
