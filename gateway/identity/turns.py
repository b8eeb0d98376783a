"""Whose question is asked next: round robin by address, and when none is asked at all.

Rules
1. `Turns`: so many at a time; what waits does so by address, and addresses take turns, so that whoever invents tokens
   waits behind its own. Bounded for each address and in all: where all is full, the longest line gives its last place
   to a newcomer with a shorter one.
2. What has waited longer than `patience` is not asked any more.
3. `Circuit`: one token's failure is no outage, since whoever sends odd tokens chooses what fails. It opens when
   connecting failed `_IN_A_ROW` times with nothing answered between, or questions of as many addresses did, or
   `_OF_ONE` of whatever address; `down` later a few are let through, one of an address, and any answer closes it.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from typing import Generic, TypeVar

from policies.units import SECOND, Micros

__all__ = ["Circuit", "Turns"]

_IN_A_ROW = 3
_OF_ONE = 16
_PROBES = 4
#: A question that was let through and was not asked after all gives its place back.
_STUCK: Micros = 5 * SECOND
#: Questions in a row that are remembered by address; more say nothing new.
_KEPT = 64

T = TypeVar("T")


class Turns(Generic[T]):
    """At most `parallel` at a time, `per_address` of an address and `most` in all waiting or asked."""

    def __init__(self, parallel: int, per_address: int, most: int, patience: Micros) -> None:
        self._parallel, self._per_address, self._most, self._patience = parallel, per_address, most, patience
        self._lines: OrderedDict[str, deque[tuple[Micros, T]]] = OrderedDict()
        self._of: dict[str, int] = {}
        self._asked = self._held = 0

    def enter(self, address: str, what: T, now: Micros) -> tuple[bool, T | None]:
        """Let `what` wait; return whether it does, and who lost its place to it."""
        if self._of.get(address, 0) >= self._per_address:
            return False, None
        evicted: T | None = None
        if self._held >= self._most:
            longest = max(self._lines, key=lambda one: len(self._lines[one]), default=None)
            if longest is None or len(self._lines[longest]) <= len(self._lines.get(address, ())) + 1:
                return False, None
            evicted = self._lines[longest].pop()[1]
            self._leave(longest)
        self._held += 1
        self._of[address] = self._of.get(address, 0) + 1
        self._lines.setdefault(address, deque()).append((now, what))
        return True, evicted

    def next(self, now: Micros) -> tuple[T | None, list[T]]:
        """Return what is asked now, if anything is, and what has waited too long."""
        late: list[T] = []
        while self._lines and self._asked < self._parallel:
            address, line = next(iter(self._lines.items()))
            since, what = line.popleft()
            if line:
                self._lines.move_to_end(address)
            else:
                del self._lines[address]
            if now - since > self._patience:
                self._leave(address)
                late.append(what)
                continue
            self._asked += 1
            return what, late
        return None, late

    def done(self, address: str) -> None:
        """Give back the turn of a question of `address`."""
        self._asked -= 1
        self._leave(address)

    def _leave(self, address: str) -> None:
        self._held -= 1
        left = self._of.pop(address) - 1
        if left:
            self._of[address] = left


class Circuit:
    """Whether the service is asked at all. `down` is how long it is not, once it is taken for silent."""

    def __init__(self, down: Micros = SECOND) -> None:
        self._down = down
        self._open = False
        self._until: Micros = 0
        self._probed: Micros = 0
        self._unreachable = self._failures = 0
        self._failing: set[str] = set()
        self._probing: set[str] = set()

    def lets(self, address: str, now: Micros) -> bool:
        """Return whether a question of `address` may be asked; while half open, that takes a place of the few."""
        if not self._open:
            return True
        if now - self._probed > _STUCK:
            self._probing.clear()
        if now < self._until or address in self._probing or len(self._probing) >= _PROBES:
            return False
        self._probing.add(address)
        self._probed = now
        return True

    def answered(self) -> None:
        """Note that the service answers."""
        self._open, self._unreachable, self._failures = False, 0, 0
        self._failing.clear()
        self._probing.clear()

    def failed(self, address: str, now: Micros, *, unreachable: bool) -> None:
        """Note that a question of `address` found nobody (`unreachable`), or an answer that speaks of an outage."""
        self._unreachable += unreachable
        self._failures += 1
        if len(self._failing) < _KEPT:
            self._failing.add(address)
        self._probing.discard(address)
        in_a_row = max(self._unreachable, len(self._failing))
        if self._open or in_a_row >= _IN_A_ROW or self._failures >= _OF_ONE:
            self._open, self._until = True, now + self._down
            self._probing.clear()
