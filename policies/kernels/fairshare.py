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

Tenants that nobody listed can be minted, so they are together one tenant with one share bucket, and share that among
themselves by a level of their own. A fresh one starts with an empty bucket.

Buckets are kept as theoretical arrival times (`gcra`): the backstop in microseconds, share buckets in virtual time.

Rules
1. A refused take changes demand and the booked waits, nothing else.
2. Demand is what the own limits would let through, metered also while share or backstop refuse; a refusal beyond the
   meter is the caller's own doing (`beyond_own`).
3. An idle tenant saves up one burst, no more; time that steps back mints nothing.
4. A lower class leaves `reserve` of a share bucket alone while a higher one had demand within the last second; a higher
   one leaves it `floor` of the share's rate while it was refused within the last second. Class never looks across
   tenants.
5. A class with a ceiling is shared within it by the same rules: the ceiling is a backstop of its own.
6. No call takes longer than 0.5 ms. State is bounded: one member per listed tenant, `max_unlisted` others, idle ones
   dropped.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from policies.kernels.backlog import booked
from policies.kernels.member import Low, Member
from policies.kernels.roster import Roster
from policies.kernels.share import Ask, ClassPart, ShareRefusal, SharesView, ShareView
from policies.kernels.waterfill import SLICE
from policies.units import NEVER, SECOND, Micros, RequestUnits

__all__ = ["Shares"]

#: The level is solved this often, and at most this often when solved early.
TICK_US: Final = 100_000
EARLY_US: Final = 20_000
#: How long a higher class had demand after its last ask.
RECENT_US: Final = SECOND


