"""One call of the store: sent once, answered once.

Rules
1. The answer is called exactly once: with the reply, with the fault, or with a time-out. A reply that comes after the
   time-out goes to `late`, for it may carry what has been charged; nothing else ever sees it.
2. What may have run is never sent again. Sent again is only what the server says that it did not run: NOSCRIPT, MOVED,
   ASK, TRYAGAIN.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

from gateway.stores.link.faults import StoreFault
from gateway.stores.link.resp import encode
from gateway.stores.link.script import Script

__all__ = ["Answer", "Call"]

#: Takes a reply (int, bytes, None, a list of these) or a `StoreFault`.
Answer = Callable[[object], None]

#: Times a call may be told to go elsewhere.
_MOST_HOPS = 8


class Call:
    """A command on its way; `done` once it has been answered.

    `script` is None for a plain command; `slot` is that of its names.
    """

    __slots__ = ("_answer", "_hops", "_late", "_timer", "_words", "done", "script", "slot")

    def __init__(
        self,
        words: Sequence[bytes],
        script: Script | None,
        answer: Answer,
        late: Answer | None,
        slot: int,
    ) -> None:
        """Make a call of `words`, or of `script` with `words` as number of names, names and arguments."""
        self._words = words
        self.script = script
        self._answer = answer
        self._late = late
        self._hops = 0
        self._timer: asyncio.TimerHandle | None = None
        self.slot = slot
        self.done = False

    def limit(self, timer: asyncio.TimerHandle) -> None:
        """Hold what will give the call up."""
        self._timer = timer

    def command(self, *, full: bool = False) -> bytes:
        """Return what to send; `full` has the script itself travel."""
        if self.script is None:
            return encode(self._words)
        head = (b"EVAL", self.script.source) if full else (b"EVALSHA", self.script.sha)
        return encode((*head, *self._words))

    def hop(self) -> bool:
        """Count a time that it has to go elsewhere, and return whether it may."""
        self._hops += 1
        return self._hops <= _MOST_HOPS and not self.done

    def settle(self, reply: object) -> None:
        """Answer with what came; after a time-out, only a reply is of any use."""
        if not self.done:
            self.done = True
            if self._timer is not None:
                self._timer.cancel()
            self._answer(reply)
        elif self._late is not None and not isinstance(reply, StoreFault):
            late, self._late = self._late, None
            late(reply)
