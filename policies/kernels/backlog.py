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

__all__ = ["Queue"]

GRACE_US: Final = SECOND // 2
HORIZON_US: Final = 60 * SECOND
#: How far ahead a book reaches that is hammered, and while it is found out whether callers obey.
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


class Queue:
    """Those who were told to come back; `end_us` is when the next one may come."""

    __slots__ = (
        "_asked", "_asked_last", "_before", "_begin_us", "_first_us", "_last_us", "_pace_us", "_phase_us",
        "_reach_us", "_refused_phase", "_refused_us", "_since_us", "_strikes", "_told_us", "_tried", "end_us",
    )  # fmt: skip

    def __init__(self, now: Micros) -> None:
        self.end_us: Micros = now - SECOND
        #: When the book was last empty and its first place since; the longest wait told, the slowest rate booked at.
        self._begin_us = self._first_us = self._last_us = self._since_us = self.end_us
        self._told_us: Micros = 0
        self._pace_us = 0.0
        #: Units asked for, as of the beginning of the second that is watched and as of the last booking.
        self._asked = self._asked_last = 0.0
        #: What was refused in that second, in microseconds of the rate; seconds in a row with too much of it.
        self._refused_us = 0.0
        self._strikes = 0
        self._reach_us: Micros = HORIZON_US
        #: The phase of a hammered book: since when, what was refused in it; and per microsecond in the last short and
        #: the last long one.
        self._phase_us: Micros = 0
        self._refused_phase = self._before = self._tried = 0.0

    def book(self, ready_us: float, cost: RequestUnits, pace_us: float, asked: RequestUnits, now: Micros) -> Micros:
        """Book one more, and return how long it is to stay away.

        `ready_us` is how long from now the limit alone would need, `pace_us` how long the rate takes for one unit,
        `asked` counts what was ever asked for, refused or not.
        """
        if now - self._since_us >= SECOND:
            self._look(asked, now)
        self._last_us, self._asked_last = now, asked
        taking = cost * pace_us
        self._refused_us += taking
        come = now + int(ready_us) + GRACE_US
        if self.end_us <= now:
            self._begin_us, self._first_us, self._told_us, self._pace_us = now, come, 0, pace_us
        elif come < self.end_us:
            come = self.end_us
        if pace_us > self._pace_us:  # noqa: PLR1730 - a call of max() costs three times as much
            self._pace_us = pace_us
        wait = come - now
        if wait > self._reach_us:
            return max(self._reach_us, int(ready_us))
        self.end_us = come + int(taking)
        if wait > self._told_us:  # noqa: PLR1730 - as above
            self._told_us = wait
        return wait

    def _look(self, asked: RequestUnits, now: Micros) -> None:
        """Hold the book against the last second, or the time since the last booking if that is longer."""
        pace = self._pace_us
        few = FEW * pace
        if now - self._last_us >= SECOND:
            self._since_us, self._asked, self._refused_us = self._last_us, self._asked_last, 0.0
        since = self._since_us
        overdue = min(self._overdue(now), self.end_us) - max(self._overdue(since), self._first_us)
        if overdue >= few and (asked - self._asked) * pace < overdue / 2:
            self.end_us = now
        due = max(0, min(now, self.end_us) - max(since, self._first_us))
        if self._refused_us > EXCESS * due + few:
            self._strikes += 1
        else:
            self._strikes, self._reach_us = min(self._strikes, 0), HORIZON_US
        if self._reach_us < HORIZON_US:
            self._try(now)
        elif self._strikes >= STRIKES and self.end_us - now > SHORT_US:
            self._tried = inf
            self._shorten(now)
        self._since_us, self._asked, self._refused_us = now, asked, 0.0

    def _overdue(self, now: Micros) -> Micros:
        """Return up to which place in the book everybody that obeys has been back at `now`."""
        late = now - SECOND
        first = self._begin_us + int((late - self._begin_us) / (1.0 + JITTER))
        return max(first, late - int(JITTER * self._told_us))

    def _shorten(self, now: Micros) -> None:
        """Begin a phase in which the book is believed to be hammered."""
        self._reach_us, self._phase_us, self._refused_phase = SHORT_US, now, 0.0
        self.end_us = min(self.end_us, now + SHORT_US)
        self._told_us = SHORT_US

    def _try(self, now: Micros) -> None:
        """Let a hammered book reach further from time to time, and see whether fewer come."""
        self._refused_phase += self._refused_us
        if (took := now - self._phase_us) < PHASE_US:
            return
        rate = self._refused_phase / took
        if self._reach_us == TRIAL_US:
            self._tried = rate
            self._shorten(now)
        elif self._tried < HEEDLESS * (self._before + rate) / 2:
            self._reach_us, self._strikes = HORIZON_US, -TRUST
        else:
            self._before, self._reach_us, self._phase_us, self._refused_phase = rate, TRIAL_US, now, 0.0
