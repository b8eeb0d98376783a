"""A place: what this process may have of one concurrency limit, and what it uses.

Rules
1. The store gives each process an allowance of seats for a time; the living allowances never exceed the limit together.
   Within its own a process decides alone.
2. What is in use counts, whoever let it in: seats are released by those who took them, store or no store.
3. An allowance is renewed long before its end. One that has ended is no longer ours, for another process may have it.
4. What is not in use goes back after a while, and at the next round if another process waits for it.
"""

from __future__ import annotations

from gateway.stores.leased.waiting import Waiter
from policies.units import SECOND, Micros, Seats

__all__ = ["SEATS_FOR", "Place"]

#: How long an allowance lasts; the seats of a process that died are free again by then.
SEATS_FOR: Micros = 2 * SECOND
#: It is renewed so often; the answer says whether another process waits, which matters where seats are few.
_RENEW: Micros = SECOND * 6 // 5
_RENEW_SCARCE: Micros = SECOND * 2 // 5
#: Seats that nobody used so long go back.
_KEPT: Micros = SECOND
_KEPT_SCARCE: Micros = SECOND * 3 // 10
#: A process that holds more than this part of a limit may be what others lack.
_PLENTY = 4
#: Of a roomy limit as many again are held as are in use, but no more than this part of it.
_SPARE = 16
#: After an answer that there are no more, the store is asked again no sooner.
_FULL_FOR: Micros = SECOND // 10


class Place:
    """One holder's seats. `waiters` wait for the next answer, `peak` is how many were in use at once of late."""

    __slots__ = (
        "active", "allowed", "full_until", "group", "in_use", "key", "limit", "name", "peak", "peak_at", "queued",
        "sent", "under_way", "until", "waiters", "wanted",
    )  # fmt: skip

    def __init__(self, name: str, key: bytes, group: int, limit: Seats) -> None:
        self.name = name
        self.key = key
        self.group = group
        self.limit = limit
        self.in_use: Seats = 0
        self.allowed: Seats = 0
        self.until: Micros = 0
        #: When it was asked for last.
        self.sent: Micros = 0
        self.full_until: Micros = 0
        self.peak: Seats = 0
        self.peak_at: Micros = 0
        self.waiters: list[Waiter] = []
        #: Whether another process waits for a seat.
        self.wanted = False
        self.queued = False
        self.under_way = False
        self.active = False

    def free(self, now: Micros) -> bool:
        """Return whether a seat can be taken here and now."""
        return self.in_use < self.allowed and self.in_use < self.limit and now < self.until

    def full(self, now: Micros) -> bool:
        """Return whether it is known that none can be had."""
        return self.in_use >= self.limit or now < self.full_until

    def take(self, now: Micros) -> None:
        """Use a seat."""
        self.in_use += 1
        if self.in_use >= self.peak:
            self.peak, self.peak_at = self.in_use, now

    @property
    def scarce(self) -> bool:
        """Whether so much of the limit is held here that others may lack it."""
        return self.allowed * _PLENTY > self.limit

    def target(self, now: Micros) -> Seats:
        """Return how many seats to hold: those in use, and for a while those used of late unless others wait."""
        if now >= self.peak_at + (_KEPT_SCARCE if self.scarce else _KEPT):
            self.peak, self.peak_at = self.in_use, now
        kept = max(self.peak, self.in_use)
        if self.wanted or not kept:
            return min(self.limit, self.in_use)
        return min(self.limit, kept + min(self.limit // _SPARE, kept))

    def claim(self, waiting: Seats, now: Micros) -> tuple[Seats, Seats]:
        """Return what to tell the store: seats held until it answers, and seats wanted, `waiting` for some included."""
        if now >= self.until:
            self.allowed = 0
        if self.in_use + waiting > self.peak:
            self.peak, self.peak_at = self.in_use + waiting, now
        want = max(self.target(now), min(self.limit, self.in_use + waiting))
        self.allowed = min(self.allowed, want)
        self.sent = now
        return max(self.allowed, self.in_use), want

    def due(self, now: Micros) -> bool:
        """Return whether a round has to ask: the end is near, or there is something to give back.

        An allowance of which nothing is in use ends by itself, unless others may lack it.
        """
        if not self.in_use:
            held = self.allowed > 0 and now < self.until
            return held and (self.wanted or (self.scarce and not self.target(now)))
        renew = _RENEW_SCARCE if self.scarce else _RENEW
        return now >= self.sent + renew or self.target(now) < self.allowed

    def answered(self, allowed: Seats, asked: Seats, now: Micros, *, wanted: bool) -> None:
        """Note an allowance; `asked` is what was asked for."""
        self.allowed = allowed
        # From when it was sent: the store counts from later on.
        self.until = self.sent + SEATS_FOR
        self.wanted = wanted
        self.full_until = now + _FULL_FOR if allowed < asked else 0

    def give_up(self) -> None:
        """Want no more than what is in use."""
        self.peak = self.in_use
        self.wanted = True

    def idle(self, now: Micros) -> bool:
        """Return whether nobody would notice if it were forgotten."""
        held = self.allowed and now < self.until
        return not (self.in_use or held or self.waiters or self.under_way or self.queued)
