"""The registry of CI jobs whose opaque tokens (`evh_job_...`) are good: in SQLite, with a copy in memory.

Rules
1. A job is registered and ended on the admin listener's threads. What the data plane reads, `live`, is a dict that only
   ever gains or loses whole entries, or is replaced: no lock stands between a request and its decision.
2. It is on disk before its token is told, and off the disk before its end is confirmed: a restart forgets no job and
   revives none. Only the SHA-256 of a token is kept.
3. Another process with the same file sees a change within `POLL_SECONDS`.
4. Bounded: `MAX_JOBS` at a time, each at most `MAX_TTL`.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import secrets
import sqlite3
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from gateway.clock import Clock
from gateway.errors import GatewayError
from gateway.identity.pat import JOB_PREFIX, mint
from policies.units import SECOND, Micros

__all__ = ["DEFAULT_TTL", "MAX_JOBS", "MAX_TTL", "POLL_SECONDS", "Job", "JobRegistry", "RegistryError"]

DEFAULT_TTL: Micros = 3600 * SECOND
#: The longest time-out of a job that CI systems let one set is a month; a week is long for a secret in a log.
MAX_TTL: Micros = 7 * 86_400 * SECOND
MAX_JOBS = 100_000
POLL_SECONDS = 2.0
_BUSY_SECONDS = 5.0

_SCHEMA = """
CREATE TABLE IF NOT EXISTS jobs (
  id TEXT PRIMARY KEY, digest BLOB NOT NULL UNIQUE, tenant TEXT NOT NULL, project TEXT NOT NULL, job TEXT NOT NULL,
  expires_us INTEGER NOT NULL
) WITHOUT ROWID
"""
_INSERT = "INSERT INTO jobs (digest, id, tenant, project, job, expires_us) VALUES (?, ?, ?, ?, ?, ?)"
_SELECT = "SELECT digest, id, tenant, project, job, expires_us FROM jobs WHERE expires_us > ?"


class RegistryError(GatewayError):
    """The registry cannot keep what it is given; nothing was changed."""


class Job(NamedTuple):
    """One job that was registered, until `expires_us` of the wall clock."""

    id: str
    tenant: str
    project: str
    job: str
    expires_us: Micros


class JobRegistry:
    """The jobs of one file, which comes into being with the first of them."""

    def __init__(self, path: Path, clock: Clock) -> None:
        self._path = path
        self._clock = clock
        self._lock = threading.Lock()
        self._watched: sqlite3.Connection | None = None
        self._version: int | None = None
        #: By the SHA-256 of the token. To be read by anybody, changed by nobody else.
        self.live: dict[bytes, Job] = {}
        self.fault = ""

    def warning(self) -> str | None:
        """Return what an operator should know of now."""
        return f"the registry of jobs at {self._path} cannot be read: {self.fault}" if self.fault else None

    def register(self, tenant: str, project: str, job: str, ttl_us: Micros) -> tuple[Job, str]:
        """Register a job and return it with its token, which is not kept. Raises RegistryError."""
        token = mint(prefix=JOB_PREFIX)
        made = Job(f"job-{secrets.token_hex(8)}", tenant, project, job, self._clock.wall() + min(ttl_us, MAX_TTL))
        digest = hashlib.sha256(token.encode()).digest()
        with self._lock:
            self._forget_ended()
            if len(self.live) >= MAX_JOBS:
                raise RegistryError(f"there are {MAX_JOBS} jobs already; end some of them")
            with self._opened() as connection:
                connection.execute("DELETE FROM jobs WHERE expires_us <= ?", (self._clock.wall(),))
                connection.execute(_INSERT, (digest, *made))
            self.live[digest] = made
        return made, token

    def end(self, id: str) -> bool:
        """End a job now; return whether there was one. Raises RegistryError."""
        with self._lock:
            if not self._path.exists():
                return False
            with self._opened() as connection:
                ended = connection.execute("DELETE FROM jobs WHERE id = ?", (id,)).rowcount
            self.live = {digest: job for digest, job in self.live.items() if job.id != id}
            return ended > 0

    def load(self) -> None:
        """Read the file as it is now."""
        if not self._path.exists():
            return
        with self._lock:
            try:
                with self._opened() as connection:
                    rows = connection.execute(_SELECT, (self._clock.wall(),)).fetchall()
            except RegistryError as error:
                self.fault = str(error)
                return
            self.fault = ""
            self.live = {digest: Job(*fields) for digest, *fields in rows}

    async def run(self) -> None:
        """Follow what other processes do, until cancelled."""
        try:
            while True:
                await asyncio.sleep(POLL_SECONDS)
                self._poll()
        finally:
            if self._watched is not None:
                self._watched.close()
                self._watched = None

    def _poll(self) -> None:
        """Load if somebody wrote; SQLite counts that for each connection (`PRAGMA data_version`)."""
        if self._watched is None and self._path.exists():
            with contextlib.suppress(sqlite3.Error):
                self._watched = sqlite3.connect(self._path, timeout=_BUSY_SECONDS, isolation_level=None)
        if self._watched is not None:
            with contextlib.suppress(sqlite3.Error):
                (version,) = self._watched.execute("PRAGMA data_version").fetchone()
                if version != self._version:
                    self.load()
                self._version = version
        with self._lock:
            self._forget_ended()

    def _forget_ended(self) -> None:
        wall = self._clock.wall()
        for digest in [digest for digest, job in self.live.items() if job.expires_us <= wall]:
            del self.live[digest]

    @contextlib.contextmanager
    def _opened(self) -> Iterator[sqlite3.Connection]:
        """Open the file for one transaction. Raises RegistryError."""
        try:
            with contextlib.closing(sqlite3.connect(self._path, timeout=_BUSY_SECONDS)) as connection:
                connection.execute("PRAGMA journal_mode = WAL")
                connection.execute(_SCHEMA)
                with connection:
                    yield connection
        except sqlite3.Error as error:
            raise RegistryError(f"the registry cannot be written ({error})") from error
