"""The pockets and places of a process, bounded.

Rules
1. As in `memory.py`: pockets of configured buckets stand outside `max_keys`; of the others a hand going round drops
   those that nobody would miss, and with no room left new keys share one overflow bucket per kind of limit. The store
   has as many records as its processes have pockets: one is kept until its record is as good as new.
2. A pocket takes over the rate and burst of whoever asks next.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from gateway.stores.leased.places import Place
from gateway.stores.leased.pockets import Pocket
from gateway.stores.leased.tags import tag_of
from gateway.stores.names import Names
from policies.charge import Charge, SeatCharge
from policies.units import Micros

__all__ = ["Table"]

#: Pockets looked at for each new key, and at each sweep.
SWEEP_PER_KEY = 4
SWEEP_PER_TICK = 100


class Table:
    """Pockets by bucket, places by holder. `group` tells of a record which others may be asked for in one call."""

    __slots__ = ("_group", "_hand", "_left", "_max_keys", "_names", "_overflow", "_pinned", "_ring", "overflowed",
                 "places", "pockets")  # fmt: skip

    def __init__(self, names: Names, max_keys: int, group: Callable[[bytes], int]) -> None:
        self._names = names
        self._max_keys = max_keys
        self._group = group
        self.pockets: dict[str, Pocket] = {}
        self.places: dict[str, Place] = {}
        self._overflow: dict[str, Pocket] = {}
        self._ring: list[str] = []
        self._hand = 0
        self._pinned: list[str] = []
        self._left: list[str] = []
        self.overflowed = 0

    @property
    def keys(self) -> int:
        """Pockets there are, overflow included."""
        return len(self.pockets) + len(self._overflow)

    def pocket(self, charge: Charge, now: Micros, keep: Sequence[Pocket] = ()) -> Pocket:
        """Return the pocket of a charge with the charge's rate and burst, made if need be, none of `keep` dropped."""
        pocket = self.pockets.get(charge.bucket)
        if pocket is None:
            pocket = self._open(charge, now, keep)
        if pocket.rate_us != charge.rate_us or pocket.burst != charge.burst:
            pocket.resize(charge.rate_us, charge.burst)
        return pocket

    def place(self, seat: SeatCharge) -> Place:
        """Return the place of a seat, made if need be."""
        place = self.places.get(seat.holder)
        if place is None:
            key = self._names.key(tag_of(seat.holder), "seats", seat.holder)
            place = self.places[seat.holder] = Place(seat.holder, key, self._group(key), seat.seats)
        place.limit = seat.seats
        return place

    def rebuild(self) -> None:
        """Let configured pockets go, as soon as they are idle: their entries may be gone."""
        self._left += self._pinned
        self._pinned = []

    def sweep(self, now: Micros, steps: int = SWEEP_PER_TICK, keep: Sequence[Pocket] = ()) -> None:
        """Look at the next `steps` pockets and drop those that nobody would miss."""
        ring, pockets, hand = self._ring, self.pockets, self._hand
        for _ in range(min(steps, len(ring))):
            if hand >= len(ring):
                hand = 0
            pocket = pockets[ring[hand]]
            if pocket.idle(now) and pocket not in keep:
                del pockets[ring[hand]]
                last = ring.pop()
                if hand < len(ring):
                    ring[hand] = last
            else:
                hand += 1
        self._hand = hand

    def forget(self, now: Micros) -> None:
        """Drop some configured pockets of before the last reload that are idle."""
        for _ in range(min(SWEEP_PER_TICK, len(self._left))):
            name = self._left.pop()
            if self.pockets[name].idle(now):
                del self.pockets[name]
            else:
                self._pinned.append(name)

    def _open(self, charge: Charge, now: Micros, keep: Sequence[Pocket]) -> Pocket:
        if charge.pinned:
            self._pinned.append(charge.bucket)
        else:
            self.sweep(now, SWEEP_PER_KEY, keep)
            if len(self._ring) >= self._max_keys:
                return self._overflowing(charge)
            self._ring.append(charge.bucket)
        key = self._names.key(tag_of(charge.bucket), "own", charge.bucket)
        pocket = self.pockets[charge.bucket] = self._made(charge.bucket, key, charge)
        return pocket

    def note_overflow(self, charge: Charge) -> None:
        """Count a request that was decided by a shared bucket, if this one was."""
        if charge.bucket not in self.pockets:
            self.overflowed += 1

    def _overflowing(self, charge: Charge) -> Pocket:
        name = charge.overflow or charge.limit
        shared = self._overflow.get(name)
        if shared is None:
            shared = self._overflow[name] = self._made(name, self._names.key(name, "overflow"), charge)
        return shared

    def _made(self, name: str, key: bytes, charge: Charge) -> Pocket:
        return Pocket(name, key, self._group(key), charge.rate_us, charge.burst)
