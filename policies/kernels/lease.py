"""Leases: how one bucket of record is handed out to several processes, a little ahead of use.

A process holds units that it leased. What is leased was taken from the bucket, so all processes together never have
more than the bucket grants, and what a dead process held comes back by itself as the bucket refills. One step
(`prepare`, then `lease`) is everything that a process says of a bucket at a tick: it gives back, charges what it
admitted while it could not ask, marks demand, and asks for units of both classes, high before low, under the rules of
`gcra`.

Rules
1. A step is one reading of the clock. A clock that was set back counts as no time at all: every instant of the record
   is moved with it, so that mints nothing and locks nobody out.
2. A record is believed only as far as it can be true: no level above what the burst or the dearest cost explains, no
   class kept waiting longer than an ask could wait. What was planted or damaged heals at the next step.
3. A refusal costs nothing, and its wait is exact (`gcra.wait`).
4. What is granted is all that is wanted, or the dearest waiting cost, or whole units (whole costs, where they are below
   a unit): fractions that nobody can use would be stranded with every process.
5. Only `+ - * /`, `floor`, `ceil` and comparison of doubles, in the order written here: `lease.lua` agrees bit for bit.

**Who gets what, when several processes want more than there is.** Whatever flows into the bucket is owed to those who
asked within `RECENT` and did not get all, in proportion to what they wanted (`due`). An ask leaves what is owed to the
others, and takes the rest. A whole cost for which the rest is too little goes to whoever is owed as much, or is owed
most of what it wants: it may owe afterwards, and is last until it has earned it. A process that asks for the first time
is owed its waiting cost at once (of a dear one a unit, or what flows in within a tick), so it is served as soon as the
bucket holds that, and no share, however small, rounds down to nothing.
"""

from __future__ import annotations

from math import ceil, floor
from typing import NamedTuple

from policies.kernels import gcra
from policies.kernels.gcra import JITTER, Bucket
from policies.units import SECOND, Micros, RequestUnits

__all__ = ["MAX_ASKERS", "RECENT", "TICK", "Asker", "Grant", "Record", "Want", "lease", "lifetime", "prepare"]

#: How often a process asks.
TICK: Micros = 100_000

#: One that did not ask for so long wants nothing any more: an empty bucket is asked every other tick, give or take.
RECENT: Micros = 350_000

#: Processes remembered per bucket; beyond it the one that asked longest ago is forgotten.
MAX_ASKERS = 32

#: How long a record outlives the moment at which the bucket is full; the mark of high demand lives for a second.
SLACK: Micros = 2 * SECOND

#: The year 2255. Beyond it a double skips microseconds; an ask that would wait longer waits for nobody's lifetime.
FAR: Micros = 9_000_000_000_000_000

#: How long a record without a rate, which never fills, is kept after it was last asked.
IDLE: Micros = 3600 * SECOND


class Want(NamedTuple):
    """What a process says of one bucket. Units of both classes, whether they are for asks that wait or ahead of use.

    `high_cost` and `low_cost` are what the dearest ask that waits still needs, part of `high` and `low`; 0: none waits.
    `reserve` (units) and `floor` (part of the rate) are those of the lower class. `back` are units returned. `spent`
    are units admitted while the store gave no answer: they empty the bucket, at most. `seed` is the level to begin with
    if the record is gone.
    """

    high: RequestUnits = 0.0
    high_cost: RequestUnits = 0.0
    low: RequestUnits = 0.0
    low_cost: RequestUnits = 0.0
    reserve: RequestUnits = 0.0
    floor: float = 0.0
    back: RequestUnits = 0.0
    spent: RequestUnits = 0.0
    seed: RequestUnits = 0.0


class Grant(NamedTuple):
    """What a process got: units of both classes, when a waiting cost could be granted, and what is left for each class.

    A wait is 0 where nothing waits or the waiting cost was granted, and NEVER with a zero rate. `left_high` and
    `left_low` are what this class could still take of the bucket now.
    """

    high: RequestUnits
    low: RequestUnits
    high_wait_us: Micros
    low_wait_us: Micros
    left_high: RequestUnits
    left_low: RequestUnits


class Asker:
    """A process that asked lately: what it wanted, what it lacks of that, and what it is owed (negative: it owes)."""

    __slots__ = ("at", "due", "lacks", "process", "want")

    def __init__(self, process: int, want: RequestUnits, due: RequestUnits, at: Micros) -> None:
        self.process = process
        self.want = want
        self.lacks = want
        self.due = due
        self.at = at


