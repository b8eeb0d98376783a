"""Half a close: a caller that sends no more, and still gets its answers.

    FIN --> what came before it is parsed --> judged: nothing owed, or cut short --> closed | owed --> answered, closed

Rules
1. What the end of input means is judged once all that came before it was parsed, however long that waits for others,
   for answers before it, or for a caller that does not take them.
2. A body that was cut short ends its request: whoever sent it left. So does a head, with an answer.
3. Whether the caller is gone altogether shows when something is written: so a 100 is, which every client of HTTP/1.1
   skips. Whoever left answers it by a reset.
4. Under TLS there is no half: asyncio closes both directions.
"""

from __future__ import annotations

from typing import Final

from gateway.ports import Rejection
from gateway.proxy.ends import hung_up
from gateway.proxy.framing import HEAD, LINGER
from gateway.proxy.guest import Sparable
from policies.units import SECOND

__all__ = ["LOOK_US", "SOON_SECONDS", "Parting"]

#: How soon after half a close we look whether it was a whole one.
SOON_SECONDS: Final = 0.02
#: How often a connection that is not read is looked at, whether its caller is still there.
LOOK_US: Final = SECOND // 4

_PARTIAL: Final = Rejection(400, "bad-framing", "The connection was closed inside a request.")


class Parting(Sparable):
    """One connection of a listener, before it is guarded."""

    #: Whether the caller has closed its sending side, and whether that has yet to be judged.
    half_closed = False
    _ending = False

    def eof_received(self) -> bool:
        """Keep our side open while an answer is owed, or may be."""
        if self.half_closed:
            return self._state is not LINGER  # told again, by a loop that was told to read on
        self.half_closed = True
        if self.scheme == "https":
            if self._unfed:
                self.on_turn()
            return False
        if self._state is LINGER:
            return False
        if self._unfed:
            self._ending = True
        elif not self._owes():
            self.close()  # the loop's own close waits for ever for a caller that takes nothing
            return False
        if self._turn is not None:
            self._turn.probe()
        self.loop.call_later(SOON_SECONDS, self._look, SOON_SECONDS)
        return True

    def end(self) -> None:
        """Judge the end of input: all that came before it is parsed."""
        self._ending = False
        if self._state is LINGER:
            return
        if not self._owes():
            self.close()
        elif self._turn is not None:
            self._turn.probe()

    def close(self) -> None:
        """Close both sides once what was written is taken."""
        raise NotImplementedError  # a subclass's: the guard's

    def leave(self) -> None:
        """End everything: the caller is gone."""
        raise NotImplementedError  # a subclass's: the guard's

    def _owes(self) -> bool:
        """Return whether our side stays open at the end of input; what it cut short is over."""
        receiving = self._receiving
        if receiving is not None and receiving not in self._queue:
            self.leave()
        elif self._state is HEAD or receiving is not None:
            self.refuse(_PARTIAL)
        elif self._turn is None and not self._queue and self._fault is None:
            return False
        return self._state is not LINGER

    def _look(self, waited: float) -> None:
        """See whether the half-closed caller has answered by a reset: a loop that does not read is not told."""
        if self.transport.is_closing() or self._state is LINGER:
            return
        if hung_up(self.transport):
            self.leave()
            self.transport.abort()
        else:
            again = min(2 * waited, LOOK_US / SECOND)  # whoever has not answered yet is there, and waits
            self.loop.call_later(again, self._look, again)
