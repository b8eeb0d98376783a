"""The file: its tables, its version, and what becomes of one that is damaged.

Rules
1. One process writes a file, and holds a lock beside it while it does. A second one keeps its history in memory and
   says so.
2. The schema has a version; an older file is migrated, one of a newer version is not touched: it is set aside like a
   damaged one, and the gateway serves on.
3. What is set aside keeps its bytes under a name that says so. Nothing is ever deleted because it could not be read.
4. WAL with synchronous=NORMAL: what was committed survives the process, kill -9 included.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import sqlite3
from collections.abc import Callable, Mapping
from pathlib import Path

from gateway.errors import GatewayError

__all__ = ["VERSION", "Lock", "connect", "history_path", "migrate", "reader", "set_aside"]

VERSION = 2
#: Files up to this size are looked through when they are opened; larger ones show their damage when they are read.
_CHECKED_BYTES = 64 << 20

_TABLES_1 = """
CREATE TABLE meta (name TEXT PRIMARY KEY, value) WITHOUT ROWID;
CREATE TABLE meaning (id INTEGER PRIMARY KEY, tally INTEGER NOT NULL, "limit" TEXT NOT NULL, UNIQUE (tally, "limit"));
CREATE TABLE key (
  id INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE, kind TEXT NOT NULL, tenant TEXT NOT NULL,
  credential TEXT NOT NULL, first_day INTEGER NOT NULL, last_day INTEGER NOT NULL
);
CREATE INDEX key_tenant ON key (tenant);
CREATE TABLE slot (
  slot INTEGER NOT NULL, key INTEGER NOT NULL, counts BLOB, peak BLOB, PRIMARY KEY (slot, key)
) WITHOUT ROWID;
CREATE TABLE five (slot INTEGER NOT NULL, key INTEGER NOT NULL, counts BLOB, PRIMARY KEY (slot, key)) WITHOUT ROWID;
CREATE TABLE total (day INTEGER NOT NULL, key INTEGER NOT NULL, counts BLOB, PRIMARY KEY (day, key)) WITHOUT ROWID;
CREATE TABLE hours (key INTEGER NOT NULL, day INTEGER NOT NULL, hours BLOB, PRIMARY KEY (key, day)) WITHOUT ROWID;
CREATE TABLE day (key INTEGER NOT NULL, day INTEGER NOT NULL, summary BLOB, PRIMARY KEY (key, day)) WITHOUT ROWID;
CREATE TABLE step (
  key INTEGER NOT NULL, day INTEGER NOT NULL, rate INTEGER NOT NULL, burst REAL NOT NULL, sized TEXT NOT NULL,
  PRIMARY KEY (key, day)
) WITHOUT ROWID;
"""

#: From each version to the next.
_MIGRATIONS: Mapping[int, str] = {
    0: _TABLES_1,
    # Purges go by day over all keys.
    1: "CREATE INDEX day_day ON day (day); CREATE INDEX hours_day ON hours (day);",
}


def history_path(store: Path) -> Path:
    """Return where the history of a `[store] path` is kept: beside it, so that neither is lost with the other.

    It is written every five seconds, which the watchers of the registries in the other file need not see.
    """
    return store.with_name(f"{store.stem}-history{store.suffix}")


class Lock:
    """A file beside the database that its writer holds."""

    def __init__(self, path: Path) -> None:
        self._fd = os.open(f"{path}-lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(self._fd)
            raise

    def release(self) -> None:
        """Let another process write."""
        os.close(self._fd)


def connect(path: Path | None) -> sqlite3.Connection:
    """Open `path` to write, None for a history in memory. Raises sqlite3.Error if it is no file of ours."""
    connection = sqlite3.connect(":memory:" if path is None else path, isolation_level=None, check_same_thread=False)
    try:
        _check(connection, path)
        connection.execute("PRAGMA auto_vacuum = INCREMENTAL")
        connection.execute("PRAGMA page_size = 8192")
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("PRAGMA synchronous = NORMAL")
        connection.execute("PRAGMA busy_timeout = 2000")
        migrate(connection)
    except BaseException:
        connection.close()
        raise
    if path is not None:
        path.chmod(0o600)
    return connection


def _check(connection: sqlite3.Connection, path: Path | None) -> None:
    """Look without touching anything. Raises sqlite3.DatabaseError if this is no file for us."""
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    if version > VERSION:
        raise sqlite3.DatabaseError(f"its schema is of version {version}, and {VERSION} is what this gateway knows")
    if path is not None and path.stat().st_size <= _CHECKED_BYTES:
        (verdict,) = connection.execute("PRAGMA quick_check(1)").fetchone()
        if verdict != "ok":
            raise sqlite3.DatabaseError(verdict)


def migrate(connection: sqlite3.Connection) -> None:
    """Bring the schema to VERSION, each step whole or not at all."""
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    for step in range(version, VERSION):
        connection.executescript(f"BEGIN; {_MIGRATIONS[step]} PRAGMA user_version = {step + 1}; COMMIT;")


def reader(path: Path) -> sqlite3.Connection:
    """Open `path` to read beside its writer. Raises GatewayError if there is nothing to read."""
    if not path.exists():
        raise GatewayError(f"{path}: no history has been kept here yet")
    try:
        connection = sqlite3.connect(f"file:{_quoted(path)}?mode=ro", uri=True, check_same_thread=False)
        (version,) = connection.execute("PRAGMA user_version").fetchone()
    except sqlite3.Error as error:
        raise GatewayError(f"{path}: the history cannot be read: {error}") from error
    if version != VERSION:
        connection.close()
        raise GatewayError(f"{path}: version {version} of the schema, expected {VERSION}")
    return connection


def _quoted(path: Path) -> str:
    return str(path.absolute()).replace("%", "%25").replace("?", "%3f").replace("#", "%23")


def set_aside(path: Path, stamp: str) -> Path:
    """Rename a file that cannot be used, with what belongs to it, and return its new name."""
    return _renamed(path, f".damaged-{stamp}", os.replace)


def _renamed(path: Path, ending: str, rename: Callable[[Path, Path], None]) -> Path:
    aside = path.with_name(path.name + ending)
    for part in ("", "-wal", "-shm"):
        with contextlib.suppress(FileNotFoundError):
            rename(path.with_name(path.name + part), aside.with_name(aside.name + part))
    return aside
