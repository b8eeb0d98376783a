"""Reading the stored series: who was offered what, and refused by which limit, between two instants.

Rules
1. Each question opens its source for itself, to read: any thread may ask, and nobody waits for the writer.
2. A span is made of whole days, whole five minutes, and slots of ten seconds, the coarsest that fit: a quarter of a
   year over a thousand tenants reads as many rows as a quarter has days. Slots are kept for a day, so older ends are
   rounded outwards to five minutes.
3. What was counted up to eight seconds ago is there.
"""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from gateway.errors import GatewayError
from gateway.history.books import DAY_SLOTS
from gateway.history.identity import TENANT
from gateway.history.packing import sum_counts
from gateway.history.schema import reader

__all__ = [
    "DAYS", "Counted", "FileSource", "Part", "Point", "Row", "Series", "Source", "Span", "Who", "file_source", "parts",
    "rounded",
]  # fmt: skip

#: Days of series that are kept.
DAYS = 90
_SLOTS_PER_FIVE = 30
_SLOTS_PER_DAY = 8640
#: Longest spans, in seconds, that are shown by slots and by five minutes; longer ones by days.
_FINE, _MEDIUM = 2 * 3600, 8 * 86_400

#: (tally, limit) -> how often.
Counted = dict[tuple[int, str], int]
#: Kind, tenant and credential of a key, or of a tenant as a whole.
Who = tuple[str, str, str]
#: A row's place among those of its table, whose it is, and its counts as they are packed.
Row = tuple[int, int, bytes]


@dataclass(frozen=True, slots=True)
class Span:
    """From slot `first` up to, not including, slot `last`, both of ten seconds."""

    first: int
    last: int


@dataclass(frozen=True, slots=True)
class Part:
    """A run of rows of one table; `grain` is how many slots each row stands for."""

    table: str
    grain: int
    first: int
    last: int


@dataclass(slots=True)
class Point:
    """One step of a series: when it begins (epoch seconds), and what was counted."""

    at: int
    counts: Counted = field(default_factory=dict)


