"""Asking the store: what waits in one turn of the loop goes out together, and its answers go where they belong.

Rules
1. Of one pocket or place at most one ask is under way. Who comes meanwhile is of the next, which goes out as soon as
   that is answered, for the sum of what waits then.
2. A grant is put into its pocket first; then those who waited are resumed in the order in which they came, and take.
   Who finds nothing left and does not know why asks again.
3. Whoever leaves takes the wish back; what was asked for goes into the pocket and from there, unused, back.
4. An ask that may have run is not asked again, and what went with it is not told again; what comes late is put in.
5. An answer that came too late for somebody who waited for it counts as a timeout of the store, once for each call.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from gateway.stores.leased.ledger import MOST, Asked, Claim, Ledger, batches
from gateway.stores.leased.places import Place
from gateway.stores.leased.pockets import Pocket
from gateway.stores.leased.waiting import Desk, Turns, Waiter
from gateway.stores.link import StoreFault
from policies.charge import Charge
from policies.kernels.lease import Grant, Want
from policies.kernels.seats import Room
from policies.units import Micros, RequestUnits

__all__ = ["NOT_RUN", "Asking"]

#: Faults after which it is certain that the script did not run.
NOT_RUN = frozenset({
    "down", "refused", "dns", "tls", "auth", "readonly", "oom", "loading", "busy", "masterdown", "clusterdown",
    "crossslot", "maxclients", "noscript", "wrongtype",
})  # fmt: skip

_Sent = tuple[Pocket, Want, tuple[RequestUnits, RequestUnits], list[Waiter]]
_Claimed = tuple[Place, int, list[Waiter]]


class Asking:
    """Asks under way and to come."""

    def __init__(self, ledger: Ledger, desk: Desk, turns: Turns, now: Callable[[], Micros]) -> None:
        self._ledger = ledger
        self._desk = desk
        self._turns = turns
        self._now = now
        self._pockets: list[Pocket] = []
        self._places: list[Place] = []
        self._soon = False
        #: The highest cost that any ask can have.
        self.dearest: RequestUnits = 1.0
        #: Pockets and places that rounds look at.
        self.active: list[Pocket] = []
        self.active_places: list[Place] = []

    @property
    def up(self) -> bool:
        """False while nobody would answer."""
        return self._ledger.up

    def wish(self, pocket: Pocket, charge: Charge, waiter: Waiter | None) -> None:
        """Ask for what a charge lacks, in the next turn at the latest; without a waiter nobody is told."""
        side = pocket.low if charge.low else pocket.high
        side.cost = charge.cost
        pocket.floor = charge.floor
        if charge.low:
            pocket.reserve = charge.reserve
        pocket.waiters.append((charge, waiter))
        if waiter is not None:
            waiter.left += 1
        self.look_after(pocket)
        self.queue(pocket)

    def wish_seat(self, place: Place, waiter: Waiter) -> None:
        """Ask for one seat more."""
        waiter.left += 1
        place.waiters.append(waiter)
        self.look_after_place(place)
        self.queue_place(place)

    def look_after(self, pocket: Pocket) -> None:
        """Have rounds look at a pocket."""
        if not pocket.active:
            pocket.active = True
            self.active.append(pocket)

    def look_after_place(self, place: Place) -> None:
        """Have rounds look at a place."""
        if not place.active:
            place.active = True
            self.active_places.append(place)

    def queue(self, pocket: Pocket) -> None:
        """Let the next flush ask for a pocket."""
        if not pocket.queued and not pocket.under_way:
            pocket.queued = True
            self._pockets.append(pocket)
            self._later()

    def queue_place(self, place: Place) -> None:
        """Let the next flush ask for a place."""
        if not place.queued and not place.under_way:
            place.queued = True
            self._places.append(place)
            self._later()

    def leave(self) -> None:
        """Give back all that is held and not in use."""
        for pocket in self.active:
            pocket.give_up()
            if pocket.back > 0.0 or pocket.spent > 0.0:
                self.queue(pocket)
        for place in self.active_places:
            place.give_up()
            self.queue_place(place)
        while self._pockets or self._places:
            self.flush()

    def _later(self) -> None:
        if not self._soon:
            self._soon = True
            self._turns.call_soon(self.flush)

    def flush(self) -> None:
        """Send what is queued: in each turn so much that nobody is held up, and enough that it does not grow."""
        self._soon = False
        most = max(MOST, len(self._pockets) // 4, len(self._places) // 4)
        pockets, self._pockets = self._pockets[:most], self._pockets[most:]
        places, self._places = self._places[:most], self._places[most:]
        for batch in batches(pockets):
            self._lease(batch)
        for seated in batches(places):
            self._seat(seated)
        if self._pockets or self._places:
            self._later()

    def _lease(self, batch: list[Pocket]) -> None:
        now = self._now()
        sent: list[_Sent] = []
        for pocket in batch:
            pocket.queued, pocket.under_way = False, True
            want, dearest = pocket.want(now)
            waiters, pocket.waiters = pocket.waiters, []
            sent.append((pocket, want, dearest, [waiter for _, waiter in waiters if waiter is not None]))
        asked = [Asked(pocket.key, pocket.rate_us, pocket.burst, want) for pocket, want, _, _ in sent]
        self._ledger.lease(
            asked,
            self.dearest,
            lambda found: self._leased(sent, found),
            lambda grants: self._put_in(sent, grants),
        )

    def _leased(self, sent: list[_Sent], found: list[Grant] | StoreFault) -> None:
        failed = isinstance(found, StoreFault)
        if isinstance(found, StoreFault):
            for pocket, want, _, _ in sent:
                pocket.failed(want, ran=found.kind not in NOT_RUN)
        else:
            self._put_in(sent, found)
            self._note_overdue(waiters for _, _, _, waiters in sent)
        for pocket, _, _, waiters in sent:
            pocket.under_way = False
            for waiter in waiters:
                self._desk.answered(waiter, known=not failed)
            if pocket.waiters:
                self.queue(pocket)
        self._desk.serve()

    def _note_overdue(self, asked: Iterable[list[Waiter]]) -> None:
        """Count an answer that came in time for the call, and not for everybody who waited for it."""
        if any(waiter.overdue for waiters in asked for waiter in waiters):
            self._ledger.overdue()

    def _put_in(self, sent: list[_Sent], grants: list[Grant]) -> None:
        now = self._now()
        for (pocket, want, dearest, _), grant in zip(sent, grants, strict=True):
            pocket.granted(want, dearest, grant, now)
            self.look_after(pocket)

    def _seat(self, batch: list[Place]) -> None:
        now = self._now()
        claims: list[Claim] = []
        sent: list[_Claimed] = []
        for place in batch:
            place.queued, place.under_way = False, True
            waiters, place.waiters = place.waiters, []
            waiting = sum(not waiter.over for waiter in waiters)
            held, want = place.claim(waiting, now)
            claims.append(Claim(place.key, held, want, place.limit))
            sent.append((place, want, waiters))
        self._ledger.seat(
            claims, lambda found: self._seated(sent, found), lambda rooms: self._sit_late(sent, rooms, now)
        )

    @staticmethod
    def _sit_late(sent: list[_Claimed], rooms: list[Room], at: Micros) -> None:
        """Take in an allowance that came late, if nothing was claimed since `at`."""
        for (place, want, _), room in zip(sent, rooms, strict=True):
            if place.sent == at:
                place.answered(room.allowance, want, at, wanted=room.wanted_by_others)

    def _seated(self, sent: list[_Claimed], found: list[Room] | StoreFault) -> None:
        now = self._now()
        failed = isinstance(found, StoreFault)
        if not isinstance(found, StoreFault):
            for (place, want, _), room in zip(sent, found, strict=True):
                place.answered(room.allowance, want, now, wanted=room.wanted_by_others)
            self._note_overdue(waiters for _, _, waiters in sent)
        for place, _, waiters in sent:
            place.under_way = False
            for waiter in waiters:
                self._desk.answered(waiter, known=not failed)
            if place.waiters:
                self.queue_place(place)
        self._desk.serve()
