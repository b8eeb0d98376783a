"""Registries in a shared store: one script a change, one small question a second, the changes since then.

Rules
1. A registry has an epoch and a number that goes up with every change. Whoever knows number n asks for the changes
   after it; where they are not all there any more, or the epoch is another, everything is read.
2. A store that lost what it held (an empty one, or a number that went back) is told what this process knows: its copy,
   and which entries ended. That is loud, in the log. Nothing that ended comes back by it.
3. So is one that lost a part of it to somebody else: what is not ours under our names is dropped, never repaired.
4. An entry that must hold although the store is down (`add(..., here=True)`) holds in this process, is told of, and is
   kept as soon as the store is back.
"""

from __future__ import annotations

import logging
import secrets
from collections import OrderedDict
from collections.abc import Collection
from typing import Any

import orjson

from gateway.clock import Clock
from gateway.stores.calls import CallError, Calls, Word
from gateway.stores.link.script import load_script
from gateway.stores.registry import Entry, Registry, RegistryError
from policies.units import Micros

__all__ = ["SharedRegistry"]

_LOG = logging.getLogger("evenhand.registry")

_MAX_CHANGES = 1000
#: Ends that are remembered, in case the store forgets them.
_MAX_ENDED = 10_000


class SharedRegistry(Registry):
    """The entries of one name in a shared store."""

    def __init__(self, calls: Calls, name: str, most: int, clock: Clock, kept_us: Micros = 0) -> None:
        super().__init__(name, most, clock, kept_us)
        self._calls = calls
        tag = f"registry.{name}"
        rows, ends, state, log = (calls.names.key(tag, part) for part in ("rows", "ends", "state", "log"))
        self._keys = [rows, ends, state, log]
        self._rows, self._state, self._log = rows, state, log
        self._epoch = b""
        self._number = 0
        self._begun = False
        self._ended: OrderedDict[str, Micros] = OrderedDict()
        self._waiting: dict[str, Entry] = {}

    @property
    def place(self) -> str:
        """The store, in words."""
        return self._calls.name

    @property
    def waiting(self) -> Collection[str]:
        """The entries that only this process knows of, because the store is down."""
        return self._waiting.keys()

    def _put_or_hold(self, entry: Entry, *, here: bool) -> None:
        try:
            self._put(entry)
        except RegistryError:
            if not here:
                raise
            self._waiting[entry.id] = entry

    def end(self, id: str) -> bool:
        """End an entry now; return whether there was one. Raises RegistryError."""
        with self._lock:
            if self._waiting.pop(id, None) is not None:
                self._lose(id)
                self.told(id, None)
                return True
            return super().end(id)

    def hear(self, id: str, entry: Entry | None, *, waiting: bool = False) -> None:
        """Take over what another process of this instance was told first."""
        with self._lock:
            self._waiting.pop(id, None)
            if entry is not None and waiting:
                self._waiting[id] = entry
            super().hear(id, entry)

    def _put(self, entry: Entry) -> None:
        row = orjson.dumps([entry.body, entry.expires_us])
        done = self._change("put", entry.id, row, (entry.expires_us + self.kept_us) // 1000)
        if done < 0:
            raise self.full()

    def _drop(self, id: str) -> bool:
        done = self._change("drop", id, b"", 0)
        self._note_end(id)
        return done > 0

    def _change(self, what: str, id: str, row: bytes, ends_ms: int) -> int:
        try:
            done, epoch, _ = self._ask(what, id, row, ends_ms, self.most, secrets.token_hex(8))
        except CallError as error:
            raise RegistryError(f"the {self.name} cannot be kept: {error}") from error
        self._epoch = self._epoch or epoch
        return int(done)

    def _ask(self, *args: Word) -> Any:
        done, epoch, mended, *rest = self._calls.run(load_script("registry"), self._keys, args)
        if mended:
            self._calls.warn(self._rows, "or one beside it was not ours and is written anew")
        return done, epoch, int(rest[0]) if rest else 0

    def _refresh(self) -> None:
        try:
            self._follow_store()
        except CallError as error:
            raise RegistryError(str(error)) from error

    def _follow_store(self) -> None:
        epoch, number = self._state_now()
        if self._epoch and (epoch != self._epoch or number < self._number) and self._expected():
            self._tell_again()
            epoch, number = self._state_now()
        known = self._begun and epoch == self._epoch and number - self._number <= _MAX_CHANGES
        if not known or not self._changes(number):
            self._read_all()
        self._begun, self._epoch, self._number = True, epoch, number
        for id in self._ended.keys() & self.live.keys():  # put back by somebody who had not heard
            self.end(id)
        for entry in list(self._waiting.values()):
            self._put(entry)
            del self._waiting[entry.id]

    def _state_now(self) -> tuple[bytes, int]:
        _, epoch, number = self._ask("look")
        return epoch, number

    def _expected(self) -> bool:
        """Return whether the store should hold anything of what is known here."""
        return bool(self.live.keys() - self._waiting.keys())

    def _changes(self, number: int) -> bool:
        """Take over the changes up to `number`; return whether all of them were there."""
        if number == self._number:
            return True
        found = self._calls.ask("XRANGE", self._log, f"{self._number + 1}-0", "+", "COUNT", number - self._number)
        if len(found) < number - self._number:
            return False
        for _, fields in found:
            said = dict(zip(fields[::2], fields[1::2], strict=True)) if isinstance(fields, list) else fields
            try:
                id, row = said[b"id"].decode(), said[b"row"]
                entry = _entry(said[b"id"], row) if row else None
            except (LookupError, ValueError, TypeError):  # not ours, and one of ours may be missing for it
                return False
            if entry is not None:
                self._gain(entry)
            else:
                self._note_end(id)
                self._lose(id)
        return True

    def _read_all(self) -> None:
        rows = self._calls.ask("HGETALL", self._rows)
        pairs = zip(rows[::2], rows[1::2], strict=True) if isinstance(rows, list) else rows.items()
        wall, entries, strange = self.clock.wall(), [], []
        for id, row in pairs:
            try:
                entries.append(_entry(id, row))
            except (ValueError, TypeError):
                strange.append(id)
        if strange:
            self._forget(strange)
            entries += [entry for entry in self.live.copy().values() if entry.id.encode() in strange]
        self._become([*(entry for entry in entries if entry.expires_us > wall), *self._waiting.values()])

    def _forget(self, ids: list[bytes]) -> None:
        """Drop rows that make no sense, and have everybody put back what it knows of them."""
        self._calls.warn(self._rows, f"holds {len(ids)} rows that make no sense, which are dropped")
        self._calls.ask("HDEL", self._rows, *ids)
        self._calls.ask("DEL", self._state)

    def _tell_again(self) -> None:
        """Put into a store that lost them the entries known here, and take out those that ended."""
        kept = dict(self.live)
        wall = self.clock.wall()
        for id, until in list(self._ended.items()):
            if until > wall:
                self._change("drop", id, b"", 0)
        for entry in kept.values():
            self._put(entry)
        _LOG.error("%s lost the %s; %d of them that are known here were put back", self.place, self.name, len(kept))
        self._epoch = b""  # all of it is read next

    def _note_end(self, id: str) -> None:
        entry = self.live.get(id)
        self._ended[id] = self.clock.wall() + 86_400_000_000 if entry is None else entry.expires_us
        while len(self._ended) > _MAX_ENDED:
            self._ended.popitem(last=False)

    def _close(self) -> None:
        """Nothing is open: the connections are the process's."""


def _entry(id: bytes, row: Any) -> Entry:
    """Return what a row holds. Raises ValueError and TypeError for what none of us wrote."""
    body, expires = orjson.loads(row)
    if not isinstance(body, dict) or not isinstance(expires, int):
        raise TypeError("no entry of a registry")
    return Entry(id.decode(), body, expires)
