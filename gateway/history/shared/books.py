"""What the one who leads writes in a shared store: the counterpart of `history/books.py`, chunk by chunk.

Rules
1. What is written goes out at `end`: each chunk in one script, all or nothing, and at last what holds for all (`meta`).
   If that fails midway, whoever leads next does the same work again.
2. So doing anything twice must be doing it once: everything replaces what was there, and a day's sum says up to which
   five minutes it goes.
3. A writer that was fenced off raises FencedError and is of no more use; so is one whose store gave no answer.
4. Where a record turns out to be somebody else's, `end` puts back what is known of it here: who has which number, the
   numbers in force (`sized`), and what holds for all.
5. Kept as long as in a file (`records.py`); keys are bounded by `max_keys`.
"""

from __future__ import annotations

import struct
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial

from gateway.history.books import DAY_SLOTS, FIVE, day_blob
from gateway.history.identity import Identity, identity_named
from gateway.history.packing import (
    Packed,
    SlotPeak,
    Taught,
    pack_counts,
    pack_day,
    readable,
    unpack_counts,
    unpack_hours,
    whole,
)  # fmt: skip
from gateway.history.provenance import write
from gateway.history.shared.lead import Change, Lead
from gateway.history.shared.pasts import Directory, Entry, pack_steps, unpack_steps
from gateway.history.shared.records import KEPT, Records, chunk_of, meaning, parity
from gateway.history.sizer import Row
from gateway.stores.calls import Calls
from policies.policy import Mode, Sized
from policies.sizing_past import MEMORY_DAYS, Hour, Step, summarise

__all__ = ["TOTAL", "SharedBooks"]

_PAUSE_SECONDS = 0.001
_STEPS_KEPT = 400
#: Before the counts of a day: the number of five minutes that they go up to.
TOTAL = struct.Struct("<I")


