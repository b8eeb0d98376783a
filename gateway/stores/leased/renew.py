"""Rounds: every pocket and place in use is looked at ten times a second, in slices.

Rules
1. A round asks ahead for what is in demand, gives back what is not, renews seats, and lets go of what nobody uses.
2. A slice ends after `SLICE`, and the loop has its turn before the next: ten thousand warm keys hold up nobody.
3. Processes begin their rounds at phases of their own, so that a fleet does not ask all at once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from gateway.stores.leased.asking import Asking
from gateway.stores.leased.places import Place
from gateway.stores.leased.pockets import ROUND, Pocket
from gateway.stores.leased.waiting import Turns
from policies.units import Micros

__all__ = ["SLICE", "Rounds"]

SLICE: Micros = 300
#: Pockets looked at between two readings of the clock.
_AT_ONCE = 16


class Rounds:
    """The rounds of a process; `phase`, in [0, 1), is where in a round the first one begins."""

    def __init__(self, asking: Asking, turns: Turns, now: Callable[[], Micros], phase: float) -> None:
        self._asking = asking
        self._turns = turns
        self._now = now
        self._next = now() + int(phase * ROUND)
        self._work: Iterator[None] | None = None

    def tick(self, now: Micros) -> None:
        """Begin a round if it is time."""
        if self._work is None and now >= self._next:
            self._next = max(self._next + ROUND, now + ROUND // 2)
            self._work = self._round(now)
            self._slice()

    def _slice(self) -> None:
        work = self._work
        if work is None:
            return
        ends = self._now() + SLICE
        for _ in work:
            if self._now() >= ends:
                self._turns.call_soon(self._slice)
                break
        else:
            self._work = None

    def _round(self, now: Micros) -> Iterator[None]:
        """Look at everything, with a pause every few."""
        asking = self._asking
        places, asking.active_places = asking.active_places, []
        for place in places:
            self._look_at_place(place, now)
        yield
        pockets, asking.active = asking.active, []
        for count, pocket in enumerate(pockets, 1):
            self._look_at(pocket, now)
            if not count % _AT_ONCE:
                yield

    def _look_at(self, pocket: Pocket, now: Micros) -> None:
        asking = self._asking
        if pocket.turn(now) and asking.up:
            asking.queue(pocket)
        if pocket.lapsed(now):
            pocket.active = False
        else:
            asking.active.append(pocket)

    def _look_at_place(self, place: Place, now: Micros) -> None:
        asking = self._asking
        if asking.up and place.due(now):
            asking.queue_place(place)
        if place.idle(now):
            place.active = False
        else:
            asking.active_places.append(place)
