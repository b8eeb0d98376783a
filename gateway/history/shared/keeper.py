"""History in a shared store: every process counts, one at a time adds up and sizes, all of them know.

    each process   slots --every 5 s--> counts:SLOT        numbers <--when the version changes-- latest
    who leads      counts of all --once all have written--> slot, peak, hours, five, total; once a day: numbers

Rules
1. What is counted waits in the process until the store has it: an hour of it, if need be. A process that dies takes at
   most the last seconds with it; for what it had written nobody waits longer than `_PATIENCE_SECONDS`.
2. A slot is added up once every process that lives has written it, so peaks are peaks of the sum. What comes later than
   that is lost, and told.
3. Who leads is settled on the store's clock, and who led before writes nowhere (`lead.py`). Whatever fails on the way,
   the lead is laid down, and begun again from what is written. What was sized by then, on the same terms, is not sized
   again.
"""

from __future__ import annotations

import logging
import secrets
import time
from collections import deque
from collections.abc import Callable, Mapping

from gateway.clock import Clock
from gateway.history.archive import Archive
from gateway.history.books import FIVE, Counts
from gateway.history.intake import Intake
from gateway.history.keeper import FLUSH_SECONDS, History, day_of
from gateway.history.meter import SLOT_SECONDS, Slot
from gateway.history.numbers import breathing
from gateway.history.packing import readable, whole
from gateway.history.shared.archive import SharedArchive
from gateway.history.shared.books import SharedBooks
from gateway.history.shared.counting import fields, merged
from gateway.history.shared.lead import LEASE_MS, FencedError, Lead
from gateway.history.shared.pasts import Directory, SharedPasts
from gateway.history.shared.records import KEPT, Records
from gateway.history.sizer import Basis, Row
from gateway.stores.calls import CallError, Calls, Spell, Word
from policies.policy import PolicySet, Sized
from policies.sizing_past import DAY_US
from policies.units import SECOND

__all__ = ["SharedHistory"]

_LOG = logging.getLogger("evenhand.history")

#: After a slot, until telemetry has closed it too.
_SLACK_SECONDS = 4
#: How long a process may be silent, while the store answers, before nobody waits for it any more.
_PATIENCE_SECONDS = 20.0
#: Age of a slot that is added up whoever has not written it.
_OLD_SECONDS = 90
#: Chunks beyond those there are whose fences are raised: whoever led before may be about to begin them.
_BEYOND = 20
_SLOTS_AT_ONCE = 30
#: Slots that may be waiting to be added up while keys are sized.
_BEHIND = 6
_MAX_WAITING = 360


