"""History in a file, of one process.

Rules
1. One thread, which alone owns the connection that writes. The next start says from when what was counted is lost.
2. A file that cannot be used is set aside and a new one begun; where none can be kept, history is in memory.
3. A slot is written twice: two seconds after it is half over, and two after its end, when telemetry has closed it too.
"""

from __future__ import annotations

import logging
import sqlite3
import time
from collections.abc import Callable, Mapping
from pathlib import Path

from gateway.clock import Clock
from gateway.history.archive import Archive, FileArchive
from gateway.history.books import Books
from gateway.history.intake import Intake
from gateway.history.keeper import FLUSH_SECONDS, History, day_of
from gateway.history.meter import SLOT_SECONDS
from gateway.history.schema import Lock, connect, set_aside
from gateway.history.sizer import Basis, Row
from policies.policy import PolicySet, Sized
from policies.units import SECOND

__all__ = ["FileHistory"]

_LOG = logging.getLogger("evenhand.history")

#: After the middle of a slot and its end, until it is written.
_AFTER_SECONDS = 2


class FileHistory(History):
    """The history of one process; `path` None keeps it in memory."""

    def __init__(
        self,
        path: Path | None,
        max_keys: int,
        clock: Clock,
        policies: Callable[[], PolicySet],
        apply: Callable[[Mapping[str, Sized]], None] = lambda _: None,
    ) -> None:
        super().__init__(max_keys, clock, policies, apply)
        self.path = path
        self._lock: Lock | None = None
        self._flushed = 0
        self._books: Books
        self._intake: Intake

    @property
    def archive(self) -> Archive:
        """The file's."""
        return FileArchive(self.path)

    def open(self) -> Mapping[str, Sized]:
        """Open the file, whatever has become of it, and return the numbers that it holds."""
        now = self._clock.now() // SECOND
        self._books = self._open(now)
        self._intake = Intake(self._books, self._policies, now)
        self._crashed(now)
        self._books.resume(now // SLOT_SECONDS)
        self._books.note("open", 1)
        self._numbers.sized = self._books.numbers()
        self._wanted.set()
        return self._numbers.sized

    def turn(self, now: int) -> None:
        """Do what is due at `now` (epoch seconds): the thread's round, also for tests."""
        if (now - _AFTER_SECONDS) // FLUSH_SECONDS != (self._flushed - _AFTER_SECONDS) // FLUSH_SECONDS:
            self._flushed = now
            self._guarded(lambda: self._flush(now))
        if self._numbers.ready and (self._wanted.is_set() or self._numbers.again or self._due(now)):
            self._wanted.clear()
            self._numbers.begin(self._books, self._books.held, self.archive.opener, day_of(now))
        if self._numbers.running:
            self._guarded(lambda: self._slice(now))

    def _undo(self) -> None:
        self._books.end(well=False)

    def _finish(self) -> None:
        self._guarded(self._close)
        self._books.connection.close()
        if self._lock is not None:
            self._lock.release()

    def _guarded(self, act: Callable[[], None]) -> None:
        """Run a piece of work; what fails is told, and never ends the thread."""
        try:
            act()
        except sqlite3.OperationalError as error:
            self._books.end(well=False)
            self._put_off()
            self._fault("write", f"history: cannot write {self.path}: {error}; what is counted meanwhile is lost")
        except sqlite3.DatabaseError as error:
            self._numbers.stop()
            self._books.connection.close()
            self._replace(error)
        else:
            if self._faults.pop("write", None):
                _LOG.warning("history: %s can be written again", self.path)

    def _flush(self, now: int) -> None:
        books = self._books
        books.begin()
        for slot in self.meter.take_closed():
            self._intake.close(slot)
        while self._inbox:
            self._intake.tenants(*self._inbox.popleft())
        written = self._under_way(now)
        self._intake.seal(now)
        self._fold(now)
        books.note("written", written)
        books.end(well=True)

    def _under_way(self, now: int) -> int:
        """Write the slot under way if it is half over; return up to when all is written."""
        slot, begins = self.meter.slot, now // SLOT_SECONDS * SLOT_SECONDS
        if now - begins < FLUSH_SECONDS and slot.number * SLOT_SECONDS == begins:
            return begins
        self._intake.counts(slot)
        current = self.tenants_now()
        if current is not None:
            self._intake.tenants(*current)
        return now

    def _fold(self, now: int) -> None:
        """Add up the five minutes that are over; of a long absence only what is still kept by the slot."""
        last = (now - 2 * FLUSH_SECONDS - 10) // 300
        first = max(self._books.meta("five"), last - 288)
        if first < last:
            for five in range(first, last):
                self._books.fold(five)
            self._books.note("five", last)

    def _due(self, now: int) -> bool:
        return self._books.meta("day") < day_of(now)

    def _slice(self, now: int) -> None:
        if self._numbers.step(self._keep):
            self._sized_all(now)

    def _put_off(self) -> None:
        if self._numbers.running:
            self._numbers.put_off()

    def _keep(self, rows: list[Row]) -> None:
        self._books.begin()
        self._books.keep(rows)
        self._books.end(well=True)

    def _sized_all(self, now: int) -> None:
        self._books.begin()
        self._books.note("day", day_of(now))
        self._books.note("sized", self._clock.now() // SECOND)
        self._books.purge(now, self._listed(), Basis.of(self._policies()).window)
        self._books.end(well=True)
        self._numbers.told(day_of(now))

    def _close(self) -> None:
        now = self._clock.now() // SECOND
        self.meter.turn((now + SLOT_SECONDS) * SECOND)
        self._flush(now)
        self._books.note("open", 0)

    # The file

    def _open(self, now: int) -> Books:
        if self.path is None:
            return Books(connect(None), self._max_keys)
        try:
            self._lock = self._lock or Lock(self.path)
            return Books(connect(self.path), self._max_keys)
        except BlockingIOError:
            self._fault("file", f"history: another process writes {self.path}; this one keeps its own in memory only")
        except (sqlite3.OperationalError, OSError) as error:
            self._fault("file", f"history: cannot open {self.path}: {error}; it is kept in memory only")
        except sqlite3.DatabaseError as error:
            return self._begin_anew(error, now)
        self.path = None
        return Books(connect(None), self._max_keys)

    def _begin_anew(self, error: sqlite3.Error, now: int) -> Books:
        path = self.path
        if path is None:
            return Books(connect(None), self._max_keys)
        stamp = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime(now))
        try:
            aside = set_aside(path, stamp)
            books = Books(connect(path), self._max_keys)
        except (sqlite3.Error, OSError) as worse:
            self._fault(
                "file", f"history: {path} is damaged ({error}) and cannot be replaced ({worse}); kept in memory"
            )
            self.path = None
            return Books(connect(None), self._max_keys)
        self._fault(
            "file", f"history: {path} was damaged ({error}); it is set aside as {aside}, and a new one is begun"
        )
        return books

    def _replace(self, error: sqlite3.Error) -> None:
        """Go on with a new file, the numbers in force kept."""
        now = self._clock.now() // SECOND
        self._books = self._begin_anew(error, now)
        self._intake = Intake(self._books, self._policies, now)
        self._books.note("open", 1)

    def _crashed(self, now: int) -> None:
        written = self._books.meta("written")
        if self._books.meta("open") and written:
            self.lost = (written, min(written + 2 * FLUSH_SECONDS, now))
            _LOG.warning(
                "history: the last process ended without a stop; complete to %s; the at most 10 s after that are lost",
                time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(written)),
            )
