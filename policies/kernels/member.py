"""One tenant of the fair backstop: its share bucket, its demand meter, and the order of classes inside its share.

Rules
1. A share bucket counts in virtual time (units per weight): it holds `virtual - arrival`, never more than `full`.
2. A full bucket admits any cost and goes into debt; otherwise an ask needs its cost.
3. A low ask leaves the reserve alone while a high one had demand within the last second.
4. The floor's credit grows only while a low ask was refused and is believed to be waiting still, up to what was
   refused: high asks leave it in the bucket, low ones may take it past the reserve. A full bucket owes nothing. Demand
   that is met needs no floor, so a tenant whose arrivals fit its share never meets it.
5. The meter is a bucket with the own limits' rate and burst that refused asks are charged to as well.
"""

from __future__ import annotations

from functools import lru_cache
from math import inf, isfinite
from typing import Final

from policies.kernels.backlog import Queue, Watch
from policies.kernels.share import Ask, ShareView
from policies.kernels.waterfill import Ratio, Waterline
from policies.units import SECOND, Micros, RequestUnits

__all__ = ["FOREVER", "SMALL", "Low", "Member"]

#: What a share bucket holds at least, in request units: a page that loads at once must fit. The millionth is for the
#: rounding of twenty single steps.
SMALL: Final = 20.000001
#: When an ask that has more to look at than a share bucket is light. As in `admit`, not more.
FOREVER: Final[Micros] = 2**62 - 1
#: How much longer than a told wait an obedient caller may stay away: jitter is at most a quarter of it.
JITTER: Final = 1.25


@lru_cache(maxsize=1_000)
def _scale(weight: float) -> tuple[float, float]:
    """Return a unit, and the small burst, per weight.

    Tenants of one weight have the very same numbers: ten thousand tenants are more than the processor's cache holds,
    and what is asked of each is mostly the time to fetch it.
    """
    return 1.0 / weight, SMALL / weight


class Low:
    """What the lower class of one tenant is owed inside its share, in units per weight; `floor` as a class has it."""

    __slots__ = ("brim", "credit", "credit_at", "floor", "owed", "until_us")

    def __init__(self, small: float) -> None:
        #: What the reserve is a part of: as much as the bucket has held since its burst grew, for a burst that grows
        #: does not fill the bucket.
        self.brim = small
        self.floor = 0.0
        self.owed = 0.0
        self.credit = 0.0
        #: Virtual time at which `credit` was true.
        self.credit_at = 0.0
        #: When a refused caller is no longer believed to come back.
        self.until_us: Micros = 0

    def due(self, virtual: float, now: Micros) -> float:
        """Return what high asks leave to low ones."""
        if now >= self.until_us:
            self.clear()
            return 0.0
        credit = self.credit + self.floor * max(0.0, virtual - self.credit_at)
        return min(self.owed, credit)

    def refused(self, spent: float, floor: float, level: float, virtual: float, now: Micros) -> None:
        """Note that `spent` units per weight were wanted and not granted; `level` is the rate of the share now."""
        self.credit = self.due(virtual, now)
        self.credit_at = virtual
        self.floor = floor
        pace = floor * level
        self.owed = max(self.owed, min(self.owed + spent, pace * SECOND), spent)
        self.until_us = max(self.until_us, now + SECOND + int(JITTER * spent / pace))

    def settle(self, held: float, full: float) -> None:
        """Follow a bucket that holds `held` of `full`, before an ask. A full one owes nothing."""
        self.brim = min(full, max(self.brim, held))
        if held >= full:
            self.clear()

    def clear(self) -> None:
        """Owe nothing: nobody waits any more, or a low ask would have been granted."""
        self.owed = self.credit = 0.0

    def rescale(self, grown: float, virtual: float, now: Micros) -> None:
        """Follow a weight that made every number per weight grow."""
        self.credit = self.due(virtual, now) * grown
        self.credit_at = virtual
        self.owed *= grown
        self.brim *= grown

    def granted(self, spent: float, virtual: float, now: Micros) -> None:
        """Pay a low take of `spent` units per weight out of the credit."""
        self.credit = max(0.0, self.due(virtual, now) - spent)
        self.credit_at = virtual
        self.owed = max(0.0, self.owed - spent)


