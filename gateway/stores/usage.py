"""Which named policies have applied to anything lately: a limit that nothing meets is a mistake nobody notices.

Rules
1. A policy is *unused* when it has been known for `UNUSED_AFTER` and has applied to no request since; whether it
   refused does not matter. It is known to within a day.
2. Kept in the file at `[store] path`, because no process lives for 30 days. A file that cannot be written is told, and
   stops nothing.
"""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Iterable
from pathlib import Path

from policies.units import SECOND, Micros

__all__ = ["UNUSED_AFTER", "PolicyUse"]

UNUSED_AFTER: Micros = 30 * 86_400 * SECOND
_BUSY_SECONDS = 5.0

_SCHEMA = """
CREATE TABLE IF NOT EXISTS policy_use (name TEXT PRIMARY KEY, first_us INTEGER NOT NULL, last_us INTEGER NOT NULL)
WITHOUT ROWID
"""
_KNOWN = "INSERT INTO policy_use (name, first_us, last_us) VALUES (?, ?, 0) ON CONFLICT (name) DO NOTHING"
_APPLIED = "UPDATE policy_use SET last_us = max(last_us, ?) WHERE name = ?"


class PolicyUse:
    """The record of one file. `fault` is why it could not be kept, or empty."""

    def __init__(self, path: Path) -> None:
        self._path = path
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
            with contextlib.closing(sqlite3.connect(self._path, timeout=_BUSY_SECONDS)) as connection:
                connection.execute("PRAGMA journal_mode = WAL")
                with connection:
                    connection.execute(_SCHEMA)
                    connection.executemany(_KNOWN, [(name, now) for name in names])
                    connection.executemany(_APPLIED, [(now, name) for name in met])
        except sqlite3.Error as error:
            self.fault = f"what policies apply to cannot be kept at {self._path} ({error})"
            return
        self.fault, self._applied, self._day = "", met, day
        self.unused = self.read(names, now)

    def read(self, names: Iterable[str], now: Micros) -> tuple[str, ...]:
        """Return those of `names` that are unused at `now`, by what is on disk; none where there is no record."""
        if not self._path.exists():
            return ()
        rows: dict[str, tuple[int, int]] = {}
        uri = f"{self._path.absolute().as_uri()}?mode=ro"
        with (
            contextlib.suppress(sqlite3.Error),
            contextlib.closing(sqlite3.connect(uri, uri=True, timeout=_BUSY_SECONDS)) as connection,
        ):
            found = connection.execute("SELECT name, first_us, last_us FROM policy_use").fetchall()
            rows = {name: (first, last) for name, first, last in found}
        since = now - UNUSED_AFTER
        return tuple(name for name in names if name in rows and max(rows[name]) <= since)
