"""Waits that are booked: whoever is told to come back later is given a place in a queue that nobody stands in.

Telling everybody the same wait makes a wave that is refused again. So each refusal books its cost: the next one to be
refused is told to come after it. The book is kept as the instant at which the next caller may come, which moves on by
what the last one will take at the full rate: the jitter that is added to a told wait, up to a quarter of it, leaves
room for those who come uninvited. (At nine tenths of the rate, a herd of 1,000 over 100/s was away a second longer, and
not one more of it got in at its first return.)

A booking is a belief that somebody waits, so it is held against what happens. Callers who do not obey book a place with
each attempt and keep none of them; were all believed, one caller that asks every millisecond for five seconds would
leave a book of forty, and whoever came after it would be told to wait for nobody.

Rules
1. A wait is never shorter than what this limit alone would need.
2. Half a second is added to a first wait: a wave that was just refused is still arriving.
3. Nobody is booked further ahead than 60 s; there the queue stops growing, and callers are told its end.
4. Once bookings are overdue, the longest jitter and the whole seconds of Retry-After included, and fewer asked
   meanwhile than half of them, nobody waits: the rest is void.
5. A book that had more refusals than places came due, by three quarters and for five seconds in a row, is being
   hammered, and reaches 2 s ahead: a longer wait would help nobody. A crowd that obeys can look the same, for a short
   book brings it back too soon. So every ten seconds the book reaches 6 s for ten seconds; if that has a fifth fewer
   refusals than the phases before and after it, callers obey, and are believed for a minute of such seconds.
"""

from __future__ import annotations

from math import inf
from typing import Final

from policies.units import SECOND, Micros, RequestUnits

__all__ = ["Queue", "Watch"]

GRACE_US: Final = SECOND // 2
HORIZON_US: Final = 60 * SECOND
#: How far ahead a book reaches that is hammered, and while it is found out whether callers obey. A shorter one is not
#: watched: whatever it says, it says soon, and ten thousand watches are more than the processor's cache holds.
SHORT_US: Final = 2 * SECOND
TRIAL_US: Final = 3 * SHORT_US
PHASE_US: Final = 10 * SECOND
#: Which part of the refusals of a phase must be left for callers not to obey.
HEEDLESS: Final = 0.8
#: Seconds in a row of more refusals than places came due, and by how much more, for a book to be hammered; and
#: how many such seconds callers are believed that have been found to obey.
STRIKES: Final = 5
TRUST: Final = 60
EXCESS: Final = 1.75
#: Units below which nothing is concluded.
FEW: Final = 4.0
#: Jitter is at most this part of a told wait.
JITTER: Final = 0.25


