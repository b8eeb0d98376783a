"""Registries: what an operator or a CI system puts in while the gateway runs, with an end; and every process knows.

Jobs (`identity/jobs.py`) and acts (`acts.py`) are kept here, in the file at `[store] path` (`FileRegistry`) or in a
shared store (`registry_shared.py`).

Rules
1. An entry is kept before it is confirmed, and dropped before its end is: a restart forgets none and revives none.
2. `live` is a copy in memory, which alone is asked by others, and which changes by whole entries. Another process's
   change is in it within `POLL_SECONDS`. Where it cannot be read, the copy holds on, and `fault` says why.
3. Bounded: `most` at a time.
"""

from __future__ import annotations

import contextlib
import logging
import sqlite3
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import orjson

from gateway.clock import Clock
from gateway.errors import GatewayError
from policies.units import Micros

if TYPE_CHECKING:
    from gateway.stores.calls import Calls

__all__ = ["POLL_SECONDS", "Entry", "FileRegistry", "Registry", "RegistryError", "open_registry"]

_LOG = logging.getLogger("evenhand.registry")

POLL_SECONDS = 1.0
_BUSY_SECONDS = 5.0
#: How long a start waits for what there is.
_FIRST_SECONDS = 0.5


class RegistryError(GatewayError):
    """The registry cannot keep what it is given; nothing was changed."""


class Entry(NamedTuple):
    """One thing that is kept until `expires_us` of the wall clock. `body` is what JSON can hold."""

    id: str
    body: Mapping[str, Any]
    expires_us: Micros


class Registry(ABC):
    """The entries of one name. Any thread may call."""

    def __init__(self, name: str, most: int, clock: Clock, kept_us: Micros = 0) -> None:
        self.name = name
        self.most = most
        self.clock = clock
        #: How long an entry is kept after it ended, to be looked up.
        self.kept_us = kept_us
        self.live: dict[str, Entry] = {}
        #: Goes up with every change, an end by the clock included.
        self.version = 0
        self.fault = ""
        #: Called with every entry that comes into `live`, and with every one that is not there any more. One that it
        #: cannot understand (LookupError, TypeError, ValueError) does not come in.
        self.gained: Callable[[Entry], None] = _unheard
        self.lost: Callable[[Entry], None] = _unheard
        #: Called with the id of an entry that was put in here, and the entry, or that was ended, and None.
        self.told: Callable[[str, Entry | None], None] = _untold
        self._lock = threading.RLock()
        self._stopping = threading.Event()
        self._read = threading.Event()
        self._thread: threading.Thread | None = None

    @property
    @abstractmethod
    def place(self) -> str:
        """Where it is kept, in words."""

    @abstractmethod
    def _put(self, entry: Entry) -> None:
        """Keep an entry. Raises RegistryError."""

    @abstractmethod
    def _drop(self, id: str) -> bool:
        """Drop an entry; return whether there was one. Raises RegistryError."""

    @abstractmethod
    def _refresh(self) -> None:
        """Bring `live` up to date, if others changed anything. Raises RegistryError."""

    @abstractmethod
    def _close(self) -> None:
        """Let go of what is open."""

    @property
    def waiting(self) -> Collection[str]:
        """The entries that only this process knows of, because the keeper is down."""
        return ()

    def add(self, entry: Entry, *, here: bool = False) -> None:
        """Keep an entry. Raises RegistryError, also where there are `most` already.

        With `here` it holds in this process even while a shared keeper is down.
        """
        with self._lock:
            self._forget_ended()
            if len(self.live) >= self.most:
                raise self.full()
            self._put_or_hold(entry, here=here)
            self._gain(entry)
            self.told(entry.id, entry)

    def _put_or_hold(self, entry: Entry, *, here: bool) -> None:
        self._put(entry)

    def full(self) -> RegistryError:
        """Return what is told to whoever brings one more."""
        return RegistryError(f"there are {self.most} {self.name} already; end some of them")

    def end(self, id: str) -> bool:
        """End an entry now; return whether there was one. Raises RegistryError."""
        with self._lock:
            found = self._drop(id)
            self._lose(id)
            self.told(id, None)
            return found

    def hear(self, id: str, entry: Entry | None, *, waiting: bool = False) -> None:
        """Take over what another process of this instance was told first: an entry, or with None the end of one.

        With `waiting` the keeper does not know of it yet.
        """
        with self._lock:
            if entry is None:
                self._lose(id)
            else:
                self._gain(entry)

    def poll(self) -> None:
        """Look whether others changed anything, and forget what has ended."""
        with self._lock:
            try:
                self._refresh()
            except RegistryError as error:
                self.fault = str(error)
            else:
                self.fault = ""
            self._forget_ended()

    def start(self) -> None:
        """Read what there is, if that can be done soon, and follow it on a thread of its own."""
        self._thread = threading.Thread(target=self._follow, name=f"evenhand-{self.name}", daemon=True)
        self._thread.start()
        self._read.wait(_FIRST_SECONDS)

    def close(self) -> None:
        """Follow no more, and let go of what is open."""
        self._stopping.set()
        if self._thread is not None:
            self._thread.join()
        with self._lock:
            self._close()

    def _follow(self) -> None:
        while not self._stopping.is_set():
            try:
                self.poll()
            except Exception as error:  # noqa: BLE001 - a record that makes no sense must not end this for good
                _LOG.exception("a round of the registry of %s failed", self.name)
                self.fault = f"a record cannot be understood ({type(error).__name__})"
            self._read.set()
            self._stopping.wait(POLL_SECONDS)

    def _become(self, entries: Iterable[Entry]) -> None:
        """Let `live` be these."""
        found = {entry.id: entry for entry in entries}
        for id in [id for id in self.live if id not in found]:
            self._lose(id)
        for entry in found.values():
            self._gain(entry)

    def _gain(self, entry: Entry) -> None:
        if self.live.get(entry.id) != entry:
            try:
                self.gained(entry)
            except (LookupError, TypeError, ValueError) as error:
                _LOG.warning("one of the %s is passed over, since it makes no sense (%r)", self.name, error)
                return
            self.live[entry.id] = entry
            self.version += 1

    def _lose(self, id: str) -> None:
        entry = self.live.pop(id, None)
        if entry is not None:
            self.version += 1
            self.lost(entry)

    def _forget_ended(self) -> None:
        wall = self.clock.wall()
        for id in [entry.id for entry in self.live.values() if entry.expires_us <= wall]:
            self._lose(id)


