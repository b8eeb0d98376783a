"""What instances on one store tell each other: a stream of numbered entries, kept for a little longer than it is read.

Rules
1. Adding and reading are one call, twice a second for an instance, whatever it serves. The stream is bounded by time
   (`KEPT`), and ends by itself a minute after the last instance.
2. Whoever begins reads what was told since it began, however long its first call took to be answered.
3. An entry that may have been added is added again under its number; who reads counts a number once.
4. What the store lost is told again, as far back as `_TOLD` reaches, before anything new; whoever had read it passes
   over the numbers, and whoever began later over what is older than itself.
5. What others wrote under the name is passed over, or dropped where it is no such stream; the log says so once.
"""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import Iterable
from typing import Any

from gateway.config.sections import StoreSection
from gateway.stores.calls import Calls
from gateway.stores.link.script import load_script

__all__ = ["KEPT", "Entry", "Stream"]

_LOG = logging.getLogger("evenhand.fleet")

#: Milliseconds: longer than any pause of an instance that is not taken for dead.
KEPT = 15_000
#: Entries read at once; the others are read next time.
_MOST = 1_000
#: Own entries that are remembered, in case the store forgets them: ten seconds of them.
_TOLD = 20
#: Milliseconds that an entry's id may be behind the server's clock: it is of when the server's turn began.
_SLACK = 100

#: Whose it is, its number, and its body.
Entry = tuple[str, int, bytes]


class Stream:
    """The stream of one store, for one thread. Its calls raise GatewayError where the store does not answer."""

    def __init__(self, section: StoreSection) -> None:
        self._calls = Calls(section)
        self._key = self._calls.names.key("fleet", "told")
        self._script = load_script("stream")
        self._began = time.monotonic()
        #: The last entry read, and since when this instance counts: the server's milliseconds, once it has said so.
        self._after = self._since = ""
        #: The id of the own last entry; number, body and milliseconds of the last ones.
        self._own = ""
        self._told: deque[tuple[int, bytes, str]] = deque(maxlen=_TOLD)
        self._foreign = False

    def trade(self, instance: str, number: int, body: bytes) -> list[Entry]:
        """Add an entry; return those that were added since the last time, by anybody."""
        new = (number, body, "")
        answer = self._ask(instance, self._own, [new])
        if answer[0]:
            answer = self._ask(instance, "", [*self._told, new])
        own, after, since = (word.decode("ascii") for word in answer[2:5])
        self._own, self._after, self._since = own, after, since
        self._told.append((number, body, own.partition("-")[0]))
        if answer[5] and not self._foreign:
            self._foreign = True
            _LOG.warning("somebody else writes to what instances tell each other; %d entries passed over", answer[5])
        found = answer[6:]
        return [
            (name.decode("utf-8", "replace"), int(count), entry)
            for name, count, entry in zip(found[::3], found[1::3], found[2::3], strict=True)
        ]

    def _ask(self, instance: str, own: str, entries: Iterable[tuple[int, bytes, str]]) -> Any:
        since = self._since or min(KEPT, int((time.monotonic() - self._began) * 1000) + _SLACK)
        told = [word for entry in entries for word in entry]
        answer = self._calls.run(self._script, [self._key], (instance, self._after, since, KEPT, _MOST, own, *told))
        if answer[1]:
            self._calls.warn(self._key, "was something else and is written anew")
        return answer