class Watch:
    """What happens while a book is long, and how far ahead it may reach."""

    __slots__ = (
        "asked", "asked_last", "asks", "before", "begin_us", "first_us", "last_us", "pace_us", "phase_us", "reach_us",
        "refused_phase", "refused_us", "since_us", "strikes", "told_us", "tried",
    )  # fmt: skip

    def __init__(self, pace_us: float, asked: RequestUnits, first_us: Micros, now: Micros) -> None:
        #: Places from `first_us` on were booked from `begin_us` on; the longest wait told and the slowest rate since.
        self.begin_us = now
        self.first_us = first_us
        self.told_us: Micros = 0
        self.pace_us = pace_us
        #: The second that is looked at began then, and the last booking was then; units ever asked for as of both.
        self.since_us = self.last_us = now
        self.asked = self.asked_last = asked
        #: For whoever keeps count of what is asked for only while it is watched.
        self.asks = 0.0
        #: What was refused in that second, in microseconds of the rate; seconds in a row with too much of it.
        self.refused_us = 0.0
        self.strikes = 0
        self.reach_us: Micros = HORIZON_US
        #: The phase of a hammered book: since when, what was refused in it; and per microsecond in the last short and
        #: the last long one.
        self.phase_us: Micros = 0
        self.refused_phase = self.before = self.tried = 0.0

    def look(self, end_us: Micros, pace_us: float, asked: RequestUnits, now: Micros) -> Micros:
        """Hold the book against the last second, or the time since the last booking if that is longer.

        `end_us` is the end of the book; returned is where it ends then.
        """
        self.pace_us = pace = max(self.pace_us, pace_us)
        few = FEW * pace
        if now - self.last_us >= SECOND:
            self.since_us, self.asked, self.refused_us = self.last_us, self.asked_last, 0.0
        since = self.since_us
        self.told_us = max(self.told_us, end_us - since)
        overdue = min(self._overdue(now), end_us) - max(self._overdue(since), self.first_us)
        if overdue >= few and (asked - self.asked) * pace < overdue / 2:
            return now
        due = max(0, min(now, end_us) - max(since, self.first_us))
        if self.refused_us > EXCESS * due + few:
            self.strikes += 1
        else:
            self.strikes, self.reach_us = min(self.strikes, 0), HORIZON_US
        if self.reach_us < HORIZON_US:
            self._try(now)
        elif self.strikes >= STRIKES:
            self.tried = inf
            self._shorten(now)
        self.since_us, self.asked, self.refused_us = now, asked, 0.0
        return min(end_us, now + self.reach_us)

    def _overdue(self, now: Micros) -> Micros:
        """Return up to which place in the book everybody that obeys has been back at `now`."""
        late = now - SECOND
        first = self.begin_us + int((late - self.begin_us) / (1.0 + JITTER))
        return max(first, late - int(JITTER * self.told_us))

    def _shorten(self, now: Micros) -> None:
        """Begin a phase in which the book is believed to be hammered."""
        self.reach_us, self.phase_us, self.refused_phase = SHORT_US, now, 0.0
        self.told_us = SHORT_US

    def _try(self, now: Micros) -> None:
        """Let a hammered book reach further from time to time, and see whether fewer come."""
        self.refused_phase += self.refused_us
        if (took := now - self.phase_us) < PHASE_US:
            return
        rate = self.refused_phase / took
        if self.reach_us == TRIAL_US:
            self.tried = rate
            self._shorten(now)
        elif self.tried < HEEDLESS * (self.before + rate) / 2:
            self.reach_us, self.strikes = HORIZON_US, -TRUST
        else:
            self.before, self.reach_us, self.phase_us, self.refused_phase = rate, TRIAL_US, now, 0.0


class Queue:
    """Those who were told to come back; `end_us` is when the next one may come."""

    __slots__ = ("end_us", "watch")

    def __init__(self, now: Micros) -> None:
        self.end_us: Micros = now - SECOND
        #: There while the book is long.
        self.watch: Watch | None = None

    def book(self, ready_us: float, cost: RequestUnits, pace_us: float, asked: RequestUnits, now: Micros) -> Micros:
        """Book one more, and return how long it is to stay away.

        `ready_us` is how long from now the limit alone would need, `pace_us` how long the rate takes for one unit,
        `asked` counts what was ever asked for, refused or not.
        """
        reach = HORIZON_US
        watch = self.watch
        if watch is not None:
            reach = self._watched(watch, cost, pace_us, asked, now)
        come = now + int(ready_us) + GRACE_US
        if come < self.end_us:  # noqa: PLR1730 - a call of max() costs three times as much
            come = self.end_us
        wait = come - now
        if wait > SHORT_US:
            if wait > reach:
                return max(reach, int(ready_us))
            if self.watch is None:
                self.watch = Watch(pace_us, asked, come, now)
        self.end_us = come + int(cost * pace_us)
        return wait

    def _watched(
        self, watch: Watch, cost: RequestUnits, pace_us: float, asked: RequestUnits, now: Micros
    ) -> Micros:  # fmt: skip
        """Follow what happens to a long book, and return how far ahead it may reach."""
        if self.end_us > now and now - watch.since_us >= SECOND:
            self.end_us = watch.look(self.end_us, pace_us, asked, now)
        if self.end_us <= now:
            self.watch = None
            return HORIZON_US
        watch.last_us, watch.asked_last = now, asked
        watch.refused_us += cost * pace_us
        return watch.reach_us