def _untold(_id: str, _entry: Entry | None) -> None:
    """There is nobody else."""


def _unheard(_entry: Entry) -> None:
    """Nobody follows."""


_TABLE = """
CREATE TABLE IF NOT EXISTS registry (
  name TEXT NOT NULL, id TEXT NOT NULL, body TEXT NOT NULL, expires_us INTEGER NOT NULL, ended_us INTEGER,
  PRIMARY KEY (name, id)
) WITHOUT ROWID
"""
#: Tables of before there was one for all, and how their rows are taken over.
_BEFORE = {
    "jobs": "SELECT 'jobs', id, json_object('digest', lower(hex(digest)), 'tenant', tenant, 'project', project, "
    "'job', job), expires_us, NULL FROM jobs",
    "acts": "SELECT 'acts', id, json_object('kind', kind, 'members', json(members), 'made_us', made_us), expires_us, "
    "ended_us FROM acts",
}


class FileRegistry(Registry):
    """The entries of one name in a file, which comes into being with the first of them."""

    def __init__(self, path: Path, name: str, most: int, clock: Clock, kept_us: Micros = 0) -> None:
        super().__init__(name, most, clock, kept_us)
        self._path = path
        self._watched: sqlite3.Connection | None = None
        self._seen: int | None = None

    @property
    def place(self) -> str:
        """The path."""
        return str(self._path)

    def _put(self, entry: Entry) -> None:
        before = self.clock.wall() - self.kept_us
        with self._opened() as connection:
            connection.execute(
                "DELETE FROM registry WHERE name = ? AND min(expires_us, ifnull(ended_us, expires_us)) <= ?",
                (self.name, before),
            )
            row = (self.name, entry.id, orjson.dumps(entry.body).decode(), entry.expires_us)
            connection.execute("INSERT INTO registry (name, id, body, expires_us) VALUES (?, ?, ?, ?)", row)

    def _drop(self, id: str) -> bool:
        if not self._path.exists():
            return False
        with self._opened() as connection:
            ended = connection.execute(
                "UPDATE registry SET ended_us = ?1 "
                "WHERE name = ?2 AND id = ?3 AND ended_us IS NULL AND expires_us > ?1",
                (self.clock.wall(), self.name, id),
            )
            return ended.rowcount > 0

    def _refresh(self) -> None:
        """Read the file if somebody wrote; SQLite counts that for a connection (`PRAGMA data_version`)."""
        try:
            if self._watched is None and self._path.exists():
                self._watched = sqlite3.connect(self._path, timeout=_BUSY_SECONDS, check_same_thread=False)
            if self._watched is None:
                return
            (seen,) = self._watched.execute("PRAGMA data_version").fetchone()
        except sqlite3.Error as error:
            raise RegistryError(str(error)) from error
        if seen != self._seen:
            with self._opened() as connection:
                rows = connection.execute(
                    "SELECT id, body, expires_us FROM registry WHERE name = ? AND ended_us IS NULL AND expires_us > ?",
                    (self.name, self.clock.wall()),
                ).fetchall()
            self._become(Entry(id, orjson.loads(body), expires) for id, body, expires in rows)
            self._seen = seen

    def _close(self) -> None:
        if self._watched is not None:
            self._watched.close()
            self._watched = None

    @contextlib.contextmanager
    def _opened(self) -> Iterator[sqlite3.Connection]:
        """Open the file for one transaction. Raises RegistryError."""
        try:
            with contextlib.closing(
                sqlite3.connect(self._path, timeout=_BUSY_SECONDS, isolation_level=None)
            ) as connection:
                connection.execute("PRAGMA journal_mode = WAL")
                connection.execute("BEGIN IMMEDIATE")
                connection.execute(_TABLE)
                for table, rows in _BEFORE.items():
                    if connection.execute("SELECT 1 FROM sqlite_master WHERE name = ?", (table,)).fetchone():
                        connection.execute(f"INSERT OR IGNORE INTO registry {rows}")
                        connection.execute(f"DROP TABLE {table}")
                yield connection
                connection.execute("COMMIT")
        except sqlite3.Error as error:
            raise RegistryError(f"the {self.name} cannot be kept at {self._path} ({error})") from error


def open_registry(place: Path | Calls, name: str, most: int, clock: Clock, kept_us: Micros = 0) -> Registry:
    """Return the registry of a name in a file or a shared store; nothing is read yet."""
    if isinstance(place, Path):
        return FileRegistry(place, name, most, clock, kept_us)
    from gateway.stores.registry_shared import SharedRegistry  # noqa: PLC0415 - with the library, which few need

    return SharedRegistry(place, name, most, clock, kept_us)
