"""Seats shared by several processes: who may have how many requests of one concurrency limit in flight.

A process decides locally within its allowance. It reports at every tick, and its entry lives for a lease time only, so
that the seats of a dead process come free by themselves.

Rules
1. All living holds together never exceed the limit, unless the limit was lowered: then nobody is given more until
   enough has been returned.
2. A process first lowers what it allows itself, then reports it: `held` is the most that it will have in flight until
   it hears the answer. The answer may be lower; what was held stays counted until the process reports less.
3. When more is wanted than there is, each gets the max-min part of what it wants. Seats that do not divide go round
   among those who want them, each second to the next, so that with fewer seats than processes nobody goes without for
   ever.
4. An entry never lives longer than a lease from now, whatever the clock did: one that was set back frees nothing early
   and holds nothing long.
"""

from __future__ import annotations

from typing import NamedTuple

from policies.units import SECOND, Micros, Seats

__all__ = ["Holder", "Room", "Table", "allowance"]


class Holder:
    """What one process holds and wants of a limit, until its lease ends."""

    __slots__ = ("held", "process", "until", "want")

    def __init__(self, process: int, held: Seats, want: Seats, until: Micros) -> None:
        self.process = process
        self.held = held
        self.want = want
        self.until = until


Table = list[Holder]
"""The entries of one limit, by process in ascending order."""


class Room(NamedTuple):
    """How many requests a process may have in flight, and whether another wants more than it has."""

    allowance: Seats
    wanted_by_others: bool


def allowance(table: Table, process: int, held: Seats, want: Seats, limit: Seats, ttl_us: Micros, now: Micros) -> Room:
    """Renew the entry of `process` for `ttl_us`, and return how many of `limit` it may have in flight from now on.

    `held`: how many it has in flight, or may begin before it hears the answer. `want`: how many it would like to be
    able to have; with both 0 its entry goes.
    """
    _expire(table, now, ttl_us)
    mine = _enrol(table, process, want, now + ttl_us)
    taken, wanted = 0, False
    for other in table:
        if other is not mine:
            taken += other.held
            wanted = wanted or other.want > other.held
    allowed = max(0, min(want, _part(table, mine, limit, now), limit - taken))
    mine.held = max(held, allowed)
    if mine.held <= 0 and want <= 0:
        table.remove(mine)
    return Room(allowed, wanted)


def _expire(table: Table, now: Micros, ttl_us: Micros) -> None:
    """Drop the entries whose lease has ended."""
    table[:] = [holder for holder in table if holder.until > now]
    for holder in table:
        holder.until = min(holder.until, now + ttl_us)


def _enrol(table: Table, process: int, want: Seats, until: Micros) -> Holder:
    """Return the entry of `process`, made at its place if need be."""
    place = 0
    for holder in table:
        if holder.process == process:
            holder.want, holder.until = want, until
            return holder
        if holder.process < process:
            place += 1
    mine = Holder(process, 0, want, until)
    table.insert(place, mine)
    return mine


def _part(table: Table, mine: Holder, limit: Seats, now: Micros) -> Seats:
    """Return the max-min part of `mine`, whole seats, those that do not divide going round."""
    left, share = limit, 0
    unmet = [holder for holder in table if holder.want > 0]
    while unmet and left >= len(unmet):
        step = min(left // len(unmet), min(holder.want for holder in unmet) - share)
        share += step
        left -= step * len(unmet)
        unmet = [holder for holder in unmet if holder.want > share]
    if mine not in unmet:
        return mine.want
    turn = (unmet.index(mine) - now // SECOND) % len(unmet)
    return share + (1 if turn < left else 0)