class Member(Ratio):
    """A tenant, or the group of all tenants that nobody listed (whose members have a level of their own)."""

    __slots__ = (
        "arrival", "ask", "cost", "denied", "gone", "group", "had_high", "had_low", "heavy_until", "high_until",
        "light_at", "line", "low", "mark", "meter", "meter_rate_us", "metered_us", "name", "over_us", "own_burst",
        "own_rate_us", "part", "per_weight", "plain", "queue", "saved", "seen_us", "small", "watch", "whole",
        "within_refused",
    )  # fmt: skip

    def __init__(self, weight: float, line: Waterline, now: Micros, *, full: bool, name: str = "") -> None:
        super().__init__(weight)
        # In this order, which a compiled class has in memory too: what every take looks at lies together, in the first
        # two lines of the processor's cache, and what `idle` finds of those who ask as well.
        #: The ask last seen, so that limits and weight are compared only when another one comes; and its cost.
        self.ask: Ask | None = None
        self.cost: RequestUnits = 0.0
        #: When the last ask may be light.
        self.light_at: Micros = 0
        self.per_weight, self.small = _scale(weight)
        virtual = line.virtual(now)
        #: Theoretical arrival time of the share bucket, in virtual time. A full bucket is a little more than full, so
        #: that no rounding makes it less.
        self.arrival = virtual - max(self.small, line.deep) * 1.0001 if full else virtual
        #: What its lower class is owed, once it asked in the highest class as well.
        self.low: Low | None = None
        self.line = line
        #: The group this tenant shares with; None if it was listed.
        self.group: Member | None = None
        #: Whether it asked in the highest class, and in a lower one; whether the roster has let go of it.
        self.had_high = self.had_low = self.gone = False
        self.name = name
        #: Until when demand is followed by itself, for little was left in the bucket.
        self.heavy_until: Micros = 0
        #: The last ask that was not light.
        self.seen_us = now
        #: The weight it was given, and what that is multiplied by here: see `parts`.
        self.whole = weight
        self.part = 1.0
        #: What other processes know it by; nothing where there are none.
        self.mark = b""
        #: Whether the ask last seen has one share bucket to look at, and neither a group nor another class.
        self.plain = True
        self.high_until: Micros = 0
        #: What was earned with the bucket full while callers were booked to return.
        self.saved = 0.0
        #: Those of this tenant that were told to come back, and what is watched of them.
        self.queue = Queue(now)
        self.watch: Watch | None = None
        #: Until when, in virtual time, what was refused within the share counts: as long as the share takes for it.
        self.denied = 0.0
        #: The last ask over the share; and how many were refused that fitted it.
        self.over_us: Micros = now - SECOND
        self.within_refused = 0
        #: The meter: units wanted and not yet forgotten, as of when; unlimited until told otherwise.
        self.meter = 0.0
        self.metered_us = now
        self.meter_rate_us = 0.0
        self.own_rate_us = inf
        self.own_burst = inf

    def own(self, rate_us: float, burst: RequestUnits, now: Micros) -> None:
        """Set the own limits that cap demand; the meter keeps what was spent of the burst."""
        self.meter = min(burst, max(0.0, self.meter - (now - self.metered_us) * self.meter_rate_us))
        self.metered_us = now
        self.own_rate_us = rate_us
        self.own_burst = burst
        self.meter_rate_us = rate_us if isfinite(rate_us) else 0.0
        if not self.meter_rate_us:
            self.meter = 0.0

    def reweigh(self, weight: float, now: Micros) -> None:
        """Change the weight: what the bucket holds in units is kept, within its burst; so is all else that is known."""
        held = self.held(now) * self.weight
        virtual, grown = self.line.virtual(now), self.weight / weight
        self.line.reweigh(self, weight)
        self.per_weight, self.small = _scale(weight)
        self.arrival = virtual - min(held * self.per_weight, self.full())
        self.saved *= grown
        self.denied = virtual + max(0.0, self.denied - virtual) * grown
        if self.low is not None:
            self.low.rescale(grown, virtual, now)

    def settle(self, low: Low, held: float, full: float, *, light: bool) -> None:
        """Follow the bucket before an ask of a tenant with two classes; the ask is `light` if it may ever be."""
        low.settle(held, full)
        self.light_at = self.low_light_at(low) if light else FOREVER

    def miss(self, low: Low, spent: float, floor: float, virtual: float, now: Micros) -> None:
        """Note that the reserve, or what high asks took, refused a low ask."""
        low.refused(spent, floor, self.line.level, virtual, now)
        self.light_at = max(self.light_at, low.until_us)

    def low_light_at(self, low: Low) -> Micros:
        """Return when a low ask may be light: with no high demand, nothing owed, and a reserve that cannot grow."""
        if self.group is not None or low.brim > self.small:
            return FOREVER
        return max(self.heavy_until, self.high_until, low.until_us)

    def full(self) -> float:
        """Return the burst of the share bucket, in units per weight."""
        return max(self.small, self.line.deep)

    def held(self, now: Micros) -> float:
        """Return what the share bucket holds, in units per weight; negative in debt."""
        return min(self.full(), self.line.virtual(now) - self.arrival)

    def spend(self, cost: RequestUnits, now: Micros) -> None:
        """Take `cost` units out of the share bucket, or with a negative cost put them back; never above full."""
        self.arrival = self.line.virtual(now) - self.held(now) + cost * self.per_weight

    def lends(self, fill: float, now: Micros) -> bool:
        """Return whether this group lets a member take that holds `fill` of its bucket.

        As the backstop does: down to a debt of half a second of the group's share (or five units), the deeper the
        fuller the member's bucket, or what members have saved up would be given to whoever comes first.
        """
        debt = max(self.line.level * SECOND / 2, 5.0 * self.per_weight)
        return self.held(now) > -debt * (1.0 + fill) / 2

    def hands_out(self, now: Micros) -> float:
        """Return what this group shares out among its members: its share, and what it holds or owes within a second."""
        stored = self.held(now) / (self.line.level * SECOND) if self.line.level else 0.0
        return self.line.level * self.weight * min(3.0, max(0.5, 1.0 + stored))

    def save(self, excess: float, now: Micros) -> None:
        """Cut the bucket off at full, keeping the `excess` apart while callers are booked: up to 750 ms of share."""
        self.arrival += excess
        self.saved = min(self.saved + excess, 3.0 * self.line.deep) if now < self.queue.end_us + SECOND else 0.0

    def draw(self, spent: float) -> bool:
        """Take `spent` units per weight of what was saved; return whether there was that much."""
        if self.saved < spent:
            return False
        self.saved -= spent
        return True

    def book(self, cost: RequestUnits, missing: float, now: Micros) -> Micros:
        """Book the return of an ask whose share bucket lacks `missing`; return how long it is to stay away."""
        queue, level = self.queue, self.line.level
        if queue.end_us <= now:
            self.saved = 0.0
        asked = 0.0 if (watch := self.watch) is None else watch.asks
        wait = queue.book(missing / level if missing > 0.0 else 0.0, cost, self.per_weight / level, asked, now)
        self.watch = queue.watch
        # While callers are away, what is saved for them has to be looked after.
        until = queue.end_us + SECOND
        if self.heavy_until < until:
            self.heavy_until = until
            if self.light_at < until:  # noqa: PLR1730 - a call of max() costs three times as much
                self.light_at = until
        self.over_us = now
        return wait

    def exceeds(self, spent: float, held: float, virtual: float, now: Micros) -> bool:
        """Count an ask that its share bucket would have let through; return whether the arrivals exceed the share.

        They do if what was asked for, had all of it been taken, would leave less than `spent` of the `held` units per
        weight; or after an ask over the share within the last second. What counts is at most two bursts.
        """
        before = self.denied - virtual
        if before < 0.0:  # noqa: PLR1730 - a call of max() costs three times as much
            before = 0.0
        if before < 2.0 * self.small or before < 2.0 * self.line.deep:
            self.denied = virtual + before + spent
        return held - before < spent or now - self.over_us < SECOND

    def view(self, now: Micros) -> ShareView:
        """Return the share of this tenant at `now`."""
        weight = self.weight
        return ShareView(
            share=self.line.level * weight * SECOND,
            tokens=self.held(now) * weight,
            burst=self.full() * weight,
            over=now - self.over_us < SECOND,
            within_refused=self.within_refused,
        )

    def idle(self, forget_us: Micros, now: Micros) -> bool:
        """Return whether this tenant was idle for `forget_us`, all its buckets full (an unlisted one's own apart)."""
        # Not cut off at a full bucket, the arrival time says how long it has been full. Asked first, and without calls:
        # of those who do ask nothing else need be fetched from memory.
        line = self.line
        if self.group is None and (
            line.virtual(now) - self.arrival <= max(self.small, line.deep) + forget_us * line.level
        ):
            return False
        if now - self.seen_us < forget_us or now < self.queue.end_us:
            return False
        if self.meter > (now - self.metered_us) * self.meter_rate_us > 0.0:
            return False
        return self.low is None or now >= self.low.until_us

    def rebase(self, back: float) -> None:
        """Follow a virtual time that was set back."""
        self.arrival -= back
        self.denied -= back
        if self.low is not None:
            self.low.credit_at -= back