class Shares:
    """The backstop and everybody's share of it. `rate_us` is in units per microsecond, `burst` in units."""

    __slots__ = (
        "_arrival", "_burst", "_capacity", "_ceilings", "_cost_us", "_debt_us", "_due_us", "_early_us", "_full_us",
        "_guarded", "_half_us", "_head_us", "_idle_us", "_line", "_members", "_queue_us", "_roster", "_rules", "_used",
        "_used_at",
    )  # fmt: skip

    def __init__(
        self, rate_us: float, burst: RequestUnits, classes: Sequence[ClassPart], unlisted_weight: float, now: Micros,
        max_unlisted: int = 10_000,
    ) -> None:  # fmt: skip
        self._roster = Roster(rate_us, unlisted_weight, max_unlisted, now)
        # The hot path looks at these two without a detour.
        self._members = self._roster.members
        self._line = self._roster.line
        self._queue_us = self._due_us = self._early_us = now
        self._idle_us = 0.0
        self._used = 0.0
        self._size(rate_us, burst, classes)
        #: Theoretical arrival time of the backstop's bucket, which starts full.
        self._arrival: float = now - self._full_us
        self._used_at = (now, self._arrival)
        self._ceilings: dict[int, Shares] = {}
        self._cap(classes, unlisted_weight, max_unlisted, now)

    def _size(self, rate_us: float, burst: RequestUnits, classes: Sequence[ClassPart]) -> None:
        self._capacity = rate_us
        self._burst = burst
        self._cost_us = cost_us = 1.0 / rate_us if rate_us > 0.0 else 0.0
        self._full_us = burst * cost_us
        #: What takes within a share may owe, and what takes over it leave.
        self._debt_us = max(SECOND / 2, min(5.0, burst / 2) * cost_us)
        self._half_us = self._debt_us / 2
        self._head_us = min(SECOND / 20, self._full_us / 4)
        self._rules = tuple((rule.reserve, rule.floor) for rule in classes)

    def take(self, ask: Ask, now: Micros) -> ShareRefusal | None:  # noqa: C901 - the hot path, in one piece on purpose
        """Take `ask.cost` from the tenant's share and the backstop at `now`; None if taken, else nothing was."""
        if self._guarded and (refusal := self._guard(ask, now)) is not None:
            return refusal
        member = self._members.get(ask.tenant)
        if member is None or member.ask is not ask:
            member = self._roster.meet(ask, now)
        if now >= self._due_us:
            self._advance(now)
        line = member.line
        cost = ask.cost
        # Demand, as far as the own limits let it through.
        earliest = now - member.own_full_us
        meter = member.meter
        if meter < earliest:  # noqa: PLR1730 - a call of max() costs three times as much
            meter = earliest
        metered = meter + cost * member.own_cost_us
        beyond = metered > now and meter > earliest
        if not beyond:
            member.meter = metered
            if not member.asked:
                if len(line.fresh) >= SLICE:
                    line.fold(now)
                line.fresh.append(member)
            member.asked += cost
        if member.careful or ask.cls:
            return self._take_carefully(member, ask, now, beyond=beyond)
        member.high_until = now + RECENT_US
        # The share bucket, in virtual time.
        virtual = line.virtual_base + (now - line.solved_us) * line.level
        full = member.small
        if full < line.deep:  # noqa: PLR1730 - a call of max() costs three times as much
            full = line.deep
        empty = virtual - full
        arrival = member.arrival
        if arrival < empty:  # noqa: PLR1730 - a call of max() costs three times as much
            arrival = empty
        after = arrival + cost * member.per_weight
        # The backstop, in real time.
        due = self._arrival
        if due < now - self._full_us:
            self._idle_us += now - self._full_us - due
            self._arrival = due = now - self._full_us
        if after <= virtual or arrival <= empty:
            if due <= now or due - now < self._half_us * (1.0 + (virtual - arrival) / full):
                member.arrival = after
                member.over = False
                self._arrival = due + cost * self._cost_us
                if due > now >= self._early_us:
                    self._advance_early(now)
                return None
            return self._refuse_within(member, cost, now, beyond=beyond)
        if self._spare(due, cost, now):
            member.over = True
            self._arrival = due + cost * self._cost_us
            return None
        return self._refuse_over(member, cost, after - virtual, now, beyond=beyond)

    def _take_carefully(self, member: Member, ask: Ask, now: Micros, *, beyond: bool) -> ShareRefusal | None:
        """Take for a tenant that shares with a group, or whose classes share with each other."""
        cost = ask.cost
        line = member.line
        virtual = line.virtual(now)
        full = member.full()
        held = min(full, virtual - member.arrival)
        spent = cost * member.per_weight
        reserve, floor = self._rules[ask.cls] if self._rules else (0.0, 0.0)
        kept = self._kept(member, ask.cls, spent, virtual, now)
        need = min(spent, full - kept) + kept
        fill = held / full
        within = held >= need
        group = member.group
        if group is not None:
            if not beyond:
                self._line.want(group, cost, now)
            group_fill = group.held(now) / group.full()
            within = within and group_fill >= min(1.0, cost * group.per_weight / group.full())
            fill = min(fill, group_fill)
        due = self._settled(now)
        if within and due - now >= self._half_us * (1.0 + fill):
            return self._refuse_within(member, cost, now, beyond=beyond)
        if not within and not self._spare(due, cost, now):
            if reserve and floor and now < member.high_until:
                self._owe(member).refused(spent, floor, line.level, virtual, now)
            return self._refuse_over(member, cost, need - held, now, beyond=beyond)
        member.over = not within
        self._arrival = due + cost * self._cost_us
        if within:
            member.arrival = virtual - held + spent
            if group is not None:
                group.spend(cost, now)
        if reserve and member.low is not None:
            member.low.granted(spent, virtual, now)
        if self._arrival > now >= self._early_us:
            self._advance_early(now)
        return None

    def give_back(self, ask: Ask, now: Micros, *, over: bool = False) -> None:
        """Return a take whose request never reached the upstream; `over` if it was taken over the share."""
        if (ceiling := self._ceilings.get(ask.cls)) is not None:
            ceiling.give_back(ask, now, over=over)
        self._arrival -= ask.cost * self._cost_us
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

    def _kept(self, member: Member, cls: int, spent: float, virtual: float, now: Micros) -> float:
        """Return what an ask of class `cls` leaves in the share bucket for the other class."""
        reserve, floor = self._rules[cls] if self._rules else (0.0, 0.0)
        low = member.low
        if not reserve:
            member.high_until = now + RECENT_US
            return low.due(virtual, now) if low is not None else 0.0
        if now >= member.high_until:
            return 0.0
        full = member.full()
        if low is not None and floor and low.due(virtual, now) >= min(spent, full):
            return 0.0
        return reserve * full

    def _spare(self, due: float, cost: RequestUnits, now: Micros) -> bool:
        """Return whether the backstop holds `cost` tokens besides what takes over the share leave alone."""
        return due + min(cost * self._cost_us, self._full_us - self._head_us) + self._head_us <= now

    def _settled(self, now: Micros) -> float:
        """Return the backstop's arrival time, not earlier than that of a full bucket."""
        earliest = now - self._full_us
        if self._arrival < earliest:
            self._idle_us += earliest - self._arrival
            self._arrival = earliest
        return self._arrival

    def _owe(self, member: Member) -> Low:
        if member.low is None:
            member.low = Low()
            member.careful = True
        return member.low

    def _refuse_within(self, member: Member, cost: RequestUnits, now: Micros, *, beyond: bool) -> ShareRefusal:
        """Refuse an ask within the share: more tenants have full share buckets than the debt can hold."""
        member.over = False
        member.within_refused += 1
        ready = max(now, int(self._arrival - self._half_us))
        come, self._queue_us = booked(self._queue_us, ready, cost, self._capacity, now)
        return ShareRefusal("backstop", come - now, beyond)

    def _refuse_over(
        self, member: Member, cost: RequestUnits, missing: float, now: Micros, *, beyond: bool
    ) -> ShareRefusal:
        """Refuse an ask over the share, which lacks `missing` units per weight."""
        member.over = True
        level = member.line.level
        ready = now + int(max(0.0, missing) / level)
        come, member.queue_us = booked(member.queue_us, ready, cost, level * member.weight, now)
        return ShareRefusal("share", come - now, beyond)

    def _guard(self, ask: Ask, now: Micros) -> ShareRefusal | None:
        """Refuse what a backstop or a class without any rate, or the ceiling of the class, refuses."""
        if self._capacity <= 0.0:
            return ShareRefusal("backstop", NEVER)
        ceiling = self._ceilings.get(ask.cls)
        refusal = ceiling.take(ask, now) if ceiling is not None else None
        if refusal is not None:
            refusal.limit = "class"
        return refusal

    def _uncap(self, ask: Ask, now: Micros) -> None:
        """Give back what the ceiling of the class granted before the share or the backstop refused."""
        if (ceiling := self._ceilings.get(ask.cls)) is not None:
            share = ceiling.share_of(ask.tenant, now)
            ceiling.give_back(ask, now, over=share is None or share.over)

    def _cap(self, classes: Sequence[ClassPart], unlisted_weight: float, max_unlisted: int, now: Micros) -> None:
        """Give each class with a ceiling a backstop of its own, keeping those there are."""
        before, self._ceilings = self._ceilings, {}
        for index, rule in enumerate(classes):
            if rule.ceiling >= 1.0:
                continue
            rate_us, burst = self._capacity * rule.ceiling, self._burst * rule.ceiling
            ceiling = before.get(index)
            if ceiling is None:
                ceiling = Shares(rate_us, burst, (), unlisted_weight, now, max_unlisted)
            else:
                ceiling.rebuild(rate_us, burst, (), unlisted_weight, now, max_unlisted)
            self._ceilings[index] = ceiling
        self._guarded = bool(self._ceilings) or self._capacity <= 0.0

    def _advance(self, now: Micros) -> None:
        """Solve the level whose turn it is; the two take turns, so that no call solves both."""
        line, inner = self._line, self._roster.inner
        if now - line.solved_us >= TICK_US:
            self._solve(now)
        else:
            inner.solve(line.level * self._roster.group.weight, now)
            self._roster.sweep(now)
        self._due_us = min(line.solved_us, inner.solved_us) + TICK_US

    def _advance_early(self, now: Micros) -> None:
        """Solve before the tick if the debt says that the level is out of date."""
        if not self._line.contended or self._arrival - now > self._half_us:
            self._solve(now)
        else:
            self._early_us = now + EARLY_US // 4

    def _solve(self, now: Micros) -> None:
        """Find the level that hands out the capacity, and what is stored within a second, or repays a debt in one."""
        tokens = (now - self._settled(now)) / SECOND
        self._line.solve(self._capacity * min(3.0, max(0.5, 1.0 + tokens)), now)
        self._early_us = now + EARLY_US
        self._roster.rebase()
        self._measure(now)

    def _measure(self, now: Micros) -> None:
        """Bring the used part of the capacity up to date: what arrival times moved by, but for idling."""
        since, then = self._used_at
        spent = self._arrival - self._idle_us
        if now - since >= TICK_US:
            part = (spent - then) / (now - since)
            self._used += (part - self._used) * min(1.0, (now - since) / SECOND)
            self._used_at = (now, spent)

    def rebuild(
        self, rate_us: float, burst: RequestUnits, classes: Sequence[ClassPart], unlisted_weight: float, now: Micros,
        max_unlisted: int = 10_000,
    ) -> None:  # fmt: skip
        """Follow a reload: nothing is refilled, nothing forgotten. How full the backstop is, or how deep in debt, stays."""
        ahead = now - self._settled(now)
        part = ahead / self._full_us if self._full_us and ahead > 0 else 0.0
        self._size(rate_us, burst, classes)
        self._arrival = now - part * self._full_us if ahead > 0 else now - ahead
        self._used_at = (now, self._arrival - self._idle_us)
        self._roster.max_unlisted = max_unlisted
        if unlisted_weight != self._roster.group.weight:
            self._roster.group.reweigh(unlisted_weight, now)
        self._cap(classes, unlisted_weight, max_unlisted, now)
        self._solve(now)

    def view(self, now: Micros) -> SharesView:
        """Return the state of the backstop at `now`."""
        tokens = min(self._burst, (now - self._arrival) * self._capacity)
        return SharesView(
            contended=self._line.contended,
            level=self._line.level * SECOND,
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
        if member is None:
            return None
        share = member.line.level * member.weight * SECOND
        return ShareView(share, member.held(now) * member.weight, member.over, member.within_refused)
