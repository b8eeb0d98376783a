"""What a history has written, for whoever asks. Every question stands for itself; any thread may ask."""

from __future__ import annotations

import contextlib
import sqlite3
from abc import ABC, abstractmethod
from contextlib import AbstractContextManager
from functools import partial
from pathlib import Path

from gateway.errors import GatewayError
from gateway.history.identity import Identity
from gateway.history.pasts import Readable, opened
from gateway.history.provenance import read
from gateway.history.recount import Opener
from gateway.history.schema import reader
from gateway.history.series import Series, file_source
from policies.policy import Sized

__all__ = ["Archive", "FileArchive"]


class Archive(ABC):
    """All questions raise GatewayError where there is nothing to read; `number` and `seen` then know nobody."""

    #: The stored series.
    series: Series
    #: Opens what is written of keys in another process, None where only this one can.
    opener: Opener | None

    @abstractmethod
    def pasts(self) -> AbstractContextManager[Readable]:
        """Open what is written of keys."""

    @abstractmethod
    def number(self, identity: Identity, day: int | None) -> Sized | None:
        """Return the number of a key that held on a day, or the latest."""

    @abstractmethod
    def seen(self, identity: Identity) -> bool:
        """Return whether anything is known of a key."""


class FileArchive(Archive):
    """The archive of a file, which need not be there yet; None is a history that only its process has."""

    def __init__(self, path: Path | None) -> None:
        self._path = path
        self.series = Series(partial(file_source, path))
        self.opener = None if path is None else partial(opened, path.absolute())

    def pasts(self) -> AbstractContextManager[Readable]:
        """Open what is written of keys."""
        if self._path is None:
            raise GatewayError("the history of this process is kept in memory only")
        return opened(self._path)

    def number(self, identity: Identity, day: int | None) -> Sized | None:
        """Return the number of a key that held on a day, or the latest."""
        row = self._row(
            "SELECT step.sized FROM step JOIN key ON key.id = step.key WHERE key.name = ? AND step.day <= ? "
            "ORDER BY step.day DESC LIMIT 1",
            (identity.name, 2**31 if day is None else day),
        )
        return None if row is None else read(row)

    def seen(self, identity: Identity) -> bool:
        """Return whether anything is known of a key."""
        return self._row("SELECT name FROM key WHERE name = ?", (identity.name,)) is not None

    def _row(self, query: str, values: tuple[object, ...]) -> str | None:
        if self._path is None or not self._path.exists():
            return None
        try:
            with contextlib.closing(reader(self._path)) as connection:
                row = connection.execute(query, values).fetchone()
        except sqlite3.Error as error:
            raise GatewayError(f"{self._path}: the history cannot be read: {error}") from error
        return None if row is None else str(row[0])
