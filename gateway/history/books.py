"""What is written, and when it goes: the one connection that writes. Used by the writer's thread alone.

Rules
1. Every ten seconds are one transaction: all of them are there after a crash, or none.
2. Kept: slots of 10 s for a day, sums of five minutes and of days for 90 days, hours for 30 days, what a day taught for
   as long as the same day of the month is remembered, numbers for 400 days, a key for as long as any of these.
3. Keys are bounded by `max_keys`: what has no row gets none once the table is full, and is counted.
"""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import lru_cache

from gateway.history.identity import Identity
from gateway.history.packing import (
    HOUR_BYTES,
    Packed,
    SlotPeak,
    Taught,
    flat,
    pack_counts,
    pack_day,
    pack_hour,
    sum_counts,
    unpack_counts,
    unpack_hours,
)  # fmt: skip
from gateway.history.pasts import FilePasts
from gateway.history.sizer import Row
from policies.sizing_past import MEMORY_DAYS, Hour, summarise

__all__ = ["DAY_SLOTS", "FIVE", "Books", "Counts", "day_blob"]

DAY_SLOTS = 8640
#: Slots of ten seconds in five minutes.
FIVE = 30
_FIVES_KEPT = 90 * 288
_HOURS_KEPT = 30
_STEPS_KEPT = 400
#: Rows of one statement: less than a millisecond of work, and fewer places than the oldest SQLite in use takes (999).
_TOGETHER = 240

#: Keys of which five minutes are added up at once.
_FOLDED = 240
_PAUSE_SECONDS = 0.001
_FOLD = (
    f"SELECT key, group_concat(hex(counts), '') FROM slot WHERE slot IN ({','.join('?' * FIVE)}) "  # noqa: S608 - as below
    "AND key >= ? AND key < ? AND counts IS NOT NULL GROUP BY key"
)
_COUNTS = ("key, counts", "counts = excluded.counts")
#: Where rows go, by which columns beside the first, and what of them replaces what was there.
_PUTS = {
    "counts": ("slot", "slot", *_COUNTS),
    "peaks": ("slot", "slot", "key, peak", "peak = excluded.peak"),
    "both": ("slot", "slot", "key, counts, peak", "counts = excluded.counts, peak = excluded.peak"),
    "five": ("five", "slot", *_COUNTS),
    "total": ("total", "day", *_COUNTS),
}

#: (tally, limit) -> how often, of one tenant or key.
Counts = Mapping[tuple[int, str], int]