class SharedBooks:
    """The records, for the one who leads; `window` returns how many days count. Raises CallError, FencedError."""

    def __init__(
        self,
        calls: Calls,
        lead: Lead,
        directory: Directory,
        max_keys: int,
        window: Callable[[], int],
        sized: Callable[[], Mapping[str, Sized]] = dict,
    ) -> None:
        self._calls = calls
        self._lead = lead
        self._directory = directory
        self._records = Records(calls.names)
        self._window = window
        self._sized = sized
        self.max_keys = max_keys
        #: Names that found no room, counted once per slot.
        self.turned_away = 0
        directory.refresh()
        self._entries = {entry.identity.name: (number, entry) for number, entry in directory.entries.copy().items()}
        numbers = calls.ask("HGETALL", self._records.meta)
        self._meta = {name.decode("utf-8", "replace"): whole(value) for name, value in numbers.items()}
        #: Of tenants and of keys; a number is never given twice, whoever had it.
        self._next = [self.meta("next_t"), self.meta("next_k")]
        for number, _ in self._entries.values():
            self._next[number & 1] = max(self._next[number & 1], number // 2 + 1)
        meanings = calls.ask("HGETALL", self._records.meaning)
        self._meanings: dict[tuple[int, str], int] = dict(readable("meaning", meanings.items(), meaning))
        self._changes: dict[str, dict[bytes, Change]] = {}
        #: Keys that nobody else knows of yet.
        self._made: dict[int, Entry] = {}
        self._sealing: dict[tuple[str, int], dict[int, list[Hour]]] = {}

    @property
    def held(self) -> int:
        """How many keys there are."""
        return len(self._entries)

    def meta(self, name: str) -> int:
        """Return a number kept by name, 0 if there is none."""
        return self._meta.get(name, 0)

    def note(self, name: str, value: int) -> None:
        """Keep a number by name."""
        self._meta[name] = value
        self._set("", "meta", name, value)

    def end(self) -> None:
        """Write everything since the last time."""
        self._flush_seals()
        changes, self._changes = self._changes, {}
        for chunk in sorted(changes, reverse=True):  # "" is the last
            self._lead.keep_on()
            if self._lead.commit(chunk, changes[chunk]):
                self._put_back(chunk)
                self._lead.commit(chunk, self._changes.pop(chunk, {}))
        self._directory.learn(self._made)
        self._made = {}

    def key(self, identity: Identity, day: int, *, listed: bool) -> int | None:
        """Return the number of a key, made if there is room."""
        found = self._entries.get(identity.name)
        if found is not None and found[1].last_day >= day:
            return found[0]
        if found is not None:
            number, entry = found[0], found[1]._replace(last_day=day)
        elif len(self._entries) >= self.max_keys and not listed:
            self.turned_away += 1
            return None
        else:
            odd = parity(identity)
            number, entry = 2 * self._next[odd] + odd, Entry(identity, day, day)
            self._next[odd] += 1
            self.note(f"next_{'tk'[odd]}", self._next[odd])
        self._entries[identity.name] = (number, entry)
        self._made[number] = entry
        self._set(chunk_of(number), "keys", number, entry.pack())
        return number

    def restore(self, numbers: Mapping[str, Sized], today: int, learnt: int) -> None:
        """Put numbers back that an empty store does not know; `learnt` is how many days make a key known."""
        rows = []
        for name, sized in numbers.items():
            identity = identity_named(name)
            number = self.key(identity, today, listed=True)
            if number is None:
                continue
            first = today - learnt if sized.mode is Mode.ENFORCE else today
            self._made[number] = entry = Entry(identity, first, today)
            self._entries[name] = (number, entry)
            self._set(chunk_of(number), "keys", number, entry.pack())
            rows.append(_row(number, identity, sized, today))
        self.keep(rows)

    def _put_back(self, chunk: str) -> None:
        """Set what is known here of a chunk, or of all (""), that is not there any more."""
        if not chunk:
            for name, value in self._meta.items():
                self._set("", "meta", name, value)
            for (tally, limit), number in self._meanings.items():
                self._set("", "meaning", f"{tally}:{limit}", number)
            return
        held = self._calls.ask("HGETALL", self._records.of(chunk, "latest"))
        today, sized, rows = self.meta("folded") // DAY_SLOTS, self._sized(), []
        for name, (number, entry) in self._entries.items():
            if chunk_of(number) == chunk:
                self._set(chunk, "keys", number, entry.pack())
                if name in sized and b"%d" % number not in held:
                    rows.append(_row(number, entry.identity, sized[name], today))
        self.keep(rows)

    def counts(self, slot: int, rows: Iterable[Packed]) -> None:
        """Write what was counted in a slot; again, and it replaces."""
        for key, counts in rows:
            self._set(chunk_of(key), "slot", key, counts, slot)

    def peaks(self, slot: int, rows: Iterable[Packed]) -> None:
        """Write what a slot contributes to peaks; again, and it replaces."""
        for key, peak in rows:
            self._set(chunk_of(key), "peak", key, peak, slot)

    def both(self, slot: int, rows: Iterable[Taught]) -> None:
        """Write counts and contributions to peaks; again, and they replace."""
        for key, counts, peak in rows:
            chunk = chunk_of(key)
            self._set(chunk, "slot", key, counts, slot)
            self._set(chunk, "peak", key, peak, slot)

    def slots_since(self, slot: int) -> Iterator[tuple[int, int, SlotPeak]]:
        """Yield (slot, key, contribution to peaks) of what was added up, of each key in order of time."""
        kept = self.meta("folded") - KEPT["peak"] // 10
        slots = range(max(slot, kept), self.meta("folded") + 1)
        for chunk in self._directory.chunks:
            records = self._calls.ask_all([("HGETALL", self._records.of(chunk, "peak", one)) for one in slots])
            for number, record in zip(slots, records, strict=True):
                yield from readable("peaks", record.items(), partial(_peak, number))
            self._lead.keep_on()
            time.sleep(_PAUSE_SECONDS)

    def fold(self, five: int) -> None:
        """Add the slots of a five minutes together, number `five`, over all keys, and them to their day."""
        slots, day = range(five * FIVE, (five + 1) * FIVE), five * FIVE // DAY_SLOTS
        for chunk in self._directory.chunks:
            of = self._records.of
            commands = [("HGETALL", of(chunk, "total", day)), *(("HGETALL", of(chunk, "slot", one)) for one in slots)]
            totals, *records = self._calls.ask_all(commands)
            sums: dict[bytes, dict[int, int]] = {}
            for record in records:
                for key, counts in readable("counts", record.items(), _counts):
                    _add(sums.setdefault(key, {}), counts)
            for key, total in sums.items():
                self._set(chunk, "five", key, pack_counts(total), five)
                had = next(readable("totals", (totals.get(key, TOTAL.pack(0)),), _total), (0, []))
                if had[0] <= five:  # else it is in there already
                    _add(total, had[1])
                    self._set(chunk, "total", key, TOTAL.pack(five + 1) + pack_counts(total), day)
            for kind in ("keys", "steps", "latest"):  # so that `end` finds out if one of them is not ours
                self._change(chunk, kind)
            self._lead.keep_on()
            time.sleep(_PAUSE_SECONDS)

    def seal(self, key: int, hours: Sequence[Hour]) -> None:
        """Keep sealed hours of a key, and what their days have taught so far."""
        self._lead.keep_on()  # whoever brings them takes its time, between two keys
        for hour in hours:
            self._sealing.setdefault((chunk_of(key), hour.number // 24), {}).setdefault(key, []).append(hour)

    def _flush_seals(self) -> None:
        for (chunk, day), keys in self._sealing.items():
            self._lead.keep_on()
            found = self._calls.ask("HMGET", self._records.of(chunk, "hours", day), *keys)
            for (key, hours), had in zip(keys.items(), found, strict=True):
                kept = next(readable("hours", (had or b"",), partial(_hours, day)), b"")
                blob = day_blob(kept, hours)
                self._set(chunk, "hours", key, blob, day)
                self._set(chunk, "day", key, pack_day(summarise(day, unpack_hours(day, blob))), day)
        self._sealing = {}

    def keep(self, rows: Iterable[Row]) -> None:
        """Keep the numbers that changed, with their provenance; the same day's are replaced."""
        by_chunk: dict[str, list[tuple[int, Step, str]]] = {}
        for row in rows:
            if row.step is not None:
                by_chunk.setdefault(chunk_of(row.number), []).append((row.number, row.step, row.text))
        for chunk, changed in by_chunk.items():
            had = self._calls.ask("HMGET", self._records.of(chunk, "steps"), *(number for number, _, _ in changed))
            for (number, step, text), blob in zip(changed, had, strict=True):
                known = next(readable("steps", (blob or b"",), unpack_steps), [])
                steps = [one for one in known if step.day - _STEPS_KEPT <= one.day < step.day]
                self._set(chunk, "steps", number, pack_steps([*steps, step]))
                self._set(chunk, "latest", number, f"{step.day} {text}")
                self._set(chunk, "sized", number, text, step.day)

    def purge(self, now: int, listed: Iterable[str]) -> None:
        """Drop keys not seen for long, but for `listed` ones, and keep the rest on; everything else ends by itself."""
        day, kept = now // 86_400, set(listed)
        for name, (number, entry) in list(self._entries.items()):
            if entry.last_day < day - 90 and (name not in kept or entry.last_day < day - _STEPS_KEPT):
                for kind in ("keys", "steps", "latest"):
                    self._change(chunk_of(number), kind).drops.add(number)
                del self._entries[name]
                self._directory.forget(number)
            else:
                self._set(chunk_of(number), "keys", number, entry.pack())  # in case somebody else wrote there
        for chunk in self._directory.chunks:
            for kind in ("keys", "steps", "latest"):
                self._change(chunk, kind)
        self._change("", "meaning")

    def meaning(self, tally: int, limit: str) -> int:
        """Return the number of what is counted."""
        found = self._meanings.get((tally, limit))
        if found is None:
            found = self._meanings[tally, limit] = len(self._meanings) + 1
            self._set("", "meaning", f"{tally}:{limit}", found)
        return found

    def _set(self, chunk: str, kind: str, field: int | str | bytes, value: int | str | bytes, *at: int) -> None:
        self._change(chunk, kind, *at).sets[field] = value

    def _change(self, chunk: str, kind: str, *at: int) -> Change:
        record = self._records.of(chunk, kind, *at) if chunk else getattr(self._records, kind)
        seconds = KEPT[kind] if kind != "day" else (max(MEMORY_DAYS, self._window()) + 2) * 86_400
        return self._changes.setdefault(chunk, {}).setdefault(record, Change(seconds))


def _row(number: int, identity: Identity, sized: Sized, today: int) -> Row:
    # As of days that are over: what is sized next follows from it, if need be yesterday's once more.
    step = Step(today - 2, sum(term.delta for term in sized.terms), sized.next_quota.burst)
    return Row(number, identity, write(sized), step)


def _peak(slot: int, pair: tuple[bytes, bytes]) -> tuple[int, int, SlotPeak]:
    return slot, int(pair[0]), SlotPeak.unpack(pair[1])


def _counts(pair: tuple[bytes, bytes]) -> tuple[bytes, list[tuple[int, int]]]:
    return b"%d" % int(pair[0]), list(unpack_counts(pair[1]))


def _hours(day: int, blob: bytes) -> bytes:
    deque(unpack_hours(day, blob), maxlen=0)
    return blob


def _total(blob: bytes) -> tuple[int, list[tuple[int, int]]]:
    return TOTAL.unpack_from(blob)[0], list(unpack_counts(blob[TOTAL.size :]))


def _add(total: dict[int, int], counts: Iterable[tuple[int, int]]) -> None:
    for meant, count in counts:
        total[meant] = total.get(meant, 0) + count
