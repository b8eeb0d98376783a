"""What is written of every key, read from a file: by its one writer, and by whoever sizes beside it."""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Protocol

from gateway.history.identity import TENANT, Identity
from gateway.history.packing import unpack_day
from gateway.history.provenance import read
from gateway.history.schema import reader
from gateway.history.sizer import Known, Pasts
from policies.policy import Sized
from policies.sizing_past import MEMORY_DAYS, Day, Step

__all__ = ["FilePasts", "Readable", "opened"]


class Readable(Pasts, Protocol):
    """What is written of keys, asked for one by one."""

    def of_tenant(self, tenant: str) -> list[tuple[int, Identity]]:
        """Return number and identity of a tenant as a whole, if there is one, and of its keys by name."""
        ...

    def past(self, key: int) -> tuple[list[Day], list[Step]]:
        """Return the days of a key and the numbers it had, each in order."""
        ...


class FilePasts:
    """The keys of one file. Raises sqlite3.Error as it comes."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self.connection = connection

    def pasts(self, today: int, window: int) -> Iterator[Known]:
        """Yield every key, tenants first, with the days of a window of so many days before `today`."""
        for number, first_day, identity in self.identities():
            days = self._days(number, today - max(MEMORY_DAYS, window))
            yield Known(number, first_day, identity, days, self._steps(number), self.latest(number))

    def identities(self) -> list[tuple[int, int, Identity]]:
        """Return (number, first day, identity) of every key, tenants first: keys inherit from them."""
        rows = self.connection.execute(
            "SELECT id, first_day, name, kind, tenant, credential FROM key ORDER BY kind != ?, id", (TENANT,)
        )
        return [(number, first, Identity(*rest)) for number, first, *rest in rows]

    def of_tenant(self, tenant: str) -> list[tuple[int, Identity]]:
        """Return number and identity of a tenant as a whole, if there is one, and of its keys by name."""
        rows = self.connection.execute(
            "SELECT id, name, kind, tenant, credential FROM key WHERE tenant = ? ORDER BY credential", (tenant,)
        )
        return [(number, Identity(*rest)) for number, *rest in rows]

    def past(self, key: int) -> tuple[list[Day], list[Step]]:
        """Return the days of a key and the numbers it had, each in order."""
        return sorted(self._days(key, 0), key=lambda day: day.number), self._steps(key)

    def numbers(self) -> dict[str, Sized]:
        """Return the latest number of every key, as it was written."""
        found = {}
        for number, _, identity in self.identities():
            latest = self.latest(number)
            if latest is not None:
                found[identity.name] = read(latest[1])
        return found

    def latest(self, key: int) -> tuple[int, str] | None:
        """Return the day and the text of the latest number."""
        row = self.connection.execute(
            "SELECT day, sized FROM step WHERE key = ? ORDER BY day DESC LIMIT 1", (key,)
        ).fetchone()
        return (row[0], row[1]) if row else None

    def _days(self, key: int, since: int) -> list[Day]:
        rows = self.connection.execute("SELECT day, summary FROM day WHERE key = ? AND day >= ?", (key, since))
        return [unpack_day(day, summary) for day, summary in rows]

    def _steps(self, key: int) -> list[Step]:
        rows = self.connection.execute("SELECT day, rate, burst FROM step WHERE key = ? ORDER BY day", (key,))
        return [Step(*row) for row in rows]


@contextlib.contextmanager
def opened(path: Path) -> Iterator[FilePasts]:
    """Open a file to read beside its writer. Raises GatewayError if there is nothing to read."""
    with contextlib.closing(reader(path)) as connection:
        yield FilePasts(connection)
