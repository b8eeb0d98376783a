"""The fair backstop: what the service can serve, shared max-min by tenant weight, both tiers always live.

Theory of operation
-------------------
The backstop is a bucket of T tokens that fills at the capacity C. Each tenant has a share bucket that fills at level *
weight (`waterfill`). A take *within* the share passes while the backstop is above a bounded debt; a take *over* the
share passes only while the backstop holds tokens, so nothing is wasted and debt is repaid first. Both tiers are live at
any load: switching sharing on at contention, with full buckets, was simulated and serves fewer.

What is handed out is P = C + T per second, between C/2 and 3C, so debt is repaid and stored tokens are spent. A tenant
whose arrivals fit its share never meets `share`; it meets `backstop` only if more tenants at once have full share
buckets than the debt can hold, and then fuller buckets go first, or tenants with tiny shares would starve.

Whoever is told to come back is told whole seconds, so those who obey come in lumps a second apart. A tenant with
callers booked to return therefore saves up to 750 ms of its share beside its bucket, to be used while the debt is
small: without that, tenants that obey get 75 % of their share beside tenants that hammer, with it 97 %.

Tenants that nobody listed can be minted, so they are together one tenant with one share bucket, and share that among
themselves by a level of their own. Buckets are kept as theoretical arrival times: the backstop's in microseconds, share
buckets in virtual time.

Rules
1. A refused take changes demand and the booked waits, nothing else.
2. Demand is what the own limits would let through, metered also while share or backstop refuse; a refusal beyond the
   meter is the caller's own doing (`beyond_own`).
3. An idle tenant saves up one burst, no more; time that steps back mints nothing.
4. A lower class leaves `reserve` of a share bucket alone while a higher one had demand within the last second; a higher
   one leaves it `floor` of the share's rate while it was refused within the last second. Class never looks across
   tenants.
5. A class with a ceiling is shared within it by the same rules: the ceiling is a backstop of its own.
6. A `backstop` refusal is `over` if what the tenant asked for of late, refused or not, exceeds its share and one burst.
7. No call takes longer than 0.5 ms. State is bounded: one member per listed tenant, `max_unlisted` others, idle ones
   dropped.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, cast

from policies.kernels.backlog import Queue
from policies.kernels.ceilings import Ceilings, Make
from policies.kernels.member import Member
from policies.kernels.reservoir import Reservoir
from policies.kernels.roster import Roster
from policies.kernels.share import Ask, ClassPart, ShareRefusal, SharesView, ShareView
from policies.kernels.waterfill import SLICE
from policies.units import SECOND, Micros, RequestUnits

__all__ = ["Shares"]

#: The level is solved this often, and at most this often when solved early.
TICK_US: Final = 100_000
EARLY_US: Final = 20_000
#: How long a higher class had demand after its last ask.
RECENT_US: Final = SECOND
#: How long a tenant's demand is followed by itself after little was left in its share bucket.
HEAVY_US: Final = SECOND
#: Reserve and floor of a class that leaves nothing and keeps nothing.
NO_RULE: Final = (0.0, 0.0)


class Shares(Reservoir):
    """The backstop and everybody's share of it.

    `rate_us` is in units per microsecond, `burst` in units; `classes` is indexed by class, `unlisted_weight` the weight
    of all tenants that nobody listed, together.
    """

    __slots__ = (
        "_ceilings", "_due_us", "_early_us", "_guarded", "_members", "_queue", "_roster", "_rules", "_spent", "_used",
        "_used_at", "over",
    )  # fmt: skip

    def __init__(
        self, rate_us: float, burst: RequestUnits, classes: Sequence[ClassPart], unlisted_weight: float, now: Micros,
        max_unlisted: int = 10_000,
    ) -> None:  # fmt: skip
        self._roster = Roster(rate_us, unlisted_weight, max_unlisted, now)
        super().__init__(rate_us, burst, self._roster.line)
        # The hot path looks at them without a detour.
        self._members = self._roster.members
        #: Whether the last take was over the share.
        self.over = False
        self._queue = Queue(now)
        self._due_us = self._early_us = now
        #: Units taken, but for the light ones, which their level counts.
        self._spent = 0.0
        self._used = 0.0
        self._used_at = (now, 0.0)
        self._ceilings = Ceilings()
        self._rank(classes)
        self._ceilings.resize(self._ceiling(), rate_us, burst, classes, unlisted_weight, now, max_unlisted)
        self._guarded = self._roster.guarded = self._ceilings.guarded

    @classmethod
    def _ceiling(cls) -> Make:
        """Return what makes the backstop of a class."""
        return Shares

    def _rank(self, classes: Sequence[ClassPart]) -> None:
        highest = min((rule.priority for rule in classes), default=0)
        #: Reserve and floor of the classes that have a higher one above them.
        self._rules = {
            index: (rule.reserve, rule.floor)
            for index, rule in enumerate(classes)
            if rule.priority > highest and rule.reserve > 0.0
        }
        self._roster.lower = frozenset(self._rules)

    def take(self, ask: Ask, now: Micros) -> ShareRefusal | None:
        """Take `ask.cost` from the tenant's share and the backstop at `now`; None if taken, else nothing was."""
        member = self._members.get(ask.tenant)
        if member is None or member.ask is not ask:
            member = self._roster.meet(ask, now)
        return self.take_of(member, now)

    def meet(self, ask: Ask, now: Micros) -> Member:
        """Return whom `ask` is of. That holds for it while this is its `ask`: no look by name is needed as long."""
        return self._roster.meet(ask, now)

    def take_of(self, member: Member, now: Micros) -> ShareRefusal | None:
        """Do what `take` does, of the ask that `member` was met with last.

        The path of a tenant with much left in its share bucket is written out here: it is that of nearly every ask, and
        calls to what it repeats would double its time. It does without the ask: the member knows what it costs.
        """
        if now >= self._due_us:
            ask = cast("Ask", member.ask)
            self._advance(now)
            if member.ask is None:  # it was idle, or shares no more with others
                member = self._roster.meet(ask, now)
        if now < member.light_at:
            return self._take_tracked(member, cast("Ask", member.ask), now)
        line = self._line
        elapsed = now - line.solved_us
        virtual = line.virtual_base + elapsed * line.level
        left = virtual - member.arrival
        small = member.small
        if left > small:
            if small > line.deep:
                left = small
            elif member.low is None:
                left = min(left, line.deep)
            else:
                return self._take_tracked(member, cast("Ask", member.ask), now)
        cost = member.cost
        left -= cost * member.per_weight
        due = self._arrival
        earliest = elapsed - self._full_us
        if due < earliest:  # noqa: PLR1730 - a call of max() costs three times as much
            due = earliest
        if left < 0.5 * small or due - elapsed >= self._half_us:
            return self._take_tracked(member, cast("Ask", member.ask), now)
        line.light += cost
        member.arrival = virtual - left
        self._arrival = due + cost * self._cost_us
        self.over = False
        if due > elapsed and now >= self._early_us:
            self._advance_early(now)
        return None

    def _take_tracked(self, member: Member, ask: Ask, now: Micros) -> ShareRefusal | None:
        """Take for a tenant whose own demand matters to the level; written out, as every ask of a flood comes here."""
        if self._guarded and ask.cls in self._guarded and (refusal := self._ceilings.take(ask, now)) is not None:
            return refusal
        member.seen_us = now
        if not member.plain:
            return self._take_carefully(member, ask, now)
        cost = ask.cost
        line = self._line
        elapsed = now - line.solved_us
        virtual = line.virtual_base + elapsed * line.level
        full = member.small
        if full < line.deep:  # noqa: PLR1730 - a call of max() costs three times as much
            full = line.deep
        held = virtual - member.arrival
        if held > full:
            member.save(held - full, now)
            held = full
        spent = cost * member.per_weight
        left = held - spent
        beyond = self._want(member, cost, left, now)
        debt = self._arrival - elapsed
        if debt < -self._full_us:  # noqa: PLR1730 - as above
            debt = -self._full_us
        if left >= 0.0 or held >= full:
            if debt > 0.0 and debt >= self._half_us * (1.0 + held / full):
                over = member.exceeds(spent, held, virtual, now)
                return self._refuse_within(member, ask, debt, now, over=over, beyond=beyond)
            member.arrival = virtual - left
            self.over = False
        elif debt < -self._head_us and self._spare(debt, cost):
            member.over_us = now
            self.over = True
        elif debt < self._saved_us and member.draw(spent):
            self.over = False
        else:
            if self._guarded:
                self._ceilings.undo(ask, now)
            return ShareRefusal("share", member.book(cost, -left, now), beyond)
        self._spent += cost
        self._arrival = elapsed + debt + cost * self._cost_us
        if debt > 0.0 and now >= self._early_us:
            self._advance_early(now)
        return None

    def _take_carefully(self, member: Member, ask: Ask, now: Micros) -> ShareRefusal | None:
        """Take for a tenant that shares with a group, or whose classes share with each other."""
        cost, line = ask.cost, member.line
        virtual = line.virtual(now)
        full = member.full()
        held = virtual - member.arrival
        if held > full:
            member.save(held - full, now)
            held = full
        reserve, floor = self._rules.get(ask.cls, NO_RULE)
        low = member.low
        if low is not None:
            member.settle(low, held, full, light=reserve > 0.0 and ask.cls not in self._guarded)
        spent = cost * member.per_weight
        beyond = self._want(member, cost, held - spent, now)
        kept = self._kept(member, ask.cls, spent, virtual, now)
        need = min(spent, full - kept) + kept
        fill, granted = held / full, True
        group = member.group
        if group is not None:
            if not beyond:
                self._line.want(group, cost, now)
            granted = group.lends(fill, now)
            fill = min(fill, max(0.0, group.held(now) / group.full()))
        within = granted and held >= need
        debt = self._debt(now)
        if within and debt >= self._half_us * (1.0 + fill):
            over = member.exceeds(spent, held, virtual, now)
            return self._refuse_within(member, ask, debt, now, over=over, beyond=beyond)
        spare = not within and self._spare(debt, cost)
        if not (within or spare or (granted and debt < self._saved_us and member.draw(spent))):
            if low is not None and floor and now < member.high_until:
                member.miss(low, spent, floor, virtual, now)
            self._ceilings.undo(ask, now)
            return ShareRefusal("share", member.book(cost, need - held, now), beyond)
        self.over = spare
        if within:
            member.arrival = virtual - held + spent
        elif spare:
            member.over_us = now
        if group is not None and not spare:
            group.spend(cost, now)
        if reserve and low is not None:
            low.granted(spent, virtual, now)
        self._spend(cost, debt, now)
        return None

    def _want(self, member: Member, cost: RequestUnits, left: float, now: Micros) -> bool:
        """Count demand as far as the own limits let it through; return whether this ask is beyond them."""
        line = member.line
        if (watch := member.watch) is not None:
            watch.asks += cost
        if left < 0.5 * member.small:
            until = now + HEAVY_US
            if member.heavy_until < until:
                member.heavy_until = until
                member.light_at = max(member.light_at, until)
        elif now >= member.light_at:
            line.light += cost
            self._spent -= cost  # the level counts what is light as taken
            return False
        level = member.meter - (now - member.metered_us) * member.meter_rate_us
        if level < 0.0:  # noqa: PLR1730 - a call of max() costs three times as much
            level = 0.0
        if level + cost > member.own_burst and level > 0.0:
            return True
        member.meter = level + cost
        member.metered_us = now
        if not member.asked:
            if len(line.fresh) >= SLICE:
                line.fold(now)
            line.fresh.append(member)
        member.asked += cost
        return False

    def _kept(self, member: Member, cls: int, spent: float, virtual: float, now: Micros) -> float:
        """Return what an ask of class `cls` leaves in the share bucket for the other class."""
        if (low := member.low) is None:
            return 0.0
        reserve, floor = self._rules.get(cls, NO_RULE)
        if not reserve:
            member.high_until = now + RECENT_US
            return low.due(virtual, now)
        if now >= member.high_until:
            return 0.0
        return 0.0 if floor and low.due(virtual, now) >= min(spent, member.full()) else reserve * low.brim

    def _spend(self, cost: RequestUnits, debt: float, now: Micros) -> None:
        """Take `cost` from the backstop."""
        self._spent += cost
        self._arrival = now - self._line.solved_us + debt + cost * self._cost_us
        if debt > 0.0 and now >= self._early_us:
            self._advance_early(now)

    def _refuse_within(
        self, member: Member, ask: Ask, debt: float, now: Micros, *, over: bool, beyond: bool
    ) -> ShareRefusal:  # fmt: skip
        """Refuse an ask within the share bucket: more tenants have full ones than the debt can hold."""
        if self._guarded:
            self._ceilings.undo(ask, now)
        if not (over or beyond):
            member.within_refused += 1
        asked = self._spent + self._line.light_before + self._line.light
        wait = self._queue.book(debt - self._half_us, ask.cost, self._cost_us, asked, now)
        return ShareRefusal("backstop", wait, beyond, over)

    def give_back(self, ask: Ask, now: Micros, *, over: bool = False) -> None:
        """Return a take whose request never reached the upstream; `over` if it was taken over the share."""
        self._ceilings.give_back(ask, now, over=over)
        self._arrival -= ask.cost * self._cost_us
        self._spent -= ask.cost
        if over:
            return
        member = self._roster.meet(ask, now)
        member.spend(-ask.cost, now)
        if member.group is not None:
            member.group.spend(-ask.cost, now)

    def tick(self, now: Micros) -> None:
        """Do what is due at `now`, for a timer of 10 to 20 ms; without one, takes do it."""
        if now >= self._due_us:
            self._advance(now)
        else:
            self._roster.sweep(now)

    def _advance(self, now: Micros) -> None:
        """Solve the level whose turn it is; the two take turns, so that no call solves both."""
        line, inner = self._line, self._roster.inner
        if now - line.solved_us >= TICK_US:
            self._solve(now)
        else:
            inner.solve(self._roster.group.hands_out(now), now)
            self._roster.sweep(now)
        self._due_us = min(line.solved_us, inner.solved_us) + TICK_US

    def _advance_early(self, now: Micros) -> None:
        """Solve before the tick if the debt says that the level is out of date."""
        if not self._line.contended or self._debt(now) > self._half_us:
            self._solve(now)
        else:
            self._early_us = now + EARLY_US // 4

    def _solve(self, now: Micros) -> None:
        """Find the level that hands out the capacity, and what is stored within a second, or repays a debt in one."""
        debt = self._debt(now)
        self._line.solve(self._capacity * min(3.0, max(0.5, 1.0 - debt / SECOND)), now)
        self._arrival = now - self._line.solved_us + debt
        self._early_us = now + EARLY_US
        self._roster.rebase()
        since, before = self._used_at
        if now - since >= TICK_US and self._capacity > 0.0:
            spent = self._spent + self._line.light_before
            part = (spent - before) / ((now - since) * self._capacity)
            self._used += (part - self._used) * min(1.0, (now - since) / SECOND)
            self._used_at = (now, spent)

    def rebuild(
        self, rate_us: float, burst: RequestUnits, classes: Sequence[ClassPart], unlisted_weight: float, now: Micros,
        max_unlisted: int = 10_000,
    ) -> None:  # fmt: skip
        """Follow a reload: nothing is refilled, nothing forgotten; a debt takes as long to repay as before."""
        self._refit(rate_us, burst, now)
        self._rank(classes)
        self._roster.resize(unlisted_weight, max_unlisted, now)
        self._ceilings.resize(self._ceiling(), rate_us, burst, classes, unlisted_weight, now, max_unlisted)
        self._guarded = self._roster.guarded = self._ceilings.guarded
        self._solve(now)

    @property
    def level(self) -> float:
        """Return the water level in force: units per second and unit of weight."""
        return self._line.level * SECOND

    def view(self, now: Micros) -> SharesView:
        """Return the state of the backstop at `now`."""
        tokens = -self._debt(now) * self._capacity
        return SharesView(
            contended=self._line.contended,
            level=self.level,
            unlisted_level=self._roster.inner.level * SECOND,
            tokens=max(0.0, tokens),
            debt=max(0.0, -tokens),
            debt_bound=self._debt_us * self._capacity,
            demand=self._line.demand * SECOND,
            used_ratio=self._used,
            tenants=len(self._members),
        )

    def share_of(self, tenant: str, now: Micros) -> ShareView | None:
        """Return a tenant's share at `now`; None if it was idle so long that it is not known."""
        member = self._members.get(tenant)
        return None if member is None else member.view(now)
