"""The leased store: decided here, by what this process holds of buckets that are kept in a shared store.

    ask --> known --> take
        --> not known: one call of the store, the request waits --> take

Rules
1. A take is synchronous, and all or none: what this process holds is looked at first, of every own limit; only if all
   agree is the backstop asked; only if that agrees is anything taken. A refusal costs nothing.
2. What is known to refuse does so without the store, though other limits of the plan may not be known then.
3. Limits in shadow are leased like the others, and nobody waits for them: what is not there yet is let through, and
   made good from what comes.
4. Whoever takes without having asked, and without a lease, is refused for a round (`guard.py` asks `knows` before).
5. Memory is bounded by `max_keys` pockets (`table.py`), and so is the number of records in the store.
"""

from __future__ import annotations

from collections.abc import Callable

from gateway.stores.leased.asking import Asking
from gateway.stores.leased.ledger import Ledger
from gateway.stores.leased.places import Place
from gateway.stores.leased.pockets import ROUND, Pocket
from gateway.stores.leased.renew import Rounds
from gateway.stores.leased.shares import LeasedBackstop
from gateway.stores.leased.table import Table
from gateway.stores.leased.waiting import Desk, Turns, Waiter
from gateway.stores.memory import SEAT_WAIT_US, Backstop
from gateway.stores.names import Names
from policies.charge import Charge, Plan, Reading, Refusal
from policies.policy import PolicySet
from policies.units import Micros, RequestUnits

__all__ = ["LeasedStore"]

_Lacks = tuple[list[tuple[Pocket, Charge]], list[Place]]


