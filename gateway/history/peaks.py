"""What a key reached, hour by hour, and which of it counts: the measuring side of `policies/sizing_past.py`.

Rules
1. A slot that was refused anything, or used more than 90 % of the quota in force, is an event. It censors its hour, and
   the half hour before and after it: a ramp of twenty minutes that ends at the limit teaches nothing on its way up,
   whichever hour its beginning falls into.
2. An hour is sealed when the half hour after it is over, and never changes then.
3. Hours are counted from the epoch, so they are UTC: no change of the local clock makes one longer or comes twice.
4. A slot is known when it is over: `add` may bring it in parts, in order.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator
from typing import Final

from policies.native import mypyc_attr
from policies.sizing_past import TOP, Hour

__all__ = ["HALF_SECONDS", "HOUR_SECONDS", "SATURATED", "KeyPeaks", "sealed_before"]

HOUR_SECONDS: Final = 3600
HALF_SECONDS: Final = 1800
#: Part of the quota above which a slot is taken for limited although nothing was refused.
SATURATED: Final = 0.9


def sealed_before(now: int) -> int:
    """Return the first hour that is not sealed at `now` (epoch seconds)."""
    return (now - HALF_SECONDS) // HOUR_SECONDS


@mypyc_attr(acyclic=True)
class _Half:
    """Half an hour: its highest slots, and what happened in it.

    Ten thousand keys have two or three of these, so it holds numbers, not tuples of numbers.
    """

    __slots__ = ("_second", "_top", "_units", "_worst", "censored", "offered", "own")

    def __init__(self) -> None:
        #: Rate and best second of each of the highest slots, in no order; and where the lowest of all `TOP` is.
        self._top: array[float] = array("d")
        self._worst = -1
        self._units = self._second = 0.0
        self.censored = 0
        self.own = False
        self.offered = 0.0

    def reach(self, units: float, second: float) -> None:
        """Note a slot, by its rate and its best second."""
        top = self._top
        if self._worst < 0:
            top.append(units)
            top.append(second)
            if len(top) == 2 * TOP:
                self._look()
        elif units > self._units or (units == self._units and second > self._second):
            top[self._worst], top[self._worst + 1] = units, second
            self._look()

    def _look(self) -> None:
        """Find the lowest."""
        slots = self.slots()
        self._units, self._second = lowest = min(slots)
        self._worst = 2 * slots.index(lowest)

    def slots(self) -> list[tuple[float, float]]:
        """Return the highest slots, in no order."""
        top = self._top
        return list(zip(top[::2], top[1::2], strict=True))


@mypyc_attr(acyclic=True)
class KeyPeaks:
    """The unsealed hours of one key or tenant. `interval` is the length of a slot in seconds."""

    __slots__ = ("_halves", "_interval", "_offered", "_own", "_refused", "_saturated", "_sealed", "_second",
                 "_slot", "_units")  # fmt: skip

    def __init__(self, interval: int) -> None:
        self._interval = interval
        self._halves: dict[int, _Half] = {}
        self._sealed = 0
        self._open(-1)

    def _open(self, slot: int) -> None:
        self._slot = slot
        self._units = self._offered = self._second = 0.0
        self._refused = self._own = self._saturated = False

    @property
    def empty(self) -> bool:
        """True if nothing is left to seal."""
        return not self._halves and self._slot < 0

    def add(
        self, at: int, units: float, second: float, offered: float, *, refused: bool, own: bool, quota: float
    ) -> None:
        """Add what was admitted and offered, in units, from epoch second `at` on; `quota` is in units a second.

        `refused` says that any limit refused something, `own` that the key's (or tenant's) own did.
        """
        slot = at // self._interval
        if slot != self._slot:
            self._close()
            self._open(slot)
        self._units += units
        self._offered += offered
        self._second = max(self._second, second)
        self._refused = self._refused or refused
        self._own = self._own or own
        self._saturated = self._units > SATURATED * quota * self._interval

    def _close(self) -> None:
        """Put the open slot into its half hour."""
        if self._slot < 0:
            return
        number = self._slot * self._interval // HALF_SECONDS
        half = self._halves.get(number)
        if half is None:
            half = self._halves[number] = _Half()
        half.reach(self._units / self._interval, self._second)
        half.offered = max(half.offered, self._offered / self._interval)
        if self._refused or self._saturated:
            half.censored += 1
            half.own = half.own or self._own or self._saturated

    def seal(self, before: int) -> Iterator[Hour]:
        """Yield the hours older than number `before`, in order, and forget what no later one needs."""
        if (self._slot + 1) * self._interval <= before * HOUR_SECONDS + HALF_SECONDS:
            self._close()
            self._open(-1)
        halves = self._halves
        for number in sorted({half // 2 for half in halves if self._sealed <= half // 2 < before}):
            yield self._hour(number)
        self._sealed = max(self._sealed, before)
        for half in [half for half in halves if half < 2 * before - 1]:
            del halves[half]
        if 2 * before - 1 in halves and 2 * before not in halves and 2 * before + 1 not in halves and self._slot < 0:
            del halves[2 * before - 1]

    def _hour(self, number: int) -> Hour:
        first, second = self._halves.get(2 * number), self._halves.get(2 * number + 1)
        both = [half for half in (first, second) if half is not None]
        censored = sum(half.censored for half in both)
        if not censored:
            both = [
                half
                for half, beside in ((first, 2 * number - 1), (second, 2 * number + 2))
                if half is not None and not self._eventful(beside)
            ]
        slots = sorted((entry for half in both for entry in half.slots()), reverse=True)[:TOP]
        offered = max(half.offered for half in (first, second) if half is not None)
        return Hour(number, tuple(slots), censored, offered, any(half.own for half in both))

    def _eventful(self, half: int) -> bool:
        found = self._halves.get(half)
        return found is not None and found.censored > 0