class Record:
    """A bucket, those who asked of it lately, and the instant of the last step, up to which they are owed."""

    __slots__ = ("askers", "bucket", "seen")

    def __init__(self, bucket: Bucket, seen: Micros) -> None:
        self.bucket = bucket
        self.seen = seen
        self.askers: list[Asker] = []


class _Part(NamedTuple):
    """The ask of one class, as `gcra` sees it."""

    cost: RequestUnits
    low: bool
    reserve: RequestUnits
    floor: float


def prepare(record: Record | None, rate_us: float, burst: RequestUnits, want: Want, dearest: RequestUnits, now: Micros
            ) -> Record:  # fmt: skip
    """Return the record of a bucket as it is at `now`: opened, healed, and with the rate and burst of today.

    `dearest` is the highest cost that any ask of this bucket has: no other debt is believed.
    """
    if record is None:
        bucket = Bucket(rate_us, burst, now)
        if rate_us > 0.0:
            bucket.level = min(want.seed, burst)
        return Record(bucket, now)
    bucket = record.bucket
    if now < record.seen:
        _step_back(record, now - record.seen)
    _accrue(record, now)
    if bucket.rate_us != rate_us or bucket.burst != burst:
        gcra.resize(bucket, rate_us, burst, now)
    _heal(bucket, max(dearest, want.high_cost, want.low_cost), want.floor, now)
    return record


def _step_back(record: Record, step: Micros) -> None:
    """Move every instant by `step`, by which the clock was set."""
    bucket = record.bucket
    record.seen += step
    bucket.stamp += step
    bucket.high_at += step
    bucket.low_until += step
    bucket.want_until += step
    bucket.credit_at += step
    for asker in record.askers:
        asker.at += step


def _accrue(record: Record, now: Micros) -> None:
    """Owe what flowed in since the last step to those who asked lately, and forget the others."""
    askers = [asker for asker in record.askers if now - asker.at <= RECENT]
    wanted = 0.0
    for asker in askers:
        wanted += asker.want
    if wanted > 0.0 and record.bucket.rate_us > 0.0:
        inflow = gcra.level_at(record.bucket, record.seen) - gcra.level_at(record.bucket, now)
        for asker in askers:
            due = asker.due + inflow * asker.want / wanted
            asker.due = min(due, asker.lacks)
    record.askers = askers
    record.seen = now


def _heal(bucket: Bucket, dearest: RequestUnits, floor: float, now: Micros) -> None:
    """Bound what the record says by what can be true."""
    if bucket.rate_us > 0.0:
        highest = max(bucket.burst, dearest)
        if not bucket.level <= highest:
            bucket.level = highest
    if not bucket.want <= dearest:
        bucket.want = dearest
    pace = floor * bucket.rate_us
    latest = min(now + SECOND + int(JITTER * dearest / pace), FAR) if pace > 0.0 else now
    bucket.low_until = min(bucket.low_until, latest)
    bucket.want_until = min(bucket.want_until, latest)


def lease(record: Record, process: int, want: Want, now: Micros) -> Grant:
    """Do the step of `process` on a prepared record: give back, charge, mark demand, grant high and then low."""
    bucket = record.bucket
    if want.back > 0.0:
        gcra.give_back(bucket, _Part(want.back, low=False, reserve=0.0, floor=0.0), now)
    if want.spent > 0.0:
        level = gcra.level_at(bucket, now)
        bucket.level = max(level, min(level + want.spent, bucket.burst))
        bucket.stamp = max(bucket.stamp, now)
    asker = _enrol(record, process, want, now)
    high, high_wait, low, low_wait = 0.0, 0, 0.0, 0
    if want.high > 0.0 or want.high_cost > 0.0:
        part = _Part(want.high_cost, low=False, reserve=0.0, floor=want.floor)
        gcra.demand(bucket, part, now)
        high, high_wait = _grant(record, asker, part, want.high, now)
    if want.low > 0.0 or want.low_cost > 0.0:
        part = _Part(want.low_cost, low=True, reserve=want.reserve, floor=want.floor)
        low, low_wait = _grant(record, asker, part, want.low, now)
    tokens = bucket.burst - gcra.level_at(bucket, now)
    return Grant(
        high,
        low,
        high_wait,
        low_wait,
        max(0.0, tokens - gcra.kept(bucket, _Part(0.0, low=False, reserve=0.0, floor=want.floor), now)),
        max(0.0, tokens - want.reserve if now < bucket.high_at + SECOND else tokens),
    )


