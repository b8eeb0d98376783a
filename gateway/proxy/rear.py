"""The rear of the line: whoever was refused last is heard behind those who were not.

A flood is refused, and it comes at once: taken as they come, a hundred refusals stand before the one request of
somebody else. To refuse is cheap, but not as cheap as to let others pass.

Rules
1. Only a connection whose last request was answered by ourselves stands here, and only between two requests.
2. While nobody stands here, `STRIDE` in each millisecond are heard at once: whoever is refused now and then, or at a
   pace that harms nobody, does not wait.
3. Of those who stand here `STRIDE` are heard in a turn of the loop, first come first heard; then it looks at its
   sockets again. So they wait for others, and always move on.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Final, Protocol

__all__ = ["STRIDE", "Rear", "Standing"]

#: How many of them stand before anybody else at most.
STRIDE: Final = 4


class Standing(Protocol):
    """Who stands in the rear."""

    def on_turn(self) -> None:
        """Go on: those before have been heard."""
        ...


class Rear:
    """The rear of one event loop."""

    __slots__ = ("_at", "_going", "_heard", "_loop", "_standing", "_time")

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._time = loop.time
        self._standing: deque[Standing] = deque()
        self._at = self._heard = 0
        self._going = False

    def takes(self, one: Standing) -> bool:
        """Return whether `one` has to wait here for its `on_turn`; false if it may go on at once (rule 2)."""
        if not self._going:
            # The time of uvloop stands still within a turn, however many it hears in it.
            now = int(self._time() * 1000)
            if now != self._at:
                self._at = now
                self._heard = 0
            if self._heard < STRIDE:
                self._heard += 1
                return False
            self._going = True
            self._loop.call_soon(self._turn)
        self._standing.append(one)
        return True

    def _turn(self) -> None:
        standing = self._standing
        left = STRIDE
        try:
            while left and standing:
                left -= 1
                standing.popleft().on_turn()
        finally:
            self._going = bool(standing)
            if standing:
                self._loop.call_soon(self._turn)
