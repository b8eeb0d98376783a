"""What is written in a shared store, for whoever asks: the archive of any process, whoever leads."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator, Mapping
from contextlib import AbstractContextManager
from functools import partial

from gateway.history.archive import Archive
from gateway.history.identity import TENANT, Identity
from gateway.history.packing import readable, whole
from gateway.history.pasts import Readable
from gateway.history.provenance import read
from gateway.history.series import Counted, Part, Row, Series, Span, Who
from gateway.history.shared.books import TOTAL
from gateway.history.shared.counting import told
from gateway.history.shared.pasts import Directory, SharedPasts, opened, unpack_latest, unpack_steps
from gateway.history.shared.records import KEPT, Records, chunk_of, meaning
from gateway.stores.calls import Calls, Word
from policies.policy import Sized

__all__ = ["SharedArchive", "SharedSource"]


class SharedArchive(Archive):
    """The archive of a shared store."""

    def __init__(self, calls: Calls, directory: Directory | None = None) -> None:
        self._calls = calls
        self._records = Records(calls.names)
        self._directory = directory or Directory(calls)
        self.opener = partial(opened, calls.section)
        self.series = Series(self._source)

    @contextlib.contextmanager
    def _source(self) -> Iterator[SharedSource]:
        yield SharedSource(self._calls, self._directory)

    def pasts(self) -> AbstractContextManager[Readable]:
        """Open what is written of keys."""
        return contextlib.nullcontext(SharedPasts(self._calls, self._directory))

    def number(self, identity: Identity, day: int | None) -> Sized | None:
        """Return the number of a key that held on a day, or the latest."""
        number = self._number(identity)
        if number is None:
            return None
        chunk, of = chunk_of(number), self._records.of
        if day is None:
            latest = self._calls.ask("HGET", of(chunk, "latest"), number)
            return next(readable("numbers", filter(None, (latest,)), lambda blob: read(unpack_latest(blob)[1])), None)
        had = self._calls.ask("HGET", of(chunk, "steps"), number) or b""
        steps = next(readable("steps", (had,), unpack_steps), [])
        held = max((step.day for step in steps if step.day <= day), default=None)
        text = None if held is None else self._calls.ask("HGET", of(chunk, "sized", held), number)
        return next(readable("numbers", filter(None, (text,)), lambda blob: read(blob.decode())), None)

    def seen(self, identity: Identity) -> bool:
        """Return whether anything is known of a key."""
        return self._number(identity) is not None

    def _number(self, identity: Identity) -> int | None:
        if identity.name not in self._directory.numbers:
            self._directory.refresh()
        return self._directory.numbers.get(identity.name)


class SharedSource:
    """The counts in a shared store. Raises CallError as it comes."""

    def __init__(self, calls: Calls, directory: Directory) -> None:
        self._calls = calls
        self._records = Records(calls.names)
        directory.refresh()
        self._entries = directory.entries.copy()
        meta = calls.ask("HMGET", self._records.meta, "five", "folded")
        meanings = calls.ask("HGETALL", self._records.meaning)
        self.folded, self._slots = map(whole, meta)
        self.meanings: Mapping[int, tuple[int, str]] = {
            n: what for what, n in readable("meaning", meanings.items(), meaning)
        }

    def tenants(self) -> Mapping[int, str]:
        """Return the tenants as a whole, by number."""
        return {n: one.identity.tenant for n, one in self._entries.items() if one.identity.kind == TENANT}

    def keys(self, tenant: str) -> Mapping[int, tuple[str, str]]:
        """Return (kind, credential) of a tenant and of its keys, by number."""
        found = ((number, entry.identity) for number, entry in self._entries.items())
        return {number: (one.kind, one.credential) for number, one in found if one.tenant == tenant}

    def rows(self, part: Part) -> Iterator[Row]:
        """Yield what is written of tenants in a run of rows."""
        chunks = Records.chunks(self.tenants())
        places = [(place, chunk) for place in self._written(part) for chunk in chunks]
        commands = [("HGETALL", self._records.of(chunk, part.table, place)) for place, chunk in places]
        for (place, _), record in zip(places, self._calls.ask_all(commands), strict=True):
            yield from readable("counts", record.items(), partial(_row, part, place))

    def rows_of(self, part: Part, keys: Iterable[int]) -> Iterator[Row]:
        """Yield what is written of some keys."""
        by_chunk: dict[str, list[int]] = {}
        for key in keys:
            by_chunk.setdefault(chunk_of(key), []).append(key)
        places = [(place, chunk) for place in self._written(part) for chunk in by_chunk]
        commands: list[list[Word]] = [
            ["HMGET", self._records.of(chunk, part.table, place), *by_chunk[chunk]] for place, chunk in places
        ]
        for (place, chunk), found in zip(places, self._calls.ask_all(commands), strict=True):
            for key, counts in zip(by_chunk[chunk], found, strict=True):
                if counts is not None:
                    yield place, key, _counts(part, counts)

    def _written(self, part: Part) -> range:
        """Return the places of a part that there can be rows of."""
        last = self._slots + 1 if part.grain == 1 else part.last
        return range(part.first, min(part.last, last))

    def unwritten(self, span: Span) -> Iterator[tuple[int, Mapping[Who, Counted]]]:
        """Yield slots of a span that were not added up yet, and what is known of them already."""
        first = max(span.first, self._slots + 1)
        slots = range(first, min(span.last, self._slots + KEPT["counts"] // 10) if self._slots else 0)
        records = self._calls.ask_all([("HGETALL", self._records.counts(slot)) for slot in slots])
        for slot, record in zip(slots, records, strict=True):
            if record:
                yield slot, told(slot, record)


def _counts(part: Part, blob: bytes) -> bytes:
    return blob[TOTAL.size :] if part.table == "total" else blob


def _row(part: Part, place: int, pair: tuple[bytes, bytes]) -> Row:
    return place, int(pair[0]), _counts(part, pair[1])