class Books(FilePasts):
    """The tables, for the one who writes them. Raises sqlite3.Error as it comes."""

    def __init__(self, connection: sqlite3.Connection, max_keys: int) -> None:
        super().__init__(connection)
        self.max_keys = max_keys
        #: Names that found no room, counted once per slot.
        self.turned_away = 0
        self._ids = dict(connection.execute("SELECT name, id FROM key"))
        self._seen = dict(connection.execute("SELECT name, last_day FROM key"))
        rows = connection.execute('SELECT tally, "limit", id FROM meaning')
        self._meanings = {(tally, limit): number for tally, limit, number in rows}
        self._resumed = 0
        self._had: dict[int, dict[int, int]] = {}

    @property
    def held(self) -> int:
        """How many keys there are."""
        return len(self._ids)

    def meta(self, name: str) -> int:
        """Return a number kept by name, 0 if there is none."""
        row = self.connection.execute("SELECT value FROM meta WHERE name = ?", (name,)).fetchone()
        return int(row[0]) if row else 0

    def note(self, name: str, value: int) -> None:
        """Keep a number by name."""
        self.connection.execute("INSERT OR REPLACE INTO meta VALUES (?, ?)", (name, value))

    def resume(self, slot: int) -> None:
        """Add to what an earlier process counted in this slot, instead of replacing it."""
        rows = self.connection.execute("SELECT key, counts FROM slot WHERE slot = ? AND counts IS NOT NULL", (slot,))
        self._resumed, self._had = slot, {key: dict(unpack_counts(counts)) for key, counts in rows}

    def begin(self) -> None:
        """Open a transaction."""
        self.connection.execute("BEGIN IMMEDIATE")

    def end(self, *, well: bool) -> None:
        """Close it."""
        if self.connection.in_transaction:
            self.connection.execute("COMMIT" if well else "ROLLBACK")

    def key(self, identity: Identity, day: int, *, listed: bool) -> int | None:
        """Return the number of a key, made if there is room."""
        found = self._ids.get(identity.name)
        if found is None:
            if len(self._ids) >= self.max_keys and not listed:
                self.turned_away += 1
                return None
            cursor = self.connection.execute(
                "INSERT INTO key (name, kind, tenant, credential, first_day, last_day) VALUES (?, ?, ?, ?, ?, ?)",
                (*identity, day, day),
            )
            found = self._ids[identity.name] = int(cursor.lastrowid or 0)
            self._seen[identity.name] = day
        elif self._seen[identity.name] < day:
            self.connection.execute("UPDATE key SET last_day = ? WHERE id = ?", (day, found))
            self._seen[identity.name] = day
        return found

    def counts(self, slot: int, rows: Sequence[Packed]) -> None:
        """Write what was counted in a slot; again, and it replaces."""
        if slot == self._resumed and self._had:
            rows = [(key, self._more(key, counts)) for key, counts in rows]
        self._put("counts", slot, rows)

    def peaks(self, slot: int, rows: Sequence[Packed]) -> None:
        """Write what a slot contributes to peaks; again, and it replaces."""
        self._put("peaks", slot, rows)

    def both(self, slot: int, rows: Sequence[Taught]) -> None:
        """Write counts and contributions to peaks; again, and they replace."""
        if slot == self._resumed and self._had:
            rows = [(key, self._more(key, counts), peak) for key, counts, peak in rows]
        self._put("both", slot, rows)

    def _put(self, kind: str, place: int, rows: Sequence[Packed] | Sequence[Taught]) -> None:
        """Insert rows, many by one statement.

        The interpreter changes hands at each statement, and whoever serves requests waits for it: ten thousand rows of
        a statement each would be ten thousand interruptions.
        """
        for start in range(0, len(rows), _TOGETHER):
            part = rows[start : start + _TOGETHER]
            self.connection.execute(_statement(kind, len(part)), flat(place, part))

    def _more(self, key: int, counts: bytes) -> bytes:
        """Add what an earlier process counted of a key."""
        had = self._had.get(key)
        if not had:
            return counts
        total = dict(had)
        sum_counts(total, counts)
        return pack_counts(total)

    def meaning(self, tally: int, limit: str) -> int:
        """Return the number of what is counted."""
        found = self._meanings.get((tally, limit))
        if found is None:
            cursor = self.connection.execute('INSERT INTO meaning (tally, "limit") VALUES (?, ?)', (tally, limit))
            found = self._meanings[tally, limit] = int(cursor.lastrowid or 0)
        return found

    def fold(self, five: int) -> None:
        """Add the slots of a five minutes together, number `five`, over all keys, and them to their day. Once."""
        slots = (five * FIVE, (five + 1) * FIVE)
        if not self.connection.execute("SELECT 1 FROM slot WHERE slot >= ? AND slot < ? LIMIT 1", slots).fetchone():
            return
        (most,) = self.connection.execute("SELECT max(id) FROM key").fetchone()
        for first in range(0, (most or 0) + 1, _FOLDED):
            if first:
                time.sleep(_PAUSE_SECONDS)
            self._fold(five, first, first + _FOLDED)

    def _fold(self, five: int, first: int, last: int) -> None:
        """Do so for some keys. What the slots hold of one is put together by SQLite, that there be one row of it."""
        slots = range(five * FIVE, (five + 1) * FIVE)
        sums: dict[int, dict[int, int]] = {}
        for key, counts in self.connection.execute(_FOLD, (*slots, first, last)):
            total = sums[key] = {}
            sum_counts(total, bytes.fromhex(counts))
        self._put("five", five, [(key, pack_counts(total)) for key, total in sums.items()])
        day = five // 288
        rows = self.connection.execute(
            "SELECT key, counts FROM total WHERE day = ? AND key >= ? AND key < ?", (day, first, last)
        )
        for key, counts in rows:
            if key in sums:
                sum_counts(sums[key], counts)
        self._put("total", day, [(key, pack_counts(total)) for key, total in sums.items()])

    def slots_since(self, slot: int) -> Iterator[tuple[int, int, SlotPeak]]:
        """Yield (slot, key, contribution to peaks) in order of time."""
        rows = self.connection.execute(
            "SELECT slot, key, peak FROM slot WHERE slot >= ? AND peak IS NOT NULL ORDER BY slot", (slot,)
        )
        return ((number, key, SlotPeak.unpack(peak)) for number, key, peak in rows)

    def seal(self, key: int, hours: Sequence[Hour]) -> None:
        """Keep sealed hours of a key, and what their days have taught so far."""
        for day in sorted({hour.number // 24 for hour in hours}):
            place = (key, day)
            row = self.connection.execute("SELECT hours FROM hours WHERE key = ? AND day = ?", place).fetchone()
            blob = day_blob(row[0] if row else b"", [hour for hour in hours if hour.number // 24 == day])
            self.connection.execute("INSERT OR REPLACE INTO hours VALUES (?, ?, ?)", (*place, blob))
            summary = pack_day(summarise(day, unpack_hours(day, blob)))
            self.connection.execute("INSERT OR REPLACE INTO day VALUES (?, ?, ?)", (*place, summary))

    def keep(self, rows: Iterable[Row]) -> None:
        """Keep the numbers that changed, with their provenance; the same day's are replaced."""
        self.connection.executemany(
            "INSERT OR REPLACE INTO step VALUES (?, ?, ?, ?, ?)",
            [(row.number, *row.step, row.text) for row in rows if row.step is not None],
        )

    def purge(self, now: int, listed: Iterable[str], window: int = 0) -> None:
        """Drop what is older than it is kept, from `now` (epoch seconds); `listed` are names that stay.

        `window` is how many days count: what they taught stays as long.
        """
        run, day = self.connection.execute, now // 86_400
        run("DELETE FROM slot WHERE slot < ?", (now // 10 - DAY_SLOTS,))
        run("DELETE FROM five WHERE slot < ?", (now // 300 - _FIVES_KEPT,))
        run("DELETE FROM total WHERE day < ?", (day - 90,))
        run("DELETE FROM hours WHERE day < ?", (day - _HOURS_KEPT,))
        run("DELETE FROM day WHERE day < ?", (day - max(MEMORY_DAYS, window),))
        run(
            "DELETE FROM step WHERE day < ? "
            "AND EXISTS (SELECT 1 FROM step later WHERE later.key = step.key AND later.day > step.day)",
            (day - _STEPS_KEPT,),
        )
        kept = set(listed)
        rows = run("SELECT id, name FROM key WHERE last_day < ?", (day - 90,)).fetchall()
        for number, name in rows:
            if name not in kept or self._seen[name] < day - _STEPS_KEPT:
                run("DELETE FROM step WHERE key = ?", (number,))
                run("DELETE FROM key WHERE id = ?", (number,))
                del self._ids[name], self._seen[name]
        run("PRAGMA incremental_vacuum(1000)")


@lru_cache(maxsize=2 * len(_PUTS))
def _statement(kind: str, rows: int) -> str:
    table, place, columns, replaced = _PUTS[kind]
    places = ",".join([f"(?{',?' * len(columns.split(','))})"] * rows)
    return (
        f"INSERT INTO {table} ({place}, {columns}) VALUES {places} "  # noqa: S608 - all of it is written here
        f"ON CONFLICT ({place}, key) DO UPDATE SET {replaced}"
    )


def day_blob(had: bytes, hours: Iterable[Hour]) -> bytes:
    """Return the hours of a day as they are kept, some of them new."""
    known = {blob[0]: blob for blob in _pieces(had)} | {hour.number % 24: pack_hour(hour) for hour in hours}
    return b"".join(known[of_day] for of_day in sorted(known))


def _pieces(blob: bytes) -> Iterator[bytes]:
    return (blob[at : at + HOUR_BYTES] for at in range(0, len(blob), HOUR_BYTES))