class SharedHistory(History):
    """The history of one of the processes that have a store in common."""

    def __init__(
        self,
        calls: Calls,
        max_keys: int,
        clock: Clock,
        policies: Callable[[], PolicySet],
        apply: Callable[[Mapping[str, Sized]], None] = lambda _: None,
        lease_ms: int = LEASE_MS,
    ) -> None:
        super().__init__(max_keys, clock, policies, apply)
        self._calls = calls
        self._records = Records(calls.names)
        self._process = secrets.token_hex(6)
        self._lead = Lead(calls, self._process, lease_ms)
        self._directory = Directory(calls)
        self._archive = SharedArchive(calls, self._directory)
        self._slots: deque[Slot] = deque(maxlen=_MAX_WAITING)
        self._tenants: deque[tuple[int, list[tuple[str, Counts]]]] = deque(maxlen=_MAX_WAITING)
        self._books: SharedBooks | None = None
        self._intake: Intake | None = None
        self._flushed = self._polled = self._version = self._asked = self._late = self._token = self._basis = (
            self._day
        ) = 0
        self._led_since = 0.0
        self._outage = Spell(_LOG)
        self._tried = 0
        #: What each process has written up to, and since when it says so; of a store that answers.
        self._heard: dict[bytes, tuple[int, float]] = {}

    @property
    def archive(self) -> Archive:
        """The store's."""
        return self._archive

    @property
    def leads(self) -> bool:
        """True while this process adds up and sizes for all."""
        return self._books is not None

    def warnings(self) -> list[str]:
        """Return what an operator should know, one sentence each; from any thread."""
        late = f"history: {self._late} slots of ten seconds came too late to be added up"
        return super().warnings() + ([late] if self._late else [])

    def open(self) -> Mapping[str, Sized]:
        """Return the numbers that the store holds; none if it does not answer now, and they come later."""
        try:
            self._version = whole(self._calls.ask("HGET", self._records.meta, "version"))
            pasts = SharedPasts(self._calls, self._directory)
            self._numbers.sized = dict(breathing(pasts.texts()))
        except CallError as error:
            self._version = -1
            self._lose(error)
        return self._numbers.sized

    def turn(self, now: int) -> None:
        """Do what is due at `now` (epoch seconds): the thread's round, also for tests."""
        if "store" in self._faults and now == self._tried:
            return
        try:
            if now - self._flushed >= FLUSH_SECONDS:
                self._write(now)
                self._flushed = now
            due = now != self._polled
            if due:
                self._polled = now
                self._poll(now)
            if self._books is not None and self._intake is not None:
                if due:
                    self._add_up(self._books, self._intake, now)
                self._size(self._books, now)
        except FencedError:
            self._lay_down()
        except CallError as error:
            self._lay_down()
            self._lose(error)
            self._tried, self._flushed, self._polled = now, 0, 0  # all of it, a second later
        else:
            self._find(now)

    def _lose(self, error: CallError) -> None:
        told = f"history: {error} ([store] url); what is counted waits in this process, at most an hour of it"
        self._faults["store"] = told
        self._outage.begin(told)

    def _find(self, now: int) -> None:
        """Note that the store answers again, once it has answered to a whole round."""
        if "store" in self._faults and self._flushed == self._polled == now:
            del self._faults["store"]
            self._outage.end("history: the shared store answers again; what waited is written")

    def _undo(self) -> None:
        self._lay_down()

    def _finish(self) -> None:
        now = self._clock.now() // SECOND
        self.meter.turn((now + SLOT_SECONDS) * SECOND)
        try:
            self._write(now)
            self._calls.ask("HDEL", self._records.processes, self._process)
            self._lead.release()
        except CallError as error:
            self._fault("store", f"history: {error}; what was counted last is lost")

    # What every process does

    def _write(self, now: int) -> None:
        """Write what was counted, the slot under way included."""
        self._slots.extend(self.meter.take_closed())
        while self._inbox:
            number, rows = self._inbox.popleft()
            self._tenants.append((number, list(rows)))
        current, tenants = self.meter.slot, self.tenants_now()
        found = [
            (slot.number, fields(self._process, slot.cells.copy().values(), ())) for slot in (*self._slots, current)
        ]
        found += [
            (number, fields(self._process, (), rows)) for number, rows in (*self._tenants, *filter(None, [tenants]))
        ]
        commands: list[tuple[Word, ...]] = []
        for number, pieces in found:
            record = self._records.counts(number)
            commands += [("HSET", record, field, blob) for field, blob in pieces]
            commands.append(("EXPIRE", record, KEPT["counts"]))
        commands.append(("HSET", self._records.processes, self._process, (now - _SLACK_SECONDS) // SLOT_SECONDS - 1))
        commands.append(("EXPIRE", self._records.processes, KEPT["processes"]))
        commands.append(("HGET", self._records.meta, "folded"))
        *_, folded = self._calls.ask_all(commands)
        closed = {slot.number for slot in self._slots} | {number for number, _ in self._tenants}
        self._late += sum(number <= whole(folded) for number in closed)
        self._slots.clear()
        self._tenants.clear()

    def _poll(self, now: int) -> None:
        """Lead, if nobody else does, and take over numbers that whoever leads has made."""
        token = self._lead.hold()
        if token != self._token:  # also if it is ours again: others led in between
            self._lay_down()
        if token and self._books is None:
            self._take_up(now, token)
        version, wanted, starved = (
            whole(value) for value in self._calls.ask("HMGET", self._records.meta, "version", "wanted", "starved")
        )
        # None is no news: a store that lost what it held takes no numbers out of force.
        if version and version != self._version and not self._numbers.running:
            self._load()
            self._version = version
        if self.leads:
            if wanted != self._asked:
                self._wanted.set()
        else:
            self._numbers.starved = starved
            self._ask_to_size()
        self._asked = wanted

    def _ask_to_size(self) -> None:
        """Tell whoever leads, if this process was told to."""
        if self._wanted.is_set():
            self._wanted.clear()
            self._calls.ask("HINCRBY", self._records.meta, "wanted", 1)
            self._calls.ask("EXPIRE", self._records.meta, KEPT["meta"])

    def _load(self) -> None:
        """Take over the numbers that are written."""
        pasts = SharedPasts(self._calls, self._directory)
        self._numbers.become(dict(breathing(pasts.texts())))

    # What the one who leads does

    def _take_up(self, now: int, token: int) -> None:
        """Begin to lead: nobody who led before may write from here on, then read where they were."""
        self._lead.fence(())
        self._directory.refresh()
        numbers = [*self._directory.entries]
        ends = [max((one // 2 for one in numbers if one & 1 == odd), default=-1) + 1 for odd in (0, 1)]
        beyond = [2 * (ends[odd] + 100 * more) + odd for odd in (0, 1) for more in range(_BEYOND)]
        self._lead.fence(Records.chunks([*numbers, *beyond]))
        books = SharedBooks(
            self._calls,
            self._lead,
            self._directory,
            self._max_keys,
            lambda: Basis.of(self._policies()).window,
            lambda: self._numbers.sized,
        )
        if not books.meta("folded"):
            self._begin_anew(books, now)
        self._heard, self._led_since, self._token = {}, time.monotonic(), token
        self._intake = Intake(books, self._policies, now)
        self._books = books
        if books.meta("basis") != Basis.of(self._policies()).digest:
            self._wanted.set()

    def _begin_anew(self, books: SharedBooks, now: int) -> None:
        """Begin in a store that is empty, with the numbers in force if there are any: then it lost them."""
        if self._numbers.sized:
            learnt = -(-self._policies().sizing.learn_us // DAY_US)
            books.restore(self._numbers.sized, day_of(now), learnt)
            _LOG.error(
                "history: %s lost what it held; the numbers of %d keys that are known here were put back",
                *(self._calls.name, len(self._numbers.sized)),
            )
        books.note("folded", now // SLOT_SECONDS - _MAX_WAITING)  # as old as anything that waited for it
        books.end()

    def _lay_down(self) -> None:
        """Lead no more."""
        self._numbers.stop()
        self._books = self._intake = None
        self._token = 0

    def _add_up(self, books: SharedBooks, intake: Intake, now: int) -> None:
        """Add up the slots that everybody has written."""
        last = self._written(now)
        first = max(books.meta("folded") + 1, now // SLOT_SECONDS - KEPT["counts"] // SLOT_SECONDS)
        slots = range(first, min(last, first + _SLOTS_AT_ONCE - 1) + 1)
        records = self._calls.ask_all([("HGETALL", self._records.counts(slot)) for slot in slots])
        for number, record in zip(slots, records, strict=True):
            if record:
                slot, tenants = merged(number, record)
                intake.close(slot)
                intake.tenants(number, tenants.items())
            intake.seal((number + 1) * SLOT_SECONDS)
            books.note("folded", number)
            border = (number + 1) % FIVE == 0
            if record or border or number == slots[-1]:
                books.end()
            if border:
                self._add_up_five(books, (number + 1) // FIVE)

    def _add_up_five(self, books: SharedBooks, ends: int) -> None:
        for five in range(max(books.meta("five"), ends - 12), ends):
            books.fold(five)
            books.note("five", five + 1)
            books.end()

    def _written(self, now: int) -> int:
        """Return up to which slot everybody who lives has written."""
        at, found = time.monotonic(), self._calls.ask("HGETALL", self._records.processes)
        for process, value in readable("processes", found.items(), lambda one: (one[0], int(one[1]))):
            slot, since = self._heard.get(process, (-1, at))
            self._heard[process] = (slot, since) if slot == value else (value, at)
        silent = [one for one, (_, since) in self._heard.items() if at - since > _PATIENCE_SECONDS or one not in found]
        for process in silent:
            slot, _ = self._heard.pop(process)
            if process in found:
                told = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime((slot + 1) * SLOT_SECONDS))
                _LOG.warning("history: a process is gone; what it counted is complete to %s", told)
            self._calls.ask("HDEL", self._records.processes, process)
        written = min((slot for slot, _ in self._heard.values()), default=0)
        old = (now - _OLD_SECONDS) // SLOT_SECONDS if at - self._led_since > _PATIENCE_SECONDS else 0
        return min(max(written, old), now // SLOT_SECONDS - 1)

    def _size(self, books: SharedBooks, now: int) -> None:
        # Not before the last hour of the day before is sealed, however late that is, nor on the way there.
        behind = now // SLOT_SECONDS - books.meta("folded") > _BEHIND
        day = 0 if behind else min(day_of(now), books.meta("sealed") // 24)
        asked = self._wanted.is_set() or self._numbers.again
        if day and self._numbers.ready and (asked or books.meta("day") < day):
            self._wanted.clear()
            self._basis, self._day = Basis.of(self._policies()).digest, day
            self._numbers.begin(SharedPasts(self._calls, self._directory), books.held, self._archive.opener, day)
        if self._numbers.running and self._numbers.step(lambda rows: self._keep(books, rows)):
            self._sized_all(books, now)

    @staticmethod
    def _keep(books: SharedBooks, rows: list[Row]) -> None:
        books.keep(rows)
        books.end()

    def _sized_all(self, books: SharedBooks, now: int) -> None:
        books.purge(now, self._listed())
        books.note("day", self._day)
        books.note("sized", self._clock.now() // SECOND)
        books.note("basis", self._basis)
        books.note("starved", self._numbers.starved)
        self._version = max(books.meta("version") + 1, self._clock.wall())
        books.note("version", self._version)
        books.end()
        self._numbers.told(self._day)
