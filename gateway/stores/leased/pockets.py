"""A pocket: what this process holds of one bucket, and what it last heard of the rest.

Rules
1. What is in a pocket was taken from the bucket of record when it was leased, so spending it asks nobody.
2. There is a side for each class. A high ask may draw on both, a low one on its own alone.
3. An ask that the pocket does not cover is *known* to be refused while the last answer says that the bucket cannot have
   it yet; else nobody here knows, and the store is asked.
4. Instants are this process's, and only ever compared with each other: of the store's clock come durations alone.
5. A bucket that was found empty is asked again by the round (`renew.py`), not by the next request, if it would fill by
   several costs meanwhile: `PACE` bounds how often a process asks for one bucket, and is told as part of the wait.
6. What a posture let through while the store was slow is *owed*: what is held and what comes pays for it first, rounds
   ask for the rest, and refusals reckon with it. It is forgotten when the bucket would have filled in spite of it.
"""

from __future__ import annotations

from math import ceil

from gateway.stores.leased.waiting import Waiter
from policies.charge import Charge
from policies.kernels.lease import Grant, Want
from policies.units import NEVER, SECOND, Micros, RequestUnits

__all__ = ["AHEAD", "IDLE", "PACE", "ROUND", "Pocket", "Side"]

#: Every pocket in use is looked at once in so long.
ROUND: Micros = SECOND // 10
#: How often a process asks for a bucket that is empty.
PACE: Micros = 2 * ROUND
#: Rounds of demand that a pocket is filled for, and below which it is filled again.
AHEAD, LOW_WATER = 4, 2
#: A pocket that nobody asked for so long goes back whole.
IDLE: Micros = 2 * SECOND
#: For so long what was heard of the rest is good for a refusal: another process may give some back.
SURE: Micros = SECOND
#: The part of a rich bucket that may be asked ahead of demand, beside what flows in meanwhile.
_RICH = 1 / 16
#: The part of a bucket, and the costs, that may lie in a pocket though little is asked.
_SPARE, _SPARE_COSTS = 1 / 64, 8.0
#: A bucket found empty is paced if so many costs flow in meanwhile.
_PACED_COSTS = 4.0
#: Demand of so many costs in two rounds running is believed at once, and half of it forgotten in each round without.
#: What is less may be chance, and counts for `_SLOW` a round, or one caller that comes once would have units lie idle.
_PLENTY = 4.0
_FAST, _SLOW = 0.5, 0.1
#: Whoever was refused is asked for by rounds if so much of its cost is in demand in a round.
_STEADY = 0.5
#: The part of a cost that is asked for at once of what is owed, and what is nothing.
_PAID, _NOTHING = 1 / 4, 1e-9
#: How much of what was leased before counts in who had how much, at each ask.
_RECENT = 0.8


class Side:
    """What one class holds, and what is known of the rest for it.

    `units` are held, `owed` were let through without having been. `asked` was asked since the last round, `before` in
    that, `pace` is asked in a round. `rest` could be had of the bucket when it last answered; asks of `dry_cost` or
    more are refused until `dry_until`. `cost` was the last one asked, `short` the dearest that was refused since the
    last round.
    """

    __slots__ = ("asked", "before", "cost", "dry_cost", "dry_until", "owed", "pace", "rest", "short", "units")

    def __init__(self) -> None:
        self.units = 0.0
        self.owed = 0.0
        self.asked = 0.0
        self.before = 0.0
        self.pace = 0.0
        self.rest = 0.0
        self.cost = 0.0
        self.short = 0.0
        self.dry_until: Micros = 0
        self.dry_cost = 0.0

    def turn(self) -> None:
        """Take the last round's demand into account."""
        asked, self.asked = self.asked, 0.0
        plenty = _PLENTY * self.cost
        lasting, self.before = min(asked, self.before), asked
        if asked > self.pace:
            self.pace += _SLOW * (asked - self.pace)
            if lasting >= plenty and lasting > self.pace:
                self.pace = lasting
        else:
            self.pace += (_FAST if self.pace >= plenty else _SLOW) * (asked - self.pace)

    def pay(self) -> None:
        """Take what is owed out of what is held."""
        if self.owed > 0.0 and self.units > 0.0:
            paid = min(self.owed, self.units)
            self.owed = self.owed - paid if self.owed - paid > _NOTHING else 0.0
            self.units -= paid

    @property
    def due(self) -> RequestUnits:
        """How much of what is owed is asked for at once: less than a cost, or whoever needs a whole one is first."""
        return min(self.owed, self.cost * _PAID)

    def target(self, most: RequestUnits) -> RequestUnits:
        """Return how much to hold: some rounds of demand, in whole costs, no more than `most`."""
        return self.whole(min(AHEAD * self.pace, most))

    def spare(self) -> RequestUnits:
        """Return how much of a bucket that has plenty may lie here for whoever comes now and then."""
        return self.whole(min(_SPARE_COSTS * self.cost, self.rest * _SPARE))

    def whole(self, units: RequestUnits) -> RequestUnits:
        """Return `units` without what is no whole cost."""
        return units // self.cost * self.cost if self.cost > 0.0 else 0.0


