"""A connection as one of many: its place among those of its address, and whether it can be spared.

    before its handshake --> waits for a head --> under way --> waits for the next --> ...

What it waits since is read off its deadline: no request pays for it.
"""

from __future__ import annotations

from collections.abc import Callable

from gateway.proxy.framing import HEAD, IDLE, LINGER, Framing
from gateway.proxy.rear import Rear
from gateway.proxy.turn import Turn
from policies.units import SECOND

__all__ = ["Sparable"]


class Sparable(Framing):
    """One connection of a listener, before it is guarded."""

    _turn: Turn | None
    _queue: list[Turn]
    _going: bool
    rear: Rear

    #: Whether a request was ever answered here; whether the last answer was ours, as a refusal is.
    served = False
    refused = False
    #: Ends a handshake; set by whoever shakes hands.
    break_off: Callable[[], object] | None = None
    #: When it was counted in, in loop time; 0.0 while it is not.
    _entered = 0.0

    def enter(self, peer: str) -> bool:
        """Count it in, under TLS before it is made; False if there are too many, or it is nobody's (`peer`)."""
        self.peer = peer
        if not peer:
            return False
        self._entered = now = self.loop.time()
        return self.post.enter(self, now)

    def prove(self) -> None:
        """Note that a request was answered here."""
        self.served = True
        self.post.crowd.proven(self)

    def data_received(self, data: bytes) -> None:
        """Take octets, once others have passed if the request before was refused."""
        if self.refused and self._state is IDLE and not self._unfed and self.stands_behind():
            self._unfed = data
        else:
            Framing.data_received(self, data)

    def stands_behind(self) -> bool:
        """Let others pass, if there may be others: it goes on by `on_turn`."""
        self._going = self._going or self.rear.takes(self)
        return self._going

    def on_turn(self) -> None:
        """Go on: others have passed."""
        raise NotImplementedError  # a subclass's: the guard's

    def waits_since(self) -> float:
        """Return since when it waits for its caller, in loop time; 0.0 if something is owed to the caller."""
        if not self._is_made():
            return self._entered
        if self._turn is not None or self._queue or self._begun or self._receiving is not None or not self.deadline:
            return 0.0
        if self._state not in (IDLE, HEAD) or self._fault is not None or self._unfed:
            return 0.0
        if self.read_paused or self.write_paused:
            return 0.0
        limits = self.post.limits
        idle = self.served and self._state is IDLE
        return self.deadline - (limits.keepalive_timeout_us if idle else limits.header_timeout_us) / SECOND

    def shed(self) -> None:
        """Close it unanswered: its place is needed."""
        if self._is_made():
            self._state = LINGER
            self.transport.abort()
        elif self.break_off is not None:
            self.break_off()

    def _is_made(self) -> bool:
        made: object = self.transport
        return made is not None
