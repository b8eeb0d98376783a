"""What instances on one store tell each other: a stream of numbered entries, kept for a little longer than it is read.

Rules
1. Adding and reading are one call, twice a second for an instance, whatever it serves. The stream is bounded by time
   (`KEPT`), and ends by itself a minute after the last instance.
2. Whoever begins reads what comes from then on.
3. An entry that may have been added is added again under its number; who reads counts a number once.
"""

from __future__ import annotations

from gateway.config.sections import StoreSection
from gateway.stores.calls import Calls
from gateway.stores.link.script import load_script

__all__ = ["KEPT", "Entry", "Stream"]

#: Milliseconds: longer than any pause of an instance that is not taken for dead.
KEPT = 15_000
#: Entries read at once; the others are read next time.
_MOST = 1_000

#: Whose it is, its number, and its body.
Entry = tuple[str, int, bytes]


class Stream:
    """The stream of one store, for one thread. Its calls raise GatewayError where the store does not answer."""

    def __init__(self, section: StoreSection) -> None:
        self._calls = Calls(section)
        self._key = self._calls.names.key("fleet", "told")
        self._script = load_script("stream")
        self._after = ""

    def trade(self, instance: str, number: int, body: bytes) -> list[Entry]:
        """Add an entry; return those that were added since the last time, by anybody."""
        after, *found = self._calls.run(self._script, [self._key], (instance, number, body, self._after, KEPT, _MOST))
        self._after = after.decode("ascii")
        return [
            (name.decode("utf-8", "replace"), int(count), entry)
            for name, count, entry in zip(found[::3], found[1::3], found[2::3], strict=True)
        ]
