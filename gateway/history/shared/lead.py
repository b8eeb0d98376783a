"""One leads: a lease on the store's clock, and a token by which nobody writes who led before.

Rules
1. A lease that is not made longer ends by itself, and whoever asks next has it, with a higher token.
2. Every write names its token, and beside every record stands the highest one that wrote there (the *fence*). A new
   leader raises all fences before it reads anything: from then on whoever led before it can write nowhere, however long
   it slept, and whatever it was about to do.
3. A fence that is higher than our token (a store that went back in time) has us take a token above it.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from gateway.errors import GatewayError
from gateway.history.shared.records import FENCE_SECONDS, Records
from gateway.stores.calls import Calls, Word
from gateway.stores.link.script import load_script

__all__ = ["LEASE_MS", "Change", "FencedError", "Lead"]

LEASE_MS = 10_000
_FENCED = "another process leads the history by now"
_COUNTER_SECONDS = 2 * FENCE_SECONDS


class FencedError(GatewayError):
    """Another process leads by now; nothing was written."""


@dataclass(slots=True)
class Change:
    """What becomes of one record: how long it is kept, fields to set and to drop."""

    seconds: int
    sets: dict[Word, Word] = field(default_factory=dict)
    drops: set[Word] = field(default_factory=set)


class Lead:
    """The lease of one process. `token` is 0 while it does not lead."""

    def __init__(self, calls: Calls, process: str, lease_ms: int = LEASE_MS) -> None:
        self._calls = calls
        self._records = Records(calls.names)
        self._process = process
        self._lease_ms = lease_ms
        self._least = 0
        self._held = 0.0
        self.token = 0

    def hold(self) -> int:
        """Take the lease, or make it longer; return the token, 0 while another leads. Raises CallError."""
        self._held = time.monotonic()
        self.token = self._ask(self._lease_ms)
        return self.token

    def keep_on(self) -> None:
        """Make the lease longer in the midst of long work. Raises FencedError, CallError."""
        if time.monotonic() - self._held > self._lease_ms / 4000:
            token = self.token
            if not token or self.hold() != token:
                self.token = 0
                raise FencedError(_FENCED)

    def release(self) -> None:
        """Give the lease back. Raises CallError."""
        self.token = 0
        self._ask(0)

    def _ask(self, lease_ms: int) -> int:
        args: list[Word] = [self._process, lease_ms, self._least, _COUNTER_SECONDS]
        return int(self._calls.run(load_script("lead"), [self._records.lease, self._records.token], args))

    def fence(self, chunks: Iterable[str]) -> None:
        """Raise the fences of all, and of some chunks. Raises FencedError, CallError."""
        self.commit("", {})
        for chunk in chunks:
            self.keep_on()
            self.commit(chunk, {})

    def commit(self, chunk: str, changes: Mapping[bytes, Change]) -> bool:
        """Change records of a chunk, or of all (""), together; return whether any of them was lost to somebody else.

        Raises FencedError, CallError.
        """
        fence = self._records.of(chunk, "fence") if chunk else self._records.fence
        args: list[Word] = [self.token, FENCE_SECONDS]
        for change in changes.values():
            args += [change.seconds, len(change.sets), len(change.drops)]
            args += [word for pair in change.sets.items() for word in pair]
            args += change.drops
        seen = int(self._calls.run(load_script("commit"), [fence, *changes], args)) if self.token else 1
        if seen > 0:
            self._least = max(self._least, seen + 1)
            self.token = 0
            raise FencedError(_FENCED)
        if seen < 0:
            self._calls.warn(fence, "stands beside one that was of another type and is written anew")
        return seen < 0
