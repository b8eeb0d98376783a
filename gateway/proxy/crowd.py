"""All connections of callers together: how many there are of each address, and whose goes when there are too many.

Rules
1. An address is what a request's is: an IPv6 caller is its prefix (`address`), or one subscriber would have 2^64.
2. Above the cap of an address the new connection goes. Proxies of our own have none: they speak for many.
3. Above the cap of all, room is made by a connection of the address that holds most, the one that has waited longest
   for its caller; where several addresses hold as much, first by one of which no request was ever answered. No address
   loses one to an address that holds more, and a proxy's go last. Where nothing waits, the new one goes.
4. A WebSocket counts twice, since its upstream's connection is no pool's.
5. Every step is bounded: an address is scanned once for as many of its connections as then wait, one of more than
   `_FEW` again after `_PAUSE` at the soonest; `LOOK` addresses are looked at for one newcomer, and after a search in
   vain the next is `_PAUSE` later.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Iterator
from typing import Protocol

__all__ = ["LOOK", "RESERVE", "Crowd", "Guest", "room"]

#: Addresses that are looked at to make room once.
LOOK = 16
#: Descriptors for all but callers and upstreams: listeners, the admin's connections, files, what identity asks.
RESERVE = 128
#: Seconds without another search.
_PAUSE = 0.05
#: Connections that are looked at whenever it is asked.
_FEW = 64


def room(files: int, pooled: int) -> int:
    """Return how many connections callers may have of `files` descriptors, beside upstream pools of `pooled` at most.

    A request takes two, so half of what is there is enough for upstreams, whatever their pools are allowed.
    """
    left = max(2, files - min(RESERVE, files // 4))
    return left - min(pooled, left // 2)


class Guest(Protocol):
    """A connection of a caller. `peer` is its socket's address."""

    peer: str

    def waits_since(self) -> float:
        """Return since when it waits for its caller, in loop time; 0.0 if something is owed to the caller."""
        ...

    def shed(self) -> None:
        """Close it, unanswered."""
        ...


class _Address:
    """One address: its connections, and those that waited when it was last scanned, the longest first."""

    __slots__ = ("_scanned_at", "_waiting", "guests", "name", "proven", "proxy")

    def __init__(self, name: str, *, proxy: bool) -> None:
        self.name = name
        self.proxy = proxy
        #: Whether a request of it was answered.
        self.proven = False
        self.guests: dict[Guest, None] = {}
        self._waiting: deque[tuple[float, Guest]] = deque()
        self._scanned_at = -_PAUSE

    def longest(self, newcomer: Guest, now: float) -> tuple[float, Guest] | None:
        """Return who has waited longest, and since when."""
        waiting = self._waiting
        # Whoever still waits since then has waited longer than all who began after the scan.
        while waiting and not self._stands(*waiting[0]):
            waiting.popleft()
        if not waiting and (len(self.guests) <= _FEW or now - self._scanned_at >= _PAUSE):
            self._scanned_at = now
            found = [
                (since, guest) for guest in self.guests if guest is not newcomer and (since := guest.waits_since())
            ]
            found.sort(key=_since)
            self._waiting = waiting = deque(found)
        return waiting[0] if waiting else None

    def _stands(self, since: float, guest: Guest) -> bool:
        return guest in self.guests and guest.waits_since() == since


class Crowd:
    """The connections of one listener. `most` is the cap of all, 0 for none."""

    __slots__ = ("_addresses", "_at", "_barren_until", "_levels", "_name", "_trusts", "_twice", "most", "shed")

    def __init__(self, name: Callable[[str], str], trusts: Callable[[str], bool]) -> None:
        """`name` is the address that a peer is charged under, `trusts` whether it is a proxy of our own."""
        self.most = 0
        self.shed = 0
        self._name = name
        self._trusts = trusts
        self._addresses: dict[str, _Address] = {}
        self._at: dict[Guest, _Address] = {}
        self._twice: set[Guest] = set()
        #: Addresses by how many connections they hold, those that are not proven above others; proxies stand nowhere.
        self._levels: dict[tuple[int, bool], dict[_Address, None]] = {}
        self._barren_until = 0.0

    def __len__(self) -> int:
        """How many descriptors the connections take."""
        return len(self._at) + len(self._twice)

    def counts(self) -> dict[str, int]:
        """Return how many connections each address holds."""
        return {name: len(address.guests) for name, address in self._addresses.items()}

    def enter(self, guest: Guest, cap: int, now: float) -> bool:
        """Count a connection in; False if its address has more than `cap`, or all together too many (rule 3)."""
        name = self._name(guest.peer)
        address = self._addresses.get(name)
        if address is None:
            address = self._addresses[name] = _Address(name, proxy=self._trusts(guest.peer))
        address.guests[guest] = None
        self._at[guest] = address
        held = len(address.guests)
        self._move(address, held - 1, held)
        if cap and held > cap and not address.proxy:
            return False
        return not self.most or len(self) <= self.most or self._make_room(guest, address, now)

    def doubled(self, guest: Guest) -> None:
        """Count it twice from now on: it is a WebSocket."""
        if guest in self._at:
            self._twice.add(guest)

    def leave(self, guest: Guest) -> None:
        """Count it out, if it has not been."""
        address = self._at.pop(guest, None)
        if address is None:
            return
        self._twice.discard(guest)
        del address.guests[guest]
        held = len(address.guests)
        self._move(address, held + 1, held)
        if not held:
            del self._addresses[address.name]

    def proven(self, guest: Guest) -> None:
        """Note that a request of this connection was answered."""
        address = self._at.get(guest)
        if address is not None and not address.proven:
            held = len(address.guests)
            self._move(address, held, 0)
            address.proven = True
            self._move(address, 0, held)

    def _move(self, address: _Address, before: int, now: int) -> None:
        if address.proxy:
            return
        if before:
            key = before, not address.proven
            level = self._levels[key]
            del level[address]
            if not level:
                del self._levels[key]
        if now:
            self._levels.setdefault((now, not address.proven), {})[address] = None

    def _make_room(self, newcomer: Guest, address: _Address, now: float) -> bool:
        if now < self._barren_until:
            return False
        victim = self._victim(newcomer, 0 if address.proxy else len(address.guests), now)
        if victim is None:
            self._barren_until = now + _PAUSE
            return False
        # At once: its descriptor is free before another is accepted.
        self.leave(victim)
        self.shed += 1
        victim.shed()
        return True

    def _victim(self, newcomer: Guest, least: int, now: float) -> Guest | None:
        for address in self._fullest(newcomer, least, now):
            if (found := address.longest(newcomer, now)) is not None:
                return found[1]
        return None

    def _fullest(self, newcomer: Guest, least: int, now: float) -> Iterator[_Address]:
        """Yield addresses that hold `least` or more, the fullest first, of equals in the order of rule 3."""
        left = LOOK
        for key in sorted(self._levels, reverse=True):
            if key[0] < least or left <= 0:
                break
            level = self._levels[key]
            equals = [address for _, address in zip(range(left), level, strict=False)]
            left -= len(equals)
            for address in equals:  # so that every address has its turn to be looked at
                del level[address]
                level[address] = None
            yield from sorted(equals, key=lambda each: _rank(each, newcomer, now))
        yield from [address for address in self._addresses.values() if address.proxy][:LOOK]


def _since(entry: tuple[float, Guest]) -> float:
    return entry[0]


def _rank(address: _Address, newcomer: Guest, now: float) -> float:
    found = address.longest(newcomer, now)
    return math.inf if found is None else found[0]
