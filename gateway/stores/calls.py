"""What threads ask of a shared store: a command, many at once, or a script; everything off the data plane.

Rules
1. Whatever goes wrong is one `CallError` with one sentence: its kind (`link/faults.py`), in our words. The library's
   exceptions and its words stop here.
2. A command that changes something may have run although no answer came; what is asked of here can be asked again.
3. Names are those of `names.py`; keys of one script share a tag.
4. Nothing connects before it is asked.
5. A record of ours that is of another type is dropped by whoever writes to it, and holds nothing for whoever reads; the
   log warns once.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from redis import exceptions as raised

from gateway.config.sections import StoreSection
from gateway.errors import GatewayError
from gateway.stores.link.faults import KINDS, ErrorReply, of_exception, of_reply
from gateway.stores.link.script import Script, load_script
from gateway.stores.link.sync import open_client
from gateway.stores.names import Names

__all__ = ["CallError", "Calls", "Spell", "Word"]

_LOG = logging.getLogger("evenhand.store")

Word = bytes | str | int | float

#: Commands that go out in one piece; what comes back of more would be held all at once.
_AT_ONCE = 200
#: Records that are warned of, one line each.
_MOST_NAMED = 100
#: Between two spells that the log is told of.
_QUIET_SECONDS = 60.0

#: How a sentence about a store goes on, where it is not "cannot be used".
_SENTENCES = {"timeout": "did not answer in time", "auth": "refuses our user or password"}
#: Commands that only read, and what they answer of a record that is not there.
_NOTHING: dict[Word, Callable[[Sequence[Word]], object]] = {
    "HGET": lambda _: None,
    "HGETALL": lambda _: {},
    "HMGET": lambda words: [None] * (len(words) - 2),
    "XRANGE": lambda _: [],
}
#: Those of the library that have lost the code by which the server told them apart.
_CLASSES: tuple[tuple[type[Exception], str], ...] = (
    (raised.TimeoutError, "timeout"),
    (raised.AuthenticationError, "auth"),
    (raised.NoPermissionError, "auth"),
    (raised.BusyLoadingError, "loading"),
    (raised.ReadOnlyError, "readonly"),
    (raised.OutOfMemoryError, "oom"),
    (raised.MasterDownError, "masterdown"),
    (raised.ClusterDownError, "clusterdown"),
    (raised.ClusterCrossSlotError, "crossslot"),
)


class CallError(GatewayError):
    """The store gave no answer, or none that can be used."""


class Calls:
    """The store of a section, for threads. `name` is how it is called in sentences."""

    def __init__(self, section: StoreSection, name: str = "the shared store") -> None:
        self.section = section
        self.names = Names(section.namespace)
        self.name = name
        self._client: Any = None
        self._ours = self.names.prefix.encode("ascii")
        self._named: set[bytes] = set()

    def ask(self, *words: Word) -> Any:
        """Return the reply to one command."""
        with self._mapped() as client:
            try:
                return client.execute_command(*words)
            except raised.ResponseError as error:
                if not self._strange(words, error):
                    raise
                if words[0] in _NOTHING:
                    return _NOTHING[words[0]](words)
                self._drop(client, words)
                return client.execute_command(*words)

    def ask_all(self, commands: Iterable[Sequence[Word]]) -> Iterator[Any]:
        """Yield the replies to many commands, in order."""
        waiting = list(commands)
        for start in range(0, len(waiting), _AT_ONCE):
            with self._mapped() as client:
                replies = self._piece(client, waiting[start : start + _AT_ONCE])
            yield from replies

    def _piece(self, client: Any, commands: Sequence[Sequence[Word]]) -> list[Any]:
        replies = _piped(client, commands)
        strange = [words for words, reply in zip(commands, replies, strict=True) if self._strange(words, reply)]
        written = [words for words in strange if words[0] not in _NOTHING]
        if written:
            for words in written:
                self._drop(client, words)
            replies = _piped(client, commands)  # also what went to a record that is gone
        for at, (words, reply) in enumerate(zip(commands, replies, strict=True)):
            if words[0] in _NOTHING and self._strange(words, reply):
                replies[at] = _NOTHING[words[0]](words)
            elif isinstance(reply, Exception):
                raise reply
        return replies

    def run(self, script: Script, keys: Sequence[bytes], args: Sequence[Word]) -> Any:
        """Return what a script says; a server that does not know it is told it."""
        with self._mapped() as client:
            return _run(client, script, keys, args)

    def _strange(self, words: Sequence[Word], reply: object) -> bool:
        """Return whether a command met a record under a name of ours that is of another type."""
        if not isinstance(reply, Exception) or _kind_of(reply) != "wrongtype":
            return False
        key = words[1] if len(words) > 1 else b""
        if not isinstance(key, bytes) or not key.startswith(self._ours):
            return False
        self.warn(key, "is of another type, and holds nothing until it is written anew")
        return True

    @staticmethod
    def _drop(client: Any, words: Sequence[Word]) -> None:
        _run(client, load_script("drop"), [words[1]], [words[0], *words[2:]])

    def warn(self, key: bytes, what: str) -> None:
        """Tell, once for each record, that somebody else writes to our names."""
        if key not in self._named and len(self._named) < _MOST_NAMED:
            self._named.add(key)
            _LOG.warning("%s: the record %s %s; does somebody else write to it?", self.name, key.decode("utf-8"), what)

    @contextmanager
    def _mapped(self) -> Iterator[Any]:
        try:
            if self._client is None:
                self._client = open_client(self.section)
            yield self._client
        except (raised.RedisError, OSError) as error:
            raise CallError(f"{self.name} {_SENTENCES.get(kind := _kind_of(error)) or _cannot(kind)}") from error


class Spell:
    """Something that may go wrong for a while. The log is told once as it does, and once as it is over.

    One that comes back within a minute is not told again; figures and warnings say that it holds.
    """

    def __init__(self, log: logging.Logger) -> None:
        self._log = log
        self._told = False
        self._over = -_QUIET_SECONDS
        self.on = False

    def begin(self, sentence: str) -> None:
        """Note that it holds."""
        if not self._told and time.monotonic() - self._over >= _QUIET_SECONDS:
            self._told = True
            self._log.error("%s", sentence)
        self.on = True

    def end(self, sentence: str) -> None:
        """Note that it holds no more."""
        if self.on and self._told:
            self._told = False
            self._over = time.monotonic()
            self._log.warning("%s", sentence)
        self.on = False


def _cannot(kind: str) -> str:
    return f"cannot be used ({kind}: {KINDS[kind]})"


def _kind_of(error: BaseException) -> str:
    """Return the kind of what the library or the system raised, one of `KINDS`."""
    for cls, kind in _CLASSES:
        if isinstance(error, cls):
            return kind
    if isinstance(error, raised.ResponseError):
        return of_reply(ErrorReply(error)).kind
    within = next((one for one in (error, error.__cause__, error.__context__) if isinstance(one, OSError)), None)
    return "reset" if within is None else of_exception(within).kind


def _piped(client: Any, commands: Sequence[Sequence[Word]]) -> list[Any]:
    pipeline = client.pipeline(transaction=False)
    for words in commands:
        pipeline.execute_command(*words)
    found: list[Any] = pipeline.execute(raise_on_error=False)
    return found


def _run(client: Any, script: Script, keys: Sequence[Word], args: Sequence[Word]) -> Any:
    try:
        return client.execute_command("EVALSHA", script.sha, len(keys), *keys, *args)
    except raised.NoScriptError:
        return client.execute_command("EVAL", script.source, len(keys), *keys, *args)
