"""What is written of every key in a shared store, for whoever asks, in this process or in one that sizes beside it.

Rules
1. Who has which number only grows: what was read once is not read again (`Directory`).
2. Reading goes chunk by chunk, many commands at once; nothing here writes.
"""

from __future__ import annotations

import contextlib
import struct
import threading
from collections.abc import Iterable, Iterator, Mapping
from functools import partial
from typing import NamedTuple

import orjson

from gateway.config.sections import StoreSection
from gateway.history.identity import Identity
from gateway.history.packing import readable, unpack_day, whole
from gateway.history.shared.records import CHUNK, Records, chunk_of
from gateway.history.sizer import Known
from gateway.stores.calls import Calls
from policies.sizing_past import MEMORY_DAYS, Day, Step

__all__ = ["Directory", "Entry", "SharedPasts", "opened", "pack_steps", "unpack_latest", "unpack_steps"]

_STEP = struct.Struct("<iqd")
#: Days of which a chart may tell.
_CHARTED = 90


class Entry(NamedTuple):
    """Who has a number, and the days on which it was first and last seen."""

    identity: Identity
    first_day: int
    last_day: int

    def pack(self) -> bytes:
        """Write it."""
        return orjson.dumps([*self.identity, self.first_day, self.last_day])

    @classmethod
    def unpack(cls, blob: bytes) -> Entry:
        """Read what `pack` wrote."""
        *identity, first, last = orjson.loads(blob)
        return cls(Identity(*identity), first, last)


def pack_steps(steps: Iterable[Step]) -> bytes:
    """Write the numbers that a key had."""
    return b"".join(_STEP.pack(*step) for step in steps)


def unpack_steps(blob: bytes) -> list[Step]:
    """Read what `pack_steps` wrote."""
    return [Step(*parts) for parts in _STEP.iter_unpack(blob)]


def unpack_latest(blob: bytes) -> tuple[int, str]:
    """Return day and text of the latest number."""
    day, _, text = blob.partition(b" ")
    return int(day), text.decode()


class Directory:
    """Who has which number, as far as it was read. Any thread may call."""

    def __init__(self, calls: Calls) -> None:
        self._calls = calls
        self._records = Records(calls.names)
        self._lock = threading.Lock()
        self.entries: dict[int, Entry] = {}
        self.numbers: dict[str, int] = {}
        self._full = [0, 0]

    def refresh(self) -> None:
        """Read what is new. Raises CallError."""
        with self._lock:
            for odd in (0, 1):
                self._read(odd)

    def learn(self, entries: Mapping[int, Entry]) -> None:
        """Take over what was just written."""
        for number, entry in entries.items():
            self.entries[number] = entry
            self.numbers[entry.identity.name] = number

    def forget(self, number: int) -> None:
        """Let go of a key that is not kept any more."""
        entry = self.entries.pop(number, None)
        if entry is not None:
            self.numbers.pop(entry.identity.name, None)

    def _read(self, odd: int) -> None:
        """Read the chunks of one kind from the first that had room left, up to one that is empty."""
        while True:
            chunk = f"{'tk'[odd]}{self._full[odd]}"
            found = self._calls.ask("HGETALL", self._records.of(chunk, "keys"))
            self.learn(dict(readable("keys", found.items(), _entry)))
            if len(found) < CHUNK and not self._followed(odd):
                return
            self._full[odd] += 1

    def _followed(self, odd: int) -> bool:
        """Return whether there are later chunks, although some of this one are gone."""
        highest = whole(self._calls.ask("HGET", self._records.meta, f"next_{'tk'[odd]}"))
        return highest > (self._full[odd] + 1) * CHUNK

    @property
    def chunks(self) -> list[str]:
        """The chunks there are, tenants' first."""
        return Records.chunks(self.entries.copy())


