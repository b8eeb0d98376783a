"""Which named policies have applied to anything lately: a limit that nothing meets is a mistake nobody notices.

Rules
1. A policy is *unused* when it has been known for `UNUSED_AFTER` and has applied to no request since; whether it
   refused does not matter. It is known to within a day.
2. Kept in the file at `[store] path`, or in the shared store, because no process lives for 30 days. Where it cannot be
   kept, that is told, and stops nothing.
"""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from gateway.errors import GatewayError
from policies.units import SECOND, Micros

if TYPE_CHECKING:
    from gateway.stores.calls import Calls

__all__ = ["UNUSED_AFTER", "PolicyUse"]

UNUSED_AFTER: Micros = 30 * 86_400 * SECOND
_BUSY_SECONDS = 5.0
#: After the last time that anything was kept in a shared store.
_KEPT_SECONDS = 400 * 86_400

_SCHEMA = """
CREATE TABLE IF NOT EXISTS policy_use (name TEXT PRIMARY KEY, first_us INTEGER NOT NULL, last_us INTEGER NOT NULL)
WITHOUT ROWID
"""
_KNOWN = "INSERT INTO policy_use (name, first_us, last_us) VALUES (?, ?, 0) ON CONFLICT (name) DO NOTHING"
_APPLIED = "UPDATE policy_use SET last_us = max(last_us, ?) WHERE name = ?"


class PolicyUse:
    """The record of one file or store. `fault` is why it could not be kept, or empty."""

    def __init__(self, place: Path | Calls) -> None:
        self._record = _File(place) if isinstance(place, Path) else _Store(place)
        self._applied: frozenset[str] = frozenset()
        self._day: Micros = -1
        self.fault = ""
        self.unused: tuple[str, ...] = ()

    def warnings(self) -> list[str]:
        """Return what an operator should know of now."""
        return [self.fault] if self.fault else []

    def note(self, names: Iterable[str], applied: Iterable[str], now: Micros) -> None:
        """Write down that of the policies `names` these have `applied` lately; does nothing where nothing is new."""
        names, met, day = tuple(names), frozenset(applied), now // (86_400 * SECOND)
        if not names or (met <= self._applied and day == self._day):
            return
        try:
            self._record.keep(names, met, now)
        except (sqlite3.Error, GatewayError) as error:
            self.fault = f"what policies apply to cannot be kept at {self._record.place} ({error})"
            return
        self.fault, self._applied, self._day = "", met, day
        self.unused = self.read(names, now)

    def read(self, names: Iterable[str], now: Micros) -> tuple[str, ...]:
        """Return those of `names` that are unused at `now`, by what is kept; none where there is no record."""
        wanted = tuple(names)
        rows: dict[str, tuple[int, int]] = {}
        with contextlib.suppress(sqlite3.Error, GatewayError):
            rows = self._record.read(wanted)
        since = now - UNUSED_AFTER
        return tuple(name for name in wanted if name in rows and max(rows[name]) <= since)


class _File:
    """When each policy was first known and last applied, in SQLite."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self.place = str(path)

    def keep(self, names: Iterable[str], met: Iterable[str], now: Micros) -> None:
        with contextlib.closing(sqlite3.connect(self._path, timeout=_BUSY_SECONDS)) as connection:
            connection.execute("PRAGMA journal_mode = WAL")
            with connection:
                connection.execute(_SCHEMA)
                connection.executemany(_KNOWN, [(name, now) for name in names])
                connection.executemany(_APPLIED, [(now, name) for name in met])

    def read(self, _names: Iterable[str]) -> dict[str, tuple[int, int]]:
        if not self._path.exists():
            return {}
        uri = f"{self._path.absolute().as_uri()}?mode=ro"
        with contextlib.closing(sqlite3.connect(uri, uri=True, timeout=_BUSY_SECONDS)) as connection:
            found = connection.execute("SELECT name, first_us, last_us FROM policy_use").fetchall()
        return {name: (first, last) for name, first, last in found}


class _Store:
    """The same in a shared store, of all processes together: within a day, who is last does not matter."""

    def __init__(self, calls: Calls) -> None:
        self._calls = calls
        self.place = calls.name
        self._first, self._last = (calls.names.key("policy-use", part) for part in ("first", "last"))

    def keep(self, names: Iterable[str], met: Iterable[str], now: Micros) -> None:
        known = [("HSETNX", self._first, name, now) for name in names]
        applied = [("HSET", self._last, name, now) for name in met]
        ends = [("EXPIRE", record, _KEPT_SECONDS) for record in (self._first, self._last)]
        for _ in self._calls.ask_all([*known, *applied, *ends]):
            pass

    def read(self, names: Iterable[str]) -> dict[str, tuple[int, int]]:
        wanted = list(names)
        if not wanted:
            return {}
        firsts, lasts = self._calls.ask_all([("HMGET", record, *wanted) for record in (self._first, self._last)])
        found = zip(wanted, firsts, lasts, strict=True)
        return {name: (int(first), int(last or 0)) for name, first, last in found if first is not None}