def rounded(start: int, end: int, now: int) -> Span:
    """Return the span of two instants (epoch seconds), rounded outwards to what is still kept of them."""
    fine = now // 10 - DAY_SLOTS + 1
    first, last = start // 10, -(-end // 10)
    if first < fine:
        first = first // _SLOTS_PER_FIVE * _SLOTS_PER_FIVE
    if last < fine:
        last = -(-last // _SLOTS_PER_FIVE) * _SLOTS_PER_FIVE
    return Span(first, max(last, first + 1))


def parts(span: Span, folded: int, *, coarsest: int = _SLOTS_PER_DAY) -> Iterator[Part]:
    """Cut a span into rows, no coarser than `coarsest` slots; five minutes below number `folded` are added up."""
    tables = ((_SLOTS_PER_DAY, "total"), (_SLOTS_PER_FIVE, "five"), (1, "slot"))
    at = span.first
    while at < span.last:
        for grain, table in tables:
            ends = min(span.last, folded * _SLOTS_PER_FIVE) if grain > 1 else span.last
            last = ends // grain
            if grain <= coarsest and at % grain == 0 and last * grain > at:
                if grain == 1:  # up to where a coarser grain may begin
                    border = -(-(at + 1) // _SLOTS_PER_FIVE) * _SLOTS_PER_FIVE
                    last = min(last, border) if coarsest > 1 and border <= folded * _SLOTS_PER_FIVE else last
                elif grain == _SLOTS_PER_FIVE and coarsest > grain:
                    last = min(last, -(-(at + 1) // _SLOTS_PER_DAY) * _SLOTS_PER_DAY // grain)
                yield Part(table, grain, at // grain, last)
                at = last * grain
                break


class Source(Protocol):
    """Where counts are written. `meanings` are (tally, limit) by number; five minutes below `folded` are added up."""

    folded: int
    meanings: Mapping[int, tuple[int, str]]

    def tenants(self) -> Mapping[int, str]:
        """Return the tenants as a whole, by number."""
        ...

    def keys(self, tenant: str) -> Mapping[int, tuple[str, str]]:
        """Return (kind, credential) of a tenant and of its keys, by number."""
        ...

    def rows(self, part: Part) -> Iterable[Row]:
        """Yield what is written of tenants, and perhaps of others, in a run of rows."""
        ...

    def rows_of(self, part: Part, keys: Iterable[int]) -> Iterable[Row]:
        """Yield what is written of some keys."""
        ...

    def unwritten(self, span: Span) -> Iterable[tuple[int, Mapping[Who, Counted]]]:
        """Yield slots of a span that no row holds yet, and what is known of them already."""
        ...


class Series:
    """The stored series. Raises GatewayError where there is nothing to read."""

    def __init__(self, opener: Callable[[], AbstractContextManager[Source]]) -> None:
        self._opener = opener

    def tenants(self, start: int, end: int, now: int) -> tuple[Span, dict[str, Counted]]:
        """Return what was counted of each tenant between two instants, and the span that this is true of."""
        span = rounded(start, end, now)
        with self._opener() as source:
            names = source.tenants()
            found: dict[int, dict[int, int]] = {}
            for part in parts(span, source.folded):
                for _, key, counts in source.rows(part):
                    if key in names:
                        sum_counts(found.setdefault(key, {}), counts)
            told = {names[key]: _named(counts, source.meanings) for key, counts in found.items()}
            for _, fresh in source.unwritten(span):
                for (kind, tenant, _), counted in fresh.items():
                    if kind == TENANT:
                        _sum(told.setdefault(tenant, {}), counted)
        return span, told

    def points(
        self, tenants: Collection[str], start: int, end: int, now: int, step: int
    ) -> dict[str, dict[int, Counted]]:  # fmt: skip
        """Return what was counted of some tenants by the beginnings of steps, of so many seconds, between instants.

        A step is of whole five minutes, or of days. Each row is looked up by itself, so the cost is that of so many.
        """
        span = rounded(start, end, now)
        coarsest = _SLOTS_PER_DAY if step % 86_400 == 0 else _SLOTS_PER_FIVE
        found: dict[tuple[str, int], dict[int, int]] = {}
        with self._opener() as source:
            wanted = set(tenants)
            names = {number: name for number, name in source.tenants().items() if name in wanted}
            for part in parts(span, source.folded, coarsest=coarsest):
                for place, key, counts in source.rows_of(part, names):
                    sum_counts(found.setdefault((names[key], place * part.grain * 10 // step * step), {}), counts)
            told: dict[str, dict[int, Counted]] = {}
            for (name, at), total in found.items():
                told.setdefault(name, {})[at] = _named(total, source.meanings)
            for slot, fresh in source.unwritten(span):
                for (kind, name, _), counted in fresh.items():
                    if kind == TENANT and name in wanted:
                        _sum(told.setdefault(name, {}).setdefault(slot * 10 // step * step, {}), counted)
        return told

    def tenant(
        self, tenant: str, start: int, end: int, now: int
    ) -> tuple[Span, int, dict[tuple[str, str], list[Point]]]:
        """Return the span, its step in seconds, and by (kind, credential) the series of a tenant and of its keys."""
        span = rounded(start, end, now)
        length = 10 * (span.last - span.first)
        step = 1 if length <= _FINE else _SLOTS_PER_FIVE if length <= _MEDIUM else _SLOTS_PER_DAY
        found: dict[tuple[str, str], dict[int, dict[int, int]]] = {}
        with self._opener() as source:
            keys = source.keys(tenant)
            for part in parts(span, source.folded, coarsest=step):
                for place, key, counts in source.rows_of(part, keys):
                    at = place * part.grain // step * step * 10
                    sum_counts(found.setdefault(keys[key], {}).setdefault(at, {}), counts)
            told = {
                name: {at: _named(counts, source.meanings) for at, counts in points.items()}
                for name, points in found.items()
            }
            for slot, fresh in source.unwritten(span):
                for (kind, whose, credential), counted in fresh.items():
                    if whose == tenant:
                        at = slot // step * step * 10
                        _sum(told.setdefault((kind, credential), {}).setdefault(at, {}), counted)
        return span, step * 10, {
            name: [Point(at, points[at]) for at in sorted(points)] for name, points in told.items()
        }  # fmt: skip


def _sum(total: Counted, more: Mapping[tuple[int, str], int]) -> None:
    for what, count in more.items():
        total[what] = total.get(what, 0) + count


def _named(counts: Mapping[int, int], meanings: Mapping[int, tuple[int, str]]) -> Counted:
    return {meanings[meaning]: count for meaning, count in counts.items() if meaning in meanings}


class FileSource:
    """The counts in a file. Raises sqlite3.Error as it comes."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection
        row = connection.execute("SELECT value FROM meta WHERE name = 'five'").fetchone()
        self.folded = int(row[0]) if row else 0
        rows = connection.execute('SELECT id, tally, "limit" FROM meaning')
        self.meanings: Mapping[int, tuple[int, str]] = {number: (tally, limit) for number, tally, limit in rows}

    def tenants(self) -> Mapping[int, str]:
        """Return the tenants as a whole, by number."""
        return dict(self._connection.execute("SELECT id, tenant FROM key WHERE kind = 'tenant'"))

    def keys(self, tenant: str) -> Mapping[int, tuple[str, str]]:
        """Return (kind, credential) of a tenant and of its keys, by number."""
        rows = self._connection.execute("SELECT id, kind, credential FROM key WHERE tenant = ?", (tenant,))
        return {number: (kind, credential) for number, kind, credential in rows}

    def rows(self, part: Part) -> Iterable[Row]:
        """Yield what is written of everybody in a run of rows."""
        return self._connection.execute(_SPANS[part.table], (part.first, part.last))

    def rows_of(self, part: Part, keys: Iterable[int]) -> Iterator[Row]:
        """Look each row up by itself: a tenant's few among everybody's many."""
        numbers = sorted(keys)
        for place in range(part.first, part.last):
            for key in numbers:
                yield from self._connection.execute(_POINTS[part.table], (place, key))

    def unwritten(self, span: Span) -> Iterable[tuple[int, Mapping[Who, Counted]]]:
        """Yield nothing: the slot under way has its rows."""
        return ()


@contextlib.contextmanager
def file_source(path: Path | None) -> Iterator[FileSource]:
    """Open a file to read beside its writer. Raises GatewayError."""
    if path is None:
        raise GatewayError("the history of this process is kept in memory only, so there are no stored series")
    try:
        with contextlib.closing(reader(path)) as connection:
            yield FileSource(connection)
    except sqlite3.Error as error:
        raise GatewayError(f"{path}: the history cannot be read: {error}") from error


_SPANS = {
    "slot": "SELECT slot, key, counts FROM slot WHERE slot >= ? AND slot < ? AND counts IS NOT NULL",
    "five": "SELECT slot, key, counts FROM five WHERE slot >= ? AND slot < ?",
    "total": "SELECT day, key, counts FROM total WHERE day >= ? AND day < ?",
}
_POINTS = {
    "slot": "SELECT slot, key, counts FROM slot WHERE slot = ? AND key = ? AND counts IS NOT NULL",
    "five": "SELECT slot, key, counts FROM five WHERE slot = ? AND key = ?",
    "total": "SELECT day, key, counts FROM total WHERE day = ? AND key = ?",
}