class Pocket:
    """One bucket as this process knows it. `name` is the bucket's, `key` its record's, `group` whom to ask with it.

    `at` is when it last heard of the rest, `touched` when it was last asked. `back` is to be returned; `spent` was
    admitted in an outage. What is owed is so until `owed_until`. `queued` until the next flush asks for it, `under_way`
    while an ask is; `active` while rounds look at it.
    """

    __slots__ = (
        "active", "at", "back", "burst", "floor", "group", "high", "key", "low", "mine", "name", "others",
        "owed_until", "queued", "rate_us", "reserve", "spent", "touched", "under_way", "waiters",
    )  # fmt: skip

    def __init__(self, name: str, key: bytes, group: int, rate_us: float, burst: RequestUnits) -> None:
        self.name = name
        self.key = key
        self.group = group
        self.rate_us = rate_us
        self.burst = burst
        self.reserve = 0.0
        self.floor = 0.0
        self.high = Side()
        self.low = Side()
        self.at: Micros = -SURE
        self.touched: Micros = 0
        self.back = 0.0
        self.spent = 0.0
        self.owed_until: Micros = 0
        self.under_way = False
        self.queued = False
        self.active = False
        #: What was leased here of late, and what others took meanwhile.
        self.mine = self.others = 0.0
        #: What the next ask is for, and who waits for it, None where nobody does.
        self.waiters: list[tuple[Charge, Waiter | None]] = []

    @property
    def held(self) -> RequestUnits:
        """Units of both classes."""
        return self.high.units + self.low.units

    @property
    def owed(self) -> RequestUnits:
        """Units that either class let through without having them."""
        return self.high.owed + self.low.owed

    def known(self, charge: Charge, now: Micros) -> Micros:
        """Return the wait of a charge that the pocket does not cover, or 0 where nobody here knows (rule 3)."""
        if self.rate_us <= 0.0:
            return NEVER
        side, units = self.side(charge)
        wait = side.dry_until - now if now < side.dry_until and charge.cost >= side.dry_cost else 0
        elapsed = now - self.at
        # Of a rest of 0 a low ask, or one dearer than the bucket, does not know how far below 0 it is.
        if elapsed < SURE and (side.rest > 0.0 or (not charge.low and charge.cost <= self.burst)):
            missing = min(charge.cost, self.burst) + side.owed - units - side.rest - self.rate_us * elapsed
            if missing > 0.0:
                wait = max(wait, 1, ceil(missing / self.rate_us))
        return wait

    def side(self, charge: Charge) -> tuple[Side, RequestUnits]:
        """Return the side that a charge asks, and the units that it may draw on."""
        if charge.low:
            return self.low, self.low.units
        return self.high, self.high.units + self.low.units

    def covers(self, charge: Charge) -> bool:
        """Return whether it holds what a charge costs."""
        return self.side(charge)[1] >= charge.cost

    def put(self, charge: Charge) -> None:
        """Take a charge back that was taken and never used."""
        side = self.low if charge.low else self.high
        side.units += charge.cost
        side.pay()

    def owe(self, charge: Charge, now: Micros) -> None:
        """Note a charge that was let through while the store had not answered; no more than a burst."""
        side = self.low if charge.low else self.high
        side.cost = charge.cost
        side.owed = min(self.burst, side.owed + charge.cost)
        side.pay()
        self.owed_until = now + ceil((self.burst + self.owed) / self.rate_us) if self.rate_us > 0.0 else now

    def forgive(self, charge: Charge) -> None:
        """Note that a charge which was let through was never used. What has been paid for stays paid."""
        side = self.low if charge.low else self.high
        side.owed = max(0.0, side.owed - charge.cost)

    def resize(self, rate_us: float, burst: RequestUnits) -> None:
        """Change rate and burst; what is held and known scales with the bucket, which the store scales as well."""
        scale = burst / self.burst if self.burst > 0.0 and rate_us > 0.0 else 0.0
        for side in (self.high, self.low):
            side.units *= scale
            side.rest *= scale
            side.owed *= scale
            side.dry_until = 0
        self.spent *= scale
        self.back *= scale
        self.rate_us = rate_us
        self.burst = burst

    # What to ask for

    def want(self, now: Micros) -> tuple[Want, tuple[RequestUnits, RequestUnits]]:
        """Return what to ask for now, and the dearest cost of each class in it: what waits, and some ahead.

        What goes back and what was spent goes with it.
        """
        high, low = self.high, self.low
        waits = {False: 0.0, True: 0.0}
        # Who was refused may come again; but whoever waits is not held up for a dearer one that does not.
        dearest = {False: 0.0, True: 0.0} if self.waiters else {False: high.short, True: low.short}
        for charge, waiter in self.waiters:
            if waiter is None or not waiter.over:
                # What nobody waits for was let through: the pocket owes it.
                waits[charge.low] += 0.0 if waiter is None else charge.cost
                dearest[charge.low] = max(dearest[charge.low], charge.cost)
        high.short = low.short = 0.0
        if not self.waiters:
            waits = dict(dearest)
            for side in (high, low):
                if side.owed > 0.0:
                    waits[side is low], dearest[side is low] = 0.0, side.due
        wanted = [self._wanted(side, waits[side is low], dearest[side is low]) for side in (high, low)]
        back, self.back = self.back, 0.0
        spent, self.spent = self.spent, 0.0
        want = Want(
            high=wanted[0][0], high_cost=wanted[0][1], low=wanted[1][0], low_cost=wanted[1][1],
            reserve=self.reserve, floor=self.floor, back=back, spent=spent, seed=self.level(now),
        )  # fmt: skip
        return want, (dearest[False], dearest[True])

    def _wanted(self, side: Side, waits: RequestUnits, dearest: RequestUnits) -> tuple[RequestUnits, RequestUnits]:
        """Return how much to ask for one side, and the dearest cost that has to be in it."""
        ahead = side.target(self.most(side))
        if waits > 0.0:
            # Nothing tells yet how much will be asked: as much again as was, of a bucket that is rich.
            rich = side.rest * _RICH
            more = min(side.asked, rich) if rich >= _PLENTY * side.cost else 0.0
            ahead = max(ahead, side.spare(), side.whole(more))
        wanted = max(0.0, waits + ahead + side.owed - side.units)
        return wanted, min(dearest, max(0.0, waits - side.units) if waits > 0.0 else side.due)

    def most(self, side: Side) -> RequestUnits:
        """Return how much may be held ahead of demand."""
        rich = side.rest * _RICH
        return max(self.rate_us * AHEAD * ROUND, rich if rich >= _PLENTY * side.cost else 0.0)

    def level(self, now: Micros) -> RequestUnits:
        """Return the level that the bucket would have by what was last heard of it; 0 is full."""
        if self.at < 0:
            return 0.0
        return max(0.0, self.burst - self.high.rest - self.rate_us * max(0, now - self.at))

    # What came of it

    def granted(self, want: Want, dearest: tuple[RequestUnits, RequestUnits], grant: Grant, now: Micros) -> None:
        """Put in what an ask brought, and note what it says of the rest."""
        before = self.burst - grant.left_high - grant.high - grant.low + want.back - want.spent
        self.others = _RECENT * self.others + max(0.0, before - self.level(now))
        self.mine = _RECENT * self.mine + max(0.0, grant.high + grant.low - want.back)
        self.at = now
        self._put_in(self.high, want.high, grant.high, grant.left_high)
        self._put_in(self.low, want.low, grant.low, grant.left_low)
        self._dry(self.high, grant.high_wait_us, dearest[0], partly=grant.high < want.high, now=now)
        self._dry(self.low, grant.low_wait_us, dearest[1], partly=grant.low < want.low, now=now)

    @staticmethod
    def _put_in(side: Side, wanted: RequestUnits, units: RequestUnits, rest: RequestUnits) -> None:
        side.units += units
        if side.units < 0.0 and units < wanted:
            # What was let through unasked, of a limit in shadow, and the bucket does not have.
            side.units = 0.0
        side.pay()
        side.rest = rest

    def _dry(self, side: Side, wait_us: Micros, dearest: RequestUnits, *, partly: bool, now: Micros) -> None:
        """Note until when asks are refused: as the store says, and while a bucket that gave not all is left alone."""
        side.dry_until = 0
        if wait_us > 0:
            side.dry_until, side.dry_cost = now + wait_us, dearest
        cost = side.cost
        if partly and cost > 0.0:
            pace = self.pace()
            if self.rate_us * pace >= _PACED_COSTS * cost and side.dry_until < now + pace:
                # Rounds ask before it is over, and the answer is there before.
                side.dry_until, side.dry_cost = now + pace + ROUND // 2, 0.0

    def pace(self) -> Micros:
        """Return how long a bucket that was found empty is left alone: not so long that it could be full again."""
        return min(PACE, int(self.burst / self.rate_us / 4)) if self.rate_us > 0.0 else PACE

    def failed(self, want: Want, *, ran: bool) -> None:
        """Note that an ask was not answered; if it cannot have run, what went with it is still to be told."""
        if not ran:
            self.back += want.back
            self.spent += want.spent

    # Rounds

    def turn(self, now: Micros) -> bool:
        """Take a round's demand into account, and return whether there is something to ask or to give back."""
        high, low = self.high, self.low
        if high.asked > 0.0 or low.asked > 0.0:
            self.touched = now
        high.turn()
        low.turn()
        if now >= self.owed_until:
            high.owed = low.owed = 0.0
        if self.under_way or self.queued:
            return False
        lapsed = now >= self.touched + IDLE
        for side in (high, low):
            if lapsed:
                side.pace = side.short = 0.0
            keep = 0.0 if lapsed else max(side.target(self.most(side)), side.spare())
            if side.units > 0.0 and (lapsed or side.units > 2 * keep + side.cost):
                self.back += side.units - keep
                side.units = keep
        return self.back > 0.0 or self.spent > 0.0 or self._wants(high, now) or self._wants(low, now)

    def _wants(self, side: Side, now: Micros) -> bool:
        """Return whether to ask ahead for one side, or whether it may have what it could not."""
        if side.owed > 0.0 and side.rest + self.rate_us * (now - self.at) >= side.due:
            return True
        if now < side.dry_until - 3 * ROUND // 4 and now < self.at + SURE // 2:
            return False
        if side.short > side.units and side.pace >= _STEADY * side.short:
            return True
        return side.units < LOW_WATER * side.pace and side.target(self.most(side)) >= side.units + side.cost

    def give_up(self) -> None:
        """Have all that is held go back, what is owed be told, and want nothing more."""
        self.spent = min(self.burst, self.spent + self.owed)
        for side in (self.high, self.low):
            self.back += max(0.0, side.units)
            side.units = side.owed = side.pace = side.asked = side.short = 0.0

    def lapsed(self, now: Micros) -> bool:
        """Return whether rounds need not look at it: nothing held, owed or waited for, nobody asking."""
        busy = self.under_way or self.queued or self.waiters or self.owed
        return not busy and not self.held and not self.spent and not self.back and now >= self.touched + IDLE

    def idle(self, now: Micros) -> bool:
        """Return whether nobody would notice if it were forgotten: with nothing in it, and the bucket full."""
        return not self.active and self.lapsed(now) and self.level(now) <= 0.0