def _enrol(record: Record, process: int, want: Want, now: Micros) -> Asker:
    """Note what `process` wants, and return its entry; one that wants nothing has none."""
    wanted = max(want.high, want.high_cost) + max(want.low, want.low_cost)
    found = next((asker for asker in record.askers if asker.process == process), None)
    if wanted <= 0.0:
        if found is not None:
            record.askers.remove(found)
        return Asker(process, 0.0, 0.0, now)
    if found is not None:
        found.want = found.lacks = wanted
        found.due = min(found.due, wanted)
        found.at = now
        return found
    if len(record.askers) >= MAX_ASKERS:
        record.askers.remove(min(record.askers, key=lambda asker: asker.at))
    due = min(max(want.high_cost, want.low_cost), max(1.0, record.bucket.rate_us * TICK))
    found = Asker(process, wanted, due, now)
    record.askers.append(found)
    return found


def _claims(record: Record, asker: Asker) -> tuple[RequestUnits, bool]:
    """Return what is owed to all others, and whether none of them is owed more of its want than `asker`."""
    claims, first = 0.0, True
    for other in record.askers:
        if other is not asker and other.due > 0.0:
            claims += other.due
            if other.due * asker.want > asker.due * other.want:
                first = False
    return claims, first


def _grant(record: Record, asker: Asker, part: _Part, wanted: RequestUnits, now: Micros) -> tuple[RequestUnits, Micros]:
    """Grant what the rules allow of what one class wants; return the units and the wait of the waiting cost."""
    bucket, cost = record.bucket, part.cost
    level = gcra.level_at(bucket, now)
    leave = gcra.kept(bucket, part, now)
    claims, first = _claims(record, asker)
    # The floor's credit lets the waiting low cost pass the reserve, and nothing beside it.
    guard = part.reserve if part.low and now < bucket.high_at + SECOND else leave
    spare = bucket.burst - level - guard - claims
    fits = cost > 0.0 and level <= gcra.room(bucket, part, leave)
    # A bucket that is full is kept for nobody: what flows in would be lost.
    turn = first or cost <= asker.due or level <= 0.0 or cost <= bucket.burst - level - leave - claims
    granted = fits and turn
    if granted:
        units = max(cost, wanted if wanted <= spare else _whole(spare, cost))
    else:
        beside = wanted - cost
        units = beside if beside <= spare else _whole(spare, cost)
    units = max(0.0, units)
    if units > 0.0:
        gcra.take(bucket, part._replace(cost=units), now)
        asker.lacks = max(0.0, asker.lacks - units)
        asker.due = max(min(asker.due - units, asker.lacks), -asker.want)
    if granted or cost <= 0.0:
        return units, 0
    return units, _turn(record, asker, part, claims, now) if fits else gcra.refuse(bucket, part, now)


def _whole(spare: RequestUnits, cost: RequestUnits) -> RequestUnits:
    """Return the most that `spare` holds in whole units, or in whole costs where they are below a unit."""
    if spare <= 0.0:
        return 0.0
    quantum = cost if 0.0 < cost < 1.0 else 1.0
    return floor(spare / quantum) * quantum


def _turn(record: Record, asker: Asker, part: _Part, claims: RequestUnits, now: Micros) -> Micros:
    """Return how long what flows in for `asker` takes to cover what it lacks beside the claims of others."""
    bucket = record.bucket
    wanted = 0.0
    for other in record.askers:
        wanted += other.want
    lacks = part.cost + claims + gcra.kept(bucket, part, now) - (bucket.burst - gcra.level_at(bucket, now))
    turn = ceil(lacks * wanted / (bucket.rate_us * asker.want))
    return max(1, min(turn, RECENT))


def lifetime(record: Record, now: Micros) -> Micros:
    """Return for how long the record has to be kept: then the bucket is full, and nobody would notice a new one."""
    bucket = record.bucket
    if bucket.rate_us <= 0.0:
        return IDLE
    return min(ceil(gcra.level_at(bucket, now) / bucket.rate_us) + SLACK, FAR)
