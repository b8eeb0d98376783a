"""Deadlines of many connections on one timer.

A `call_later` for every read would cost more than the read. Here a connection writes its deadline into a slot of a
coarse wheel; moving it later is one assignment, since a slot that comes up only asks whether it is really due.

Rules
1. A deadline is met at most `GRAIN` seconds late, never early.
2. A connection stands in one slot at most, and in none once it is forgotten: the wheel keeps nothing alive.
3. The timer runs only while something stands in the wheel.
"""

from __future__ import annotations

import asyncio
from typing import Final

from policies.native import mypyc_attr
from policies.units import SECOND, Micros

__all__ = ["GRAIN", "Deadlines", "Due"]

#: Seconds between two looks at the wheel.
GRAIN: Final = 0.25


@mypyc_attr(allow_interpreted_subclasses=True)
class Due:
    """Something with a deadline. `deadline` is in loop time, 0.0 for none; `filed` belongs to the wheel."""

    def __init__(self) -> None:
        self.deadline = 0.0
        self.filed = 0

    def on_deadline(self, now: float) -> None:
        """Act: the deadline has passed, and was set to 0.0 before this call."""
        raise NotImplementedError  # a subclass's; a Protocol would be looked up by name


class Deadlines:
    """The wheel of one event loop."""

    __slots__ = ("_handle", "_loop", "_slots", "_time")

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        #: Looked up once: it is asked with every request.
        self._time = loop.time
        self._slots: dict[int, dict[Due, None]] = {}
        self._handle: asyncio.TimerHandle | None = None

    def within(self, due: Due, timeout_us: Micros) -> None:
        """Give `due` so long from now, replacing the deadline it had."""
        self.set(due, self._time() + timeout_us / SECOND)

    def set(self, due: Due, deadline: float) -> None:
        """Give `due` a deadline in loop time, replacing the one it had."""
        due.deadline = deadline
        slot = int(deadline / GRAIN) + 1
        if due.filed == 0:
            self._file(due, slot)
        elif slot < due.filed:
            self._unfile(due)
            self._file(due, slot)

    def clear(self, due: Due) -> None:
        """Take the deadline back."""
        due.deadline = 0.0

    def forget(self, due: Due) -> None:
        """Take it back for good."""
        due.deadline = 0.0
        if due.filed:
            self._unfile(due)

    def _unfile(self, due: Due) -> None:
        slot = self._slots.get(due.filed)
        if slot is not None:
            slot.pop(due, None)
        due.filed = 0

    def _file(self, due: Due, slot: int) -> None:
        due.filed = slot
        self._slots.setdefault(slot, {})[due] = None
        self._run()

    def _run(self) -> None:
        """Have the timer running (rule 3)."""
        if self._handle is None:
            self._handle = self._loop.call_later(GRAIN, self._turn)

    def _turn(self) -> None:
        now = self._time()
        current = int(now / GRAIN)
        self._handle = None
        try:
            for slot in [slot for slot in self._slots if slot <= current]:
                standing = self._slots[slot]
                # One by one: a visit may forget others.
                while standing:
                    self._visit(standing.popitem()[0], now)
                del self._slots[slot]
        finally:
            if self._slots:
                self._run()

    def _visit(self, due: Due, now: float) -> None:
        due.filed = 0
        deadline = due.deadline
        if deadline > now:
            self._file(due, int(deadline / GRAIN) + 1)
        elif deadline:
            due.deadline = 0.0
            due.on_deadline(now)
