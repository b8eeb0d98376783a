"""History as the rest of the house sees it: a meter to count with, a thread that writes, numbers that come back.

Rules
1. Nothing of it runs on the data plane but the meter. Everything else is one thread, which alone owns the connection.
2. Every five seconds what was counted is written, the slot under way included: kill -9 loses less than the last ten
   seconds, and the next start says from when.
3. A file that cannot be used is set aside and a new one begun; where none can be kept, history is in memory. Both are
   warned of loudly, in the log and by /readyz. The gateway serves on in every case.
4. Sizing goes in slices of a few milliseconds with pauses in between.
"""

from __future__ import annotations

import logging
import sqlite3
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from pathlib import Path

from gateway.clock import Clock
from gateway.history.books import Books, Counts
from gateway.history.identity import tenant_identity
from gateway.history.intake import Intake
from gateway.history.meter import SLOT_SECONDS, Meter
from gateway.history.numbers import Numbers
from gateway.history.pasts import opened
from gateway.history.schema import Lock, connect, set_aside
from gateway.history.sizer import Basis, Row
from policies.policy import PolicySet, Sized
from policies.request import key_name
from policies.units import SECOND

__all__ = ["History", "TenantSlot"]

_LOG = logging.getLogger("evenhand.history")

FLUSH_SECONDS = 5
_WAKE_SECONDS = 0.25
#: After midnight UTC: the last hour of the day is sealed half an hour later.
_DAILY_SECONDS = 1810
_MAX_WAITING = 360

#: A slot's number, and what was counted of each tenant in it.
TenantSlot = tuple[int, Iterable[tuple[str, Counts]]]


class History:
    """One for a process. `policies` returns those in force; `apply` takes new numbers, from the writer's thread.

    `tenants_now` returns the slot under way by tenant, None if nothing is in it. `path` None is a history in memory.
    """

    def __init__(
        self,
        path: Path | None,
        max_keys: int,
        clock: Clock,
        policies: Callable[[], PolicySet],
        apply: Callable[[Mapping[str, Sized]], None] = lambda _: None,
    ) -> None:
        self.path = path
        self.meter = Meter(max_keys)
        self.tenants_now: Callable[[], TenantSlot | None] = lambda: None
        #: Instants (epoch seconds) between which the last crash lost what was counted; (0, 0) if there was none.
        self.lost = (0, 0)
        self._max_keys = max_keys
        self._clock = clock
        self._policies = policies
        self._numbers = Numbers(policies, apply)
        self._inbox: deque[TenantSlot] = deque(maxlen=_MAX_WAITING)
        self._faults: dict[str, str] = {}
        self._lock: Lock | None = None
        self._wanted = threading.Event()
        self._stopping = threading.Event()
        self._thread: threading.Thread | None = None
        self._flushed = 0
        self._books: Books
        self._intake: Intake

    # What others ask

    def offer(self, slot: TenantSlot) -> None:
        """Take a closed slot of tenants, from any thread."""
        self._inbox.append(slot)

    def recompute(self) -> None:
        """Size every key anew, soon; from any thread."""
        self._wanted.set()

    @property
    def sized(self) -> Mapping[str, Sized]:
        """The numbers in force, by name."""
        return self._numbers.sized

    def warnings(self) -> list[str]:
        """Return what an operator should know, one sentence each; from any thread."""
        found = list(self._faults.copy().values())
        if self._numbers.fault:
            found.append(self._numbers.fault)
        if self.meter.overflowed:
            found.append(f"history: {self.meter.overflowed} requests of keys above [store] max_keys were not counted")
        return found

    def starved(self) -> int:
        """Return how many sized keys are held back by their own limit day after day."""
        return self._numbers.starved

    # Its life

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

    def start(self) -> None:
        """Begin to write."""
        self._thread = threading.Thread(target=self._run, name="evenhand-history", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Write what is left and close; to be called when nothing is counted any more."""
        self._stopping.set()
        if self._thread is not None:
            self._thread.join()
        self._numbers.stop()
        self._guarded(self._close)
        self._books.connection.close()
        if self._lock is not None:
            self._lock.release()

    def turn(self, now: int) -> None:
        """Do what is due at `now` (epoch seconds): the thread's round, also for tests."""
        if now - self._flushed >= FLUSH_SECONDS:
            self._flushed = now
            self._guarded(lambda: self._flush(now))
        if self._numbers.ready and (self._wanted.is_set() or self._due(now)):
            self._wanted.clear()
            opener = None if self.path is None else partial(opened, self.path.absolute())
            self._numbers.begin(self._books, self._books.held, opener, _day(now))
            if not self._numbers.running:
                self._wanted.set()
        if self._numbers.running:
            self._guarded(lambda: self._slice(now))

    # The thread

    def _run(self) -> None:
        while not self._stopping.wait(0 if self._numbers.running else _WAKE_SECONDS):
            try:
                self.turn(self._clock.now() // SECOND)
            except Exception:  # noqa: BLE001 - a bug in here must not end the history for good
                _LOG.exception("history: a round failed")
                self._books.end(well=False)
                self._numbers.stop()
                self._faults["round"] = "history: a round of the writer failed; the log says how"

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
            self._tenants(self._inbox.popleft())
        self._intake.counts(self.meter.slot)
        current = self.tenants_now()
        if current is not None:
            self._tenants(current)
        self._intake.seal(now)
        self._fold(now)
        books.note("written", now)
        books.end(well=True)

    def _tenants(self, slot: TenantSlot) -> None:
        number, rows = slot
        day, listed = number // 8640, self._policies().tenants
        keyed = ((self._books.key(tenant_identity(name), day, listed=name in listed), counts) for name, counts in rows)
        self._books.counts(number, [(key, counts) for key, counts in keyed if key is not None])

    def _fold(self, now: int) -> None:
        """Add up the five minutes that are over; of a long absence only what is still kept by the slot."""
        last = (now - 2 * FLUSH_SECONDS - 10) // 300
        first = max(self._books.meta("five"), last - 288)
        if first < last:
            for five in range(first, last):
                self._books.fold(five)
            self._books.note("five", last)

    def _due(self, now: int) -> bool:
        return self._books.meta("day") < _day(now)

    def _slice(self, now: int) -> None:
        if self._numbers.step(self._keep):
            self._finish(now)
        elif not self._numbers.running:  # it failed
            self._wanted.set()

    def _put_off(self) -> None:
        if self._numbers.running:
            self._numbers.put_off()
            self._wanted.set()

    def _keep(self, rows: list[Row]) -> None:
        self._books.begin()
        self._books.keep(rows)
        self._books.end(well=True)

    def _finish(self, now: int) -> None:
        self._books.begin()
        self._books.note("day", _day(now))
        self._books.note("sized", self._clock.now() // SECOND)
        self._books.purge(now, self._listed(), Basis.of(self._policies()).window)
        self._books.end(well=True)
        self._numbers.told(_day(now))

    def _listed(self) -> Iterable[str]:
        for tenant in self._policies().tenants.values():
            yield key_name(tenant=tenant.id)
            yield from (key_name(tenant=tenant.id, credential=name) for name in tenant.credentials)

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

    def _fault(self, name: str, sentence: str) -> None:
        if self._faults.get(name) != sentence:
            _LOG.error("%s", sentence)
        self._faults[name] = sentence


def _day(now: int) -> int:
    """Return the day that numbers are made for: it begins when the last hour of the one before is sealed."""
    return (now - _DAILY_SECONDS) // 86_400
