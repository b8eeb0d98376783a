"""Acts of operators on the running gateway: pauses, exemptions, postures, each with an end, in SQLite and in memory.

Rules
1. An act is on disk before it is confirmed, and off before its end is: a restart forgets none and revives none. None is
   ever written to gateway.toml.
2. `version` goes up with every change, an end by the clock included; whoever decides compares it and asks `over` again.
3. Another process with the same file sees a change within the second or two until its next `poll`.
4. Bounded: `MAX_ACTS` at a time. What has ended is kept `KEPT` longer, to be looked up.
"""

from __future__ import annotations

import contextlib
import secrets
import sqlite3
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import orjson

from gateway.clock import Clock
from gateway.config.acts import ActKind, build_act, read_act
from gateway.errors import ConfigError, GatewayError
from policies.policy import Exemption, Pause, PolicySet, PostureAct
from policies.units import SECOND, Micros

__all__ = ["KEPT", "MAX_ACTS", "Act", "ActError", "Acts"]

MAX_ACTS = 1000
KEPT: Micros = 90 * 86_400 * SECOND
_BUSY_SECONDS = 5.0

_SCHEMA = """
CREATE TABLE IF NOT EXISTS acts (
  id TEXT PRIMARY KEY, kind TEXT NOT NULL, members TEXT NOT NULL, made_us INTEGER NOT NULL, expires_us INTEGER NOT NULL,
  ended_us INTEGER
) WITHOUT ROWID
"""
_SELECT = """
SELECT id, kind, members, made_us, expires_us FROM acts WHERE ended_us IS NULL AND expires_us > ? ORDER BY made_us, id
"""


class ActError(GatewayError):
    """The act cannot be kept; nothing was changed."""


class Act(NamedTuple):
    """One act in force until `expires_us` of the wall clock. `members` are those of gateway.toml."""

    id: str
    kind: ActKind
    members: dict[str, Any]
    made_us: Micros
    expires_us: Micros


class Acts:
    """The acts of one file, which comes into being with the first of them. Any thread may call."""

    def __init__(self, path: Path, clock: Clock) -> None:
        self._path = path
        self._clock = clock
        self._lock = threading.Lock()
        self._watched: sqlite3.Connection | None = None
        self._seen: int | None = None
        self.current: tuple[Act, ...] = ()
        self.version = 0
        self.fault = ""

    def warnings(self) -> list[str]:
        """Return what an operator should know of now."""
        return [f"the acts at {self._path} cannot be read: {self.fault}"] if self.fault else []

    def add(self, kind: ActKind, asked: object, policies: PolicySet) -> Act:
        """Keep an act. Raises ConfigError with what is wrong with it, ActError where it cannot be kept."""
        id = f"{kind}-{secrets.token_hex(4)}"
        now = self._clock.wall()
        members, expires = read_act(kind, asked, id, policies, now)
        act = Act(id, kind, dict(members), now, expires)
        with self._lock:
            self._forget_ended(now)
            if len(self.current) >= MAX_ACTS:
                raise ActError(f"there are {MAX_ACTS} acts already; end some of them")
            row = (act.id, kind, orjson.dumps(act.members).decode(), act.made_us, act.expires_us)
            with self._opened() as connection:
                connection.execute(
                    "DELETE FROM acts WHERE min(expires_us, ifnull(ended_us, expires_us)) < ?", (now - KEPT,)
                )
                connection.execute(
                    "INSERT INTO acts (id, kind, members, made_us, expires_us) VALUES (?, ?, ?, ?, ?)", row
                )
            self._become((*self.current, act))
        return act

    def end(self, kind: ActKind, id: str) -> Act | None:
        """End an act now and return it; None if there is no such act. Raises ActError."""
        with self._lock:
            act = next((act for act in self.current if (act.kind, act.id) == (kind, id)), None)
            if act is None:
                return None
            with self._opened() as connection:
                connection.execute("UPDATE acts SET ended_us = ? WHERE id = ?", (self._clock.wall(), id))
            self._become(tuple(one for one in self.current if one is not act))
            return act

    def of(self, kind: ActKind) -> list[Act]:
        """Return the acts of a kind that are in force, the oldest first."""
        now = self._clock.wall()
        return [act for act in self.current if act.kind == kind and act.expires_us > now]

    def ids(self) -> dict[str, str]:
        """Return the ids of the acts in force by the names of what they made."""
        return {act.members["name"]: act.id for act in self.current}

    def over(self, policies: PolicySet) -> PolicySet:
        """Return `policies` with these acts in force instead of any before."""
        documents = [document for act in self.current if (document := _built(act, policies)) is not None]
        kept = tuple(exemption for exemption in policies.exemptions if not exemption.act)
        return replace(
            policies,
            exemptions=kept + tuple(one for one in documents if isinstance(one, Exemption)),
            pauses=tuple(one for one in documents if isinstance(one, Pause)),
            posture_acts=tuple(one for one in documents if isinstance(one, PostureAct)),
        )

    def poll(self) -> None:
        """Look whether another process wrote (SQLite counts that for a connection), and forget what has ended."""
        with self._lock:
            try:
                if self._watched is None and self._path.exists():
                    self._watched = sqlite3.connect(self._path, timeout=_BUSY_SECONDS, check_same_thread=False)
                if self._watched is not None:
                    (seen,) = self._watched.execute("PRAGMA data_version").fetchone()
                    if seen != self._seen:
                        self._read()
                        self._seen = seen
            except (sqlite3.Error, ActError) as error:
                self.fault = str(error)
            self._forget_ended(self._clock.wall())

    def close(self) -> None:
        """Let go of the file."""
        with self._lock:
            if self._watched is not None:
                self._watched.close()
                self._watched = None

    def _read(self) -> None:
        with self._opened() as connection:
            rows = connection.execute(_SELECT, (self._clock.wall(),)).fetchall()
        self.fault = ""
        found = tuple(Act(id, kind, orjson.loads(members), made, ends) for id, kind, members, made, ends in rows)
        if found != self.current:
            self._become(found)

    def _forget_ended(self, now: Micros) -> None:
        left = tuple(act for act in self.current if act.expires_us > now)
        if len(left) != len(self.current):
            self._become(left)

    def _become(self, acts: tuple[Act, ...]) -> None:
        self.current = acts
        self.version += 1

    @contextlib.contextmanager
    def _opened(self) -> Iterator[sqlite3.Connection]:
        """Open the file for one transaction. Raises ActError."""
        try:
            with contextlib.closing(sqlite3.connect(self._path, timeout=_BUSY_SECONDS)) as connection:
                connection.execute("PRAGMA journal_mode = WAL")
                connection.execute(_SCHEMA)
                with connection:
                    yield connection
        except sqlite3.Error as error:
            raise ActError(f"the acts cannot be kept at {self._path} ({error})") from error


def _built(act: Act, policies: PolicySet) -> Pause | Exemption | PostureAct | None:
    """Return the document of an act; None of one that a version before or after this one wrote in another shape."""
    try:
        return build_act(act.kind, act.members, policies)
    except ConfigError:
        return None
