"""Which part of a tenant's demand is in this process, and so which part of its weight counts here.

Theory of operation
-------------------
A tenant whose demand is spread evenly over n processes counts everywhere with its whole weight: levels are then an n-th
of what they would be in one process, and nothing has to be known of anybody. It matters only who is spread unevenly
*and* asks for more than an n-th of its share somewhere; its share bucket runs low there, so it is noticed. Its demand
is told to the others, who tell theirs; each gives it the weight times n times the part that it has of the sum.

Rules
1. At most `MOST` tenants are told of by a process that notices them, the heaviest by demand per weight first; as many
   again because others noticed them.
2. A part follows demand as slowly as the tenant takes for `WINDOW` requests: of 0.3/s, a request more or less says
   nothing about where its callers are. What cannot be chance is followed at once; what can be chance,
   its callers being spread evenly, is taken for that.
3. No part is 0: a first ask finds a bucket that fills.
4. Weights are changed in steps, so that one that wavers is left alone. The group of all unlisted tenants is no tenant:
   its part goes by what its members use at their level (`portion`).
5. Buckets hold a burst in every process, for nobody knows where one will come. Whoever turns out to ask for more than
   its share keeps one burst in all.
6. Whoever is noticed stays so until its bucket has not been low for two seconds; with more than its even part here also
   until what it asks for would fit half of an n-th of its share.
"""

from __future__ import annotations

from collections.abc import Mapping
from heapq import nlargest
from math import exp, log, sqrt
from typing import Final, NamedTuple

from policies.kernels.member import Member
from policies.kernels.roster import Roster
from policies.units import SECOND, Micros

__all__ = ["MOST", "Heard", "Parts", "step_of", "weight_of"]

MOST: Final = 64
#: Members looked at by one step; it takes about 0.2 ms.
SLICE: Final = 64
#: How long somebody is told of after it was last noticed, and followed because others notice it.
KEPT_US: Final = 2 * SECOND
OTHERS_US: Final = SECOND // 2
#: A small burst, in units.
BURST: Final = 20.0
#: How many requests demand is averaged over, and the least and the longest time of that, in seconds.
WINDOW: Final = 80.0
FAST: Final = 0.1
SLOW: Final = 30.0
#: Variance of a quick estimate, as a part of the rate of requests, and what one request adds to it; beyond so many
#: deviations it was no chance, and beyond so many of a part callers are not spread evenly.
NOISE: Final = 1.8
ONE: Final = 3.6
CERTAIN: Final = 4.0
LIKELY: Final = 2.5
#: From this many steps on a part is more than even.
UNEVEN: Final = 10
#: Part of the demand that counts as spread evenly, wherever it is.
EVEN: Final = 0.02
#: Width of a step of a part, as a logarithm.
STEP: Final = 0.02


class Heard(NamedTuple):
    """What another process tells: demand in units per second by mark, of those it noticed and of the rest."""

    noticed: Mapping[bytes, float]
    others: Mapping[bytes, float]


class _Part:
    """A tenant that is followed."""

    __slots__ = ("demand", "heard_until", "looked_us", "member", "noticed_until", "seconds", "step", "window")

    def __init__(self, member: Member, now: Micros) -> None:
        self.member = member
        self.looked_us = now
        self.demand = 0.0
        #: For how long it was averaged, and over how many seconds and units of cost that is worth.
        self.seconds = 0.0
        self.window = 0.0
        self.step = 0
        self.noticed_until: Micros = 0
        self.heard_until: Micros = 0