class SharedPasts:
    """The keys of one shared store. Raises CallError as it comes."""

    def __init__(self, calls: Calls, directory: Directory | None = None) -> None:
        self._calls = calls
        self._records = Records(calls.names)
        self._directory = directory or Directory(calls)
        self._directory.refresh()

    def pasts(self, today: int, window: int) -> Iterator[Known]:
        """Yield every key, tenants first, with the days of a window of so many days before `today`."""
        since = today - max(MEMORY_DAYS, window)
        by_chunk: dict[str, list[int]] = {}
        for number in sorted(self._directory.entries.copy(), key=lambda number: (number & 1, number)):
            by_chunk.setdefault(chunk_of(number), []).append(number)
        for chunk, numbers in by_chunk.items():
            yield from self._chunk(chunk, numbers, range(since, today + 1))

    def _chunk(self, chunk: str, numbers: Iterable[int], days: range) -> Iterator[Known]:
        records, taught = self._records, dict[int, list[Day]]()
        named = [records.of(chunk, kind) for kind in ("steps", "latest")]
        named += [records.of(chunk, "day", day) for day in days]
        steps, latest, *found = self._calls.ask_all([("HGETALL", name) for name in named])
        for day, record in zip(days, found, strict=True):
            for number, one in readable("days", record.items(), partial(_day, day)):
                taught.setdefault(number, []).append(one)
        for number in numbers:
            entry, field = self._directory.entries.get(number), b"%d" % number
            if entry is None:
                continue
            text, had = latest.get(field), steps.get(field, b"")
            yield Known(
                number,
                entry.first_day,
                entry.identity,
                taught.get(number, []),
                next(readable("steps", (had,), unpack_steps), []),
                None if text is None else next(readable("numbers", (text,), unpack_latest), None),
            )

    def texts(self) -> Iterator[tuple[str, str]]:
        """Yield the name of every key with the text of its latest number."""
        for chunk in self._directory.chunks:
            found = self._calls.ask("HGETALL", self._records.of(chunk, "latest"))
            for number, text in readable("numbers", found.items(), _latest):
                entry = self._directory.entries.get(number)
                if entry is not None:
                    yield entry.identity.name, text

    def of_tenant(self, tenant: str) -> list[tuple[int, Identity]]:
        """Return number and identity of a tenant as a whole, if there is one, and of its keys by name."""
        entries = self._directory.entries.copy().items()
        found = [(number, entry.identity) for number, entry in entries if entry.identity.tenant == tenant]
        return sorted(found, key=lambda one: one[1].credential)

    def past(self, key: int) -> tuple[list[Day], list[Step]]:
        """Return the days of a key and the numbers it had, each in order."""
        chunk, records = chunk_of(key), self._records
        steps = self._calls.ask("HGET", records.of(chunk, "steps"), key)
        day, month = self._today(), _CHARTED
        days = range(day - month, day + 1)
        found = self._calls.ask_all([("HGET", records.of(chunk, "day", one), key) for one in days])
        held = [(one, blob) for one, blob in zip(days, found, strict=True) if blob is not None]
        taught = list(readable("days", held, lambda one: unpack_day(*one)))
        return taught, next(readable("steps", (steps or b"",), unpack_steps), [])

    def _today(self) -> int:
        """Return the day that was counted last."""
        return whole(self._calls.ask("HGET", self._records.meta, "folded")) // 8640


def _entry(pair: tuple[bytes, bytes]) -> tuple[int, Entry]:
    return int(pair[0]), Entry.unpack(pair[1])


def _day(day: int, pair: tuple[bytes, bytes]) -> tuple[int, Day]:
    return int(pair[0]), unpack_day(day, pair[1])


def _latest(pair: tuple[bytes, bytes]) -> tuple[int, str]:
    return int(pair[0]), unpack_latest(pair[1])[1]


@contextlib.contextmanager
def opened(section: StoreSection) -> Iterator[SharedPasts]:
    """Open the store of a section to read; goes to another process by name. Raises CallError."""
    yield SharedPasts(Calls(section))
