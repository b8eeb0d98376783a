"""Who waits for the store, and for what: each is told once, by whichever comes first.

    ask --> waits for some answers --+-- all came, and it is known now --> resumed
                                     +-- all came, and it is not ------> asks again
                                     +-- an answer failed, or `deadline` is over --> resumed, for a posture to decide
                                     +-- the caller left --> taken back

Rules
1. Exactly once: `over` is set before anybody is called.
2. Whoever came first is resumed first, a few at a time: a thousand that waited for one answer do not hold up the loop.
3. One that is resumed without an answer must not ask again within that call (`excused`), or it would wait for ever.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Protocol

from policies.charge import Plan
from policies.units import SECOND, Micros

__all__ = ["Desk", "LoopTurns", "Timer", "Turns", "Waiter"]

#: Waiters resumed before the loop has its turn; of a long line this part, or a busy loop would never get through it.
AT_ONCE, PART = 8, 8


class Timer(Protocol):
    """What takes a call back."""

    def cancel(self) -> None:
        """Do not call."""
        ...


class Turns(Protocol):
    """The part of an event loop that is needed here."""

    def call_soon(self, callback: Callable[[], object], /) -> object:
        """Call in the next turn."""
        ...

    def call_later(self, delay: float, callback: Callable[[], object], /) -> Timer:
        """Call in `delay` seconds."""
        ...


class LoopTurns:
    """The loop of the data plane, which is not there yet when a store is opened; without one nothing is called."""

    def __init__(self) -> None:
        self.loop: asyncio.AbstractEventLoop | None = None

    def call_soon(self, callback: Callable[[], object], /) -> object:
        """Call in the next turn."""
        return None if self.loop is None else self.loop.call_soon(callback)

    def call_later(self, delay: float, callback: Callable[[], object], /) -> Timer:
        """Call in `delay` seconds."""
        if self.loop is None:
            raise RuntimeError("nobody can wait for the store before it was started")
        return self.loop.call_later(delay, callback)


class Waiter:
    """One request. `left` is how many answers it waits for; `overdue` once it was told that none came in time."""

    __slots__ = ("begun", "left", "over", "overdue", "plan", "resume", "timer")

    def __init__(self, plan: Plan, resume: Callable[[], None], now: Micros) -> None:
        self.plan = plan
        self.resume = resume
        self.begun = now
        self.left = 0
        self.over = self.overdue = False
        self.timer: Timer | None = None

    def end(self) -> bool:
        """Note that it waits no longer; False if it did not wait any more."""
        if self.over:
            return False
        self.over = True
        if self.timer is not None:
            self.timer.cancel()
            self.timer = None
        return True


class Desk:
    """All waiters of a process. `noted` is told how long each of them waited."""

    def __init__(self, turns: Turns, deadline: Micros, now: Callable[[], Micros]) -> None:
        self._turns = turns
        self._deadline = deadline
        self._now = now
        self._line: deque[tuple[Waiter, bool]] = deque()
        self._serving = False
        #: The plan of whoever is resumed now without an answer.
        self._excused: Plan | None = None
        self.waiting = 0
        self.noted: Callable[[Micros], None] = lambda _waited: None
        #: Tries a waiter whose answers have come; returns whether it waits again.
        self.again: Callable[[Waiter, Micros], bool] = lambda _waiter, _now: False

    def open(self, plan: Plan, resume: Callable[[], None], now: Micros) -> Waiter:
        """Let a request wait, at most until the deadline."""
        waiter = Waiter(plan, resume, now)
        waiter.timer = self._turns.call_later(self._deadline / SECOND, lambda: self._due(waiter))
        self.waiting += 1
        return waiter

    def _due(self, waiter: Waiter) -> None:
        """Let what has arrived by now be read first (`link.wire.once_read` says why)."""
        self._turns.call_soon(lambda: self._turns.call_soon(lambda: self._give_up(waiter)))

    def _give_up(self, waiter: Waiter) -> None:
        waiter.overdue = not waiter.over
        self._told(waiter, known=False)

    def leave(self, waiter: Waiter) -> None:
        """Take a wish back: the caller left."""
        if waiter.end():
            self.waiting -= 1
            self.noted(self._now() - waiter.begun)

    def excused(self, plan: Plan) -> bool:
        """Return whether whoever asks with `plan` was just told that there is no answer."""
        if self._excused is None:
            return False
        excused, self._excused = self._excused, None
        return excused is plan

    def answered(self, waiter: Waiter, *, known: bool) -> None:
        """Count one of its answers, or that there will be none."""
        waiter.left -= 1
        if not waiter.over and (waiter.left <= 0 or not known):
            self._line.append((waiter, known))

    def serve(self) -> None:
        """Resume those whose answers have come, the first ones at once."""
        if not self._serving:
            self._serve()

    def _serve(self) -> None:
        self._serving = True
        line = self._line
        for _ in range(min(len(line), max(AT_ONCE, len(line) // PART))):
            waiter, known = line.popleft()
            if waiter.over or (known and self.again(waiter, self._now())):
                continue
            self._told(waiter, known=known)
        self._serving = bool(line)
        if line:
            self._turns.call_soon(self._serve)

    def _told(self, waiter: Waiter, *, known: bool) -> None:
        if not waiter.end():
            return
        self.waiting -= 1
        self.noted(self._now() - waiter.begun)
        self._excused = None if known else waiter.plan
        waiter.resume()
        self._excused = None