class Parts:
    """The tenants of a roster that are told of."""

    __slots__ = ("_due", "_followed", "_heard", "_roster", "_totals")

    def __init__(self, roster: Roster, now: Micros) -> None:
        self._roster = roster
        self._followed: dict[Member, _Part] = {}
        #: What others have of each that anybody told of: as far as heard, and when all was heard last.
        self._heard: dict[bytes, float] = {}
        self._totals: dict[bytes, float] = {}
        #: Those that are not looked at yet in this round.
        self._due: list[_Part] = []
        roster.begin_marks()
        roster.line.seen = set()
        roster.inner.seen = set()

    def notice(self, now: Micros) -> None:
        """Begin to follow the heaviest of those whose bucket ran low."""
        room = min(MOST - self._noticed(now), 2 * MOST - len(self._followed))
        for line in (self._roster.line, self._roster.inner):
            if not line.seen:
                continue
            seen = [each for each in line.seen if isinstance(each, Member)]
            line.seen.clear()
            for member in nlargest(MOST, seen, key=_ratio):
                if room > 0 and member.mark and member.heavy_until > now and member not in self._followed:
                    self._begin(member, now).noticed_until = now + KEPT_US
                    room -= 1

    def told(self, now: Micros) -> Heard:
        """Return what the other processes should know."""
        noticed: dict[bytes, float] = {}
        others: dict[bytes, float] = {}
        for part in self._followed.values():
            kept = noticed if part.noticed_until > now else others
            kept[part.member.mark] = part.demand
        return Heard(noticed, others)

    def hear(self, heard: Heard, now: Micros) -> None:
        """Hear what one other process tells."""
        totals, marks = self._heard, self._roster.marks
        for told in heard:
            for mark, demand in told.items():
                totals[mark] = totals.get(mark, 0.0) + demand
        room = 2 * MOST - len(self._followed) - max(0, MOST - self._noticed(now))
        for mark in heard.noticed:
            member = marks.get(mark)
            if member is None:
                continue
            part = self._followed.get(member)
            if part is None:
                if room <= 0:
                    continue
                part = self._begin(member, now)
                room -= 1
            part.heard_until = now + OTHERS_US

    def all_heard(self) -> None:
        """Go by what was heard since this was last said."""
        self._totals, self._heard = self._heard, {}
        self._roster.elsewhere = self._totals

    def step(self, processes: int, now: Micros) -> None:
        """Follow the demand of the next few, and give them the weight of their part."""
        if not self._due:
            self._due = list(self._followed.values())
        for part in self._due[-SLICE:]:
            if self._follow(part, processes, now):
                self._divide(part, processes, now)
        del self._due[-SLICE:]

    def _noticed(self, now: Micros) -> int:
        """Return how many are followed because they were noticed here."""
        return sum(part.noticed_until > now for part in self._followed.values())

    def _begin(self, member: Member, now: Micros) -> _Part:
        part = self._followed[member] = _Part(member, now)
        return part

    def _follow(self, part: _Part, processes: int, now: Micros) -> bool:
        """Bring one up to date; return whether it is followed any longer."""
        member = part.member
        line = member.line
        elapsed = max(1, now - part.looked_us) / SECOND
        part.looked_us = now
        if self._roster.marks.get(member.mark) is not member:  # it was idle, and is gone
            self._followed.pop(member, None)
            return False
        cost = member.ask.cost if member.ask is not None else 1.0
        total = part.demand + self._totals.get(member.mark, 0.0)
        constant = min(SLOW, max(FAST, WINDOW * cost / total)) if total > 0.0 else SLOW
        wanted = line.wanted(member) * SECOND
        change = wanted - part.demand
        if abs(change) > CERTAIN * (sqrt(NOISE * part.demand * cost) + ONE * cost):
            part.seconds = 0.0
        part.seconds += elapsed
        part.window = min(2.0 * constant, part.seconds) / cost
        part.demand += change * max(1.0 - exp(-elapsed / constant), elapsed / part.seconds)
        uneven = part.step > UNEVEN and wanted > line.level * SECOND * member.whole / 2
        if uneven or member.held(now) < member.full() / 2:
            part.noticed_until = now + KEPT_US
        if now >= part.noticed_until and now >= part.heard_until:
            del self._followed[member]
            self._roster.weigh(member, member.whole, 1.0, now)
            # Looked at closely at its next ask, it is as light again as it is.
            member.heavy_until = max(now, member.queue.end_us + SECOND)
            member.ask = None
            return False
        # Its own demand has to be known, however full its bucket is here.
        member.heavy_until = max(member.heavy_until, now + OTHERS_US)
        member.light_at = max(member.light_at, member.heavy_until)
        return True

    def _divide(self, part: _Part, processes: int, now: Micros) -> None:
        member = part.member
        total = part.demand + self._totals.get(member.mark, 0.0)
        if total <= 0.0:
            return
        even = 1.0 / processes
        here = part.demand / total
        if (here - even) ** 2 * total * part.window < LIKELY * LIKELY * even * (1.0 - even):
            here = even
        here = (here + EVEN * even) / (1.0 + EVEN)
        step = step_of(here * processes)
        if abs(step - part.step) > 1:
            part.step = step
            self._roster.weigh(member, member.whole, weight_of(step), now)
        share = member.line.level * SECOND * processes * member.whole
        if total > share:
            excess = member.held(now) * member.weight - here * max(BURST, share / 4)
            if excess > 0.0:
                member.spend(excess, now)


def step_of(part: float) -> int:
    """Return the step nearest to a part; 0 is the whole weight."""
    return round(log(part) / STEP)


def weight_of(step: int) -> float:
    """Return what a weight is multiplied by at a step."""
    return exp(step * STEP)


def _ratio(member: Member) -> int:
    """Return a number that is higher the more a member asks for by its weight."""
    return member.cell.index if member.cell is not None else 0