class LeasedStore:
    """Leases of one process; implements `gateway.ports.Store`. `phase`, in [0, 1), sets its rounds apart from others'.

    `deadline` is how long a request waits for the store, `noted` is told how long each that waited did.
    """

    def __init__(  # noqa: PLR0913 - the seams of a store that is shared
        self,
        policies: PolicySet,
        ledger: Ledger,
        names: Names,
        backstop: Backstop,
        turns: Turns,
        now: Callable[[], Micros],
        *,
        max_keys: int,
        deadline: Micros,
        phase: float = 0.0,
    ) -> None:
        self._ledger = ledger
        self._backstop = backstop
        self._table = Table(names, max_keys, ledger.group)
        self._pockets = self._table.pockets
        self._places = self._table.places
        self._desk = Desk(turns, deadline, now)
        self._desk.again = self._again
        self._asking = Asking(ledger, self._desk, turns, now)
        self._rounds = Rounds(self._asking, turns, now, phase)
        #: The last plan that was found to be known, and when: it is taken next. With its pockets, if they cover it.
        self._sure: Plan | None = None
        self._sure_at: Micros = 0
        self._found: list[Pocket] | None = None
        self._reckon(policies)

    def _reckon(self, policies: PolicySet) -> None:
        self._asking.dearest = max([1.0, *(route.cost for route in policies.routes)])

    @property
    def keys(self) -> int:
        """Pockets held now, overflow included."""
        return self._table.keys

    @property
    def overflow_requests(self) -> int:
        """Requests charged to a shared overflow bucket."""
        return self._table.overflowed

    @property
    def backstop(self) -> Backstop:
        """What the service can serve, and for whom."""
        return self._backstop

    @property
    def waiting(self) -> int:
        """Requests that wait for the store now."""
        return self._desk.waiting

    @property
    def noted(self) -> Callable[[Micros], None]:
        """Who is told how long each request waited that did."""
        return self._desk.noted

    @noted.setter
    def noted(self, noted: Callable[[Micros], None]) -> None:
        self._desk.noted = noted

    # Asking

    def knows(self, plan: Plan, now: Micros) -> bool:
        """Return whether `take` can decide `plan` at `now` without the store."""
        if plan is self._sure and now == self._sure_at:
            return True
        return self._lacks(plan, now) is None

    def ask(self, plan: Plan, now: Micros, resume: Callable[[], None]) -> Callable[[], None] | None:
        """Ask the store for what `plan` lacks, and call `resume` then; None if it is known, or nobody is there to ask.

        What is returned takes the wish back.
        """
        self._found = self._covered(plan, now)
        lacks = self._lacks(plan, now) if self._found is None else None
        if lacks is None:
            self._sure, self._sure_at = plan, now
            return None
        if not self._ledger.up or self._desk.excused(plan):
            return None
        waiter = self._desk.open(plan, resume, now)
        self._wish(lacks, waiter)
        return lambda: self._desk.leave(waiter)

    def _covered(self, plan: Plan, now: Micros) -> list[Pocket] | None:
        """Return the pockets of all own charges, if they and the seats that are held cover `plan`, else None.

        What is nearly always so, written out: calls take half as long again.
        """
        get = self._pockets.get
        found: list[Pocket] = []
        for charge in plan.own:
            pocket = get(charge.bucket)
            if pocket is None or pocket.burst != charge.burst or pocket.rate_us != charge.rate_us:
                return None
            units = pocket.low.units if charge.low else pocket.high.units + pocket.low.units
            if units < charge.cost:
                return None
            found.append(pocket)
        for seat in plan.seats:
            place = self._places.get(seat.holder)
            if place is None or place.limit != seat.seats or not place.free(now):
                return None
        return None if plan.holds else found

    def _again(self, waiter: Waiter, now: Micros) -> bool:
        """Let a waiter wait on, if what came was not for it; returns whether it does."""
        lacks = self._lacks(waiter.plan, now)
        if lacks is None or not self._ledger.up:
            return False
        waiter.left = 0
        self._wish(lacks, waiter)
        return True

    def _wish(self, lacks: _Lacks, waiter: Waiter) -> None:
        for pocket, charge in lacks[0]:
            self._asking.wish(pocket, charge, waiter)
        for place in lacks[1]:
            self._asking.wish_seat(place, waiter)

    def _lacks(self, plan: Plan, now: Micros) -> _Lacks | None:
        """Return what `plan` needs and nobody here knows; None if it can be decided."""
        pockets: list[tuple[Pocket, Charge]] = []
        get = self._pockets.get
        for charge in plan.own:
            pocket = get(charge.bucket)
            if pocket is None or pocket.burst != charge.burst or pocket.rate_us != charge.rate_us:
                pocket = self._table.pocket(charge, now, [found for found, _ in pockets])
            if not pocket.covers(charge):
                if pocket.known(charge, now):
                    return None
                pockets.append((pocket, charge))
        places: list[Place] = []
        for seat in plan.seats:
            place = self._places.get(seat.holder)
            if place is None or place.limit != seat.seats:
                place = self._table.place(seat)
            if not place.free(now):
                if place.full(now):
                    return None
                places.append(place)
        if not (pockets or places) or any(now < hold.until_us for hold in plan.holds):
            return None
        return pockets, places

    # Taking

    def take(self, plan: Plan, now: Micros) -> Reading:
        """Take every enforced charge and seat of `plan` at `now`, or nothing; then ask the shadow charges."""
        found = self._found if plan is self._sure and now == self._sure_at else None
        self._sure = None
        tokens: list[RequestUnits] = []
        if found is None:
            found = []
            refused = self._look(plan, now, found, tokens)
            if refused:
                return Reading(tuple(refused), tuple(tokens))
        else:
            _count(plan, now, found, tokens)
        over = False
        if plan.share is not None:
            share = self._backstop.take(plan.share, now)
            if share is not None:
                return Reading((Refusal(share.limit, share.wait_us),), tuple(tokens), (), share.beyond_own, share.over)
            over = self._backstop.over
        for index, charge in enumerate(plan.own):
            pocket = found[index]
            if charge.low:
                pocket.low.units -= charge.cost
            else:
                high = pocket.high
                high.units -= charge.cost
                if high.units < 0.0:
                    pocket.low.units += high.units
                    high.units = 0.0
            tokens[index] -= charge.cost
        for seat in plan.seats:
            self._places[seat.holder].take(now)
        return Reading((), tuple(tokens), self._shadow(plan, now) if plan.shadow else (), False, over)

    def _look(self, plan: Plan, now: Micros, found: list[Pocket], tokens: list[RequestUnits]) -> list[Refusal]:
        """Look at all own limits, changing none, and return what refused.

        For each charge in turn its pocket, and the tokens that this class could take, are appended to the lists.
        """
        get = self._pockets.get
        refused: list[Refusal] = []
        unknown: list[Refusal] = []
        for charge in plan.own:
            pocket = get(charge.bucket)
            if pocket is None or pocket.burst != charge.burst or pocket.rate_us != charge.rate_us:
                pocket = self._table.pocket(charge, now, found)
                self._table.note_overflow(charge)
            units = pocket.low.units if charge.low else pocket.high.units + pocket.low.units
            if units < charge.cost:
                wait = self._refusal(pocket, charge, now)
                (refused if wait else unknown).append(Refusal(charge.limit, wait or ROUND))
            found.append(pocket)
        _count(plan, now, found, tokens)
        for seat in plan.seats:
            place = self._places.get(seat.holder) or self._table.place(seat)
            if not place.free(now):
                (refused if place.full(now) else unknown).append(Refusal("concurrency", SEAT_WAIT_US, seat.whose))
        if plan.holds:
            refused += [Refusal(hold.limit, hold.until_us - now) for hold in plan.holds if now < hold.until_us]
        return refused or unknown

    def _refusal(self, pocket: Pocket, charge: Charge, now: Micros) -> Micros:
        """Return the wait of a charge that a pocket does not cover, 0 if unknown, and have rounds know of it."""
        side = pocket.low if charge.low else pocket.high
        side.cost = charge.cost
        wait = pocket.known(charge, now)
        if wait:
            side.short = max(side.short, charge.cost)
            self._asking.look_after(pocket)
        return wait

    def _shadow(self, plan: Plan, now: Micros) -> tuple[Refusal, ...]:
        """Ask the shadow charges, each for itself, and return those that would have refused."""
        refused: list[Refusal] = []
        for charge in plan.shadow:
            pocket = self._table.pocket(charge, now)
            side = pocket.low if charge.low else pocket.high
            side.asked += charge.cost
            if not pocket.covers(charge):
                wait = pocket.known(charge, now)
                if wait:
                    side.short = max(side.short, charge.cost)
                    refused.append(Refusal(charge.limit, wait))
                    continue
                self._asking.wish(pocket, charge, None)
            side.units = max(-pocket.burst, side.units - charge.cost)
        return tuple(refused)

    def give_back(self, plan: Plan, now: Micros, reading: Reading | None = None) -> None:
        """Return the charges of a taken plan whose request never reached the upstream (seats are `release`'s)."""
        for charge in plan.own:
            self._undo(charge)
        if reading is not None and plan.shadow:
            refused = {refusal.limit for refusal in reading.shadow_refused}
            for charge in plan.shadow:
                if charge.limit not in refused:
                    self._undo(charge)
        if plan.share is not None:
            self._backstop.give_back(plan.share, now, over=reading is not None and reading.share_over)

    def _undo(self, charge: Charge) -> None:
        pocket = self._pockets.get(charge.bucket)
        if pocket is not None:
            pocket.put(charge)
            self._asking.look_after(pocket)

    def release(self, plan: Plan) -> None:
        """Return the seats of a taken plan. Exactly once per take."""
        for seat in plan.seats:
            self._places[seat.holder].in_use -= 1

    def spent(self, charge: Charge, units: RequestUnits, now: Micros) -> None:
        """Count units of a bucket that were admitted without the store."""
        pocket = self._table.pocket(charge, now)
        pocket.spent = min(pocket.burst, pocket.spent + units)
        self._asking.look_after(pocket)

    def owe(self, plan: Plan, now: Micros) -> None:
        """Charge what was admitted while the store is there and had not answered yet."""
        for charge in plan.own:
            pocket = self._table.pocket(charge, now)
            pocket.owe(charge, now)
            self._asking.look_after(pocket)

    def forgive(self, charge: Charge) -> None:
        """Note that a charge which is owed was never used."""
        pocket = self._pockets.get(charge.bucket)
        if pocket is not None:
            pocket.forgive(charge)

    def occupy(self, plan: Plan, now: Micros) -> None:
        """Count the seats of a plan that was admitted without the store, until their `release`."""
        for seat in plan.seats:
            place = self._places.get(seat.holder) or self._table.place(seat)
            place.take(now)
            self._asking.look_after_place(place)

    def in_use(self, holder: str) -> int:
        """Return how many seats of a holder are taken here, whoever let them in."""
        place = self._places.get(holder)
        return 0 if place is None else place.in_use

    def seat_free(self, holder: str, now: Micros) -> bool:
        """Return whether a seat of a holder is certainly free: one that this process was allowed and does not use."""
        place = self._places.get(holder)
        return place is not None and place.free(now)

    def part(self, bucket: str) -> float:
        """Return which part of what was leased of a bucket, or of the seats of a holder, this process had; 0 to 1."""
        pocket = self._pockets.get(bucket)
        if pocket is not None:
            whole = pocket.mine + pocket.others
            return pocket.mine / whole if whole > 0.0 else 0.0
        place = self._places.get(bucket)
        return min(1.0, place.allowed / place.limit) if place is not None and place.limit else 0.0

    def owed(self, bucket: str, now: Micros) -> float:
        """Return what a bucket still owes at `now` of what it owed when last heard of, as a part of its burst."""
        pocket = self._pockets.get(bucket)
        if pocket is None or pocket.burst <= 0.0:
            return 0.0
        return min(1.0, (pocket.level(now) + pocket.owed) / pocket.burst)

    def backstop_part(self) -> float:
        """Return which part of the backstop was leased to this process; 0 to 1."""
        return self._backstop.lease_share if isinstance(self._backstop, LeasedBackstop) else 1.0

    def processes(self) -> int:
        """Return how many processes share the store."""
        return self._backstop.processes if isinstance(self._backstop, LeasedBackstop) else 1

    def tick(self, now: Micros) -> None:
        """Do the next slice: a round if it is time, some of the pockets that may be dropped, the backstop's."""
        self._rounds.tick(now)
        self._table.sweep(now)
        self._table.forget(now)
        self._backstop.tick(now)

    def rebuild(self, policies: PolicySet, now: Micros) -> None:
        """Go on under new policies: refills nothing, forgets nothing."""
        self._sure = None
        self._reckon(policies)
        self._table.rebuild()
        self._backstop.rebuild(
            policies.backstop.rate.per_us, policies.backstop.burst, policies.classes, policies.unlisted_weight, now,
            policies.max_unlisted_tenants,
        )  # fmt: skip

    def close(self) -> None:
        """Give back what is held, as far as the store hears it."""
        self._asking.leave()
        if isinstance(self._backstop, LeasedBackstop):
            self._backstop.leave()


def _count(plan: Plan, now: Micros, found: list[Pocket], tokens: list[RequestUnits]) -> None:
    """Mark the demand of `plan` on the pockets found, and append what its class could take of each to `tokens`."""
    for charge, pocket in zip(plan.own, found, strict=False):
        if charge.low:
            side = pocket.low
            left = side.units
        else:
            side = pocket.high
            left = side.units + pocket.low.units
        side.asked += charge.cost
        if now >= side.dry_until:
            left += side.rest + pocket.rate_us * (now - pocket.at)
        tokens.append(left if left < pocket.burst else pocket.burst)  # noqa: FURB136 - min() is a call
