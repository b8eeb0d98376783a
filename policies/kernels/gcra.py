"""GCRA with a level: the one algorithm behind every bucket that is somebody's own.

The level is what the bucket is owed, in request units: 0 is full, `burst` is empty. It drains at the rate, never below
0, and an admission adds its cost. That is the generic cell rate algorithm (ITU-T I.371, the virtual scheduling form
turned into a continuous-state leaky bucket) with the remainder kept as a float, because a whole-microsecond emission
interval would be 1 % off at 30,000/s.

Rules
1. Time is an argument. `stamp` never goes back and elapsed time is never negative: a clock that steps mints nothing.
2. A refusal changes neither level nor stamp. It leaves only the mark that somebody wants more.
3. A full bucket admits any cost and goes into debt; otherwise an ask needs its cost in tokens, and leaves what it has
   to keep for another class (`kept`).
4. The wait is exact: the same ask is refused at `now + wait - 1` and admitted at `now + wait`, if nobody else asks.
5. Only `+ - * /`, comparison and min/max of doubles, in the order written here, so that another language can agree
   step by step. A rate of zero is a level of infinity: nothing special happens on the way to a refusal.

Two classes may share a bucket. Each step on it says whether it is `low`.

- *Reserve*: a low ask leaves `reserve` units, but only while a high one asked within the last second.
- *Floor*: while low asks wait, a credit grows at floor x rate, up to the dearest of them. High asks leave the credit in
  the bucket, and once it covers a low ask's cost, that ask may pass the reserve. Every low admission pays it down.
  So low gets at least the floor beside any number of high ones, high gets the rest, and either alone gets everything.
  A low ask that was refused waits for as long as an obedient caller may be away: until its cost is earned at the floor,
  a quarter more for jitter, and a second for the rounding of Retry-After. Were it forgotten sooner, a caller told to
  come back in 20 s would find its credit gone, for ever. One that was admitted needs no floor.
- In a bucket too small for the credit and a high ask side by side, the full bucket goes to whoever is due: to high
  until the credit is ripe, then to low.
"""

from __future__ import annotations

from math import inf
from typing import Final, Protocol

from policies.units import NEVER, SECOND, Micros, RequestUnits

__all__ = [
    "GONE",
    "Ask",
    "Bucket",
    "admits",
    "agree",
    "demand",
    "give_back",
    "kept",
    "level_at",
    "pay",
    "refuse",
    "resize",
    "room",
    "take",
    "take_all",
    "wait",
]

#: How much longer than the told wait an obedient caller may stay away: jitter is at most a quarter of the wait.
JITTER = 1.25

#: Later than every change: whoever has kept it does not use it any more. Not more: a larger number is compared more
#: slowly where this is compiled.
GONE: Final = 2**62 - 1


class Ask(Protocol):
    """One step wanted on a bucket; `policies.charge.Charge` is one."""

    @property
    def cost(self) -> RequestUnits:
        """Units to take."""
        ...

    @property
    def low(self) -> bool:
        """True if a higher class shares the bucket."""
        ...

    @property
    def reserve(self) -> RequestUnits:
        """Units that a low ask leaves to the higher class."""
        ...

    @property
    def floor(self) -> float:
        """Part of the rate that the lower class keeps; the same in every ask on a bucket."""
        ...


class Bucket:
    """The state of one bucket; created full.

    `level` was true at `stamp`. `high_at` is when a high ask was last made, `low_until` when the waiting low ones are
    forgotten. `credit` was the floor's credit at `credit_at`; `want` is the dearest low cost waiting, by `want_until`.
    `changed` is for a store that holds it under a name of its own: the last of the store's changes that made it, or
    gave it another size; `GONE` if none holds it.
    """

    __slots__ = (
        "burst", "changed", "credit", "credit_at", "high_at", "level", "low_until", "rate_us", "stamp", "want",
        "want_until",
    )  # fmt: skip

    def __init__(self, rate_us: float, burst: RequestUnits, now: Micros) -> None:
        # In this order, which a compiled class has in memory too: what every take looks at lies together. With eleven
        # numbers an object begins where a line of the processor's cache does, and fills two.
        self.changed = GONE
        self.rate_us = rate_us
        self.burst = burst
        self.level = 0.0 if rate_us > 0 else inf
        self.stamp = now
        self.high_at = -SECOND
        self.low_until = 0
        self.want = 0.0
        self.want_until = 0
        self.credit = 0.0
        self.credit_at = 0


def level_at(bucket: Bucket, now: Micros) -> RequestUnits:
    """Return the units owed at `now`; 0 is a full bucket, more than the burst a debt."""
    elapsed = now - bucket.stamp
    if elapsed <= 0:
        return bucket.level
    level = bucket.level - bucket.rate_us * elapsed
    return max(0.0, level)


def _due(bucket: Bucket, floor: float, now: Micros) -> RequestUnits:
    """Return the floor's credit at `now`: what high asks leave to low ones."""
    if now >= bucket.low_until:
        return 0.0
    credit = bucket.credit + floor * bucket.rate_us * max(0, now - bucket.credit_at)
    return min(credit, bucket.want)


def kept(bucket: Bucket, ask: Ask, now: Micros) -> RequestUnits:
    """Return what `ask` has to leave in the bucket for the other class at `now`."""
    if not ask.low:
        return _due(bucket, ask.floor, now)
    if now >= bucket.high_at + SECOND or (
        ask.floor > 0.0 and _due(bucket, ask.floor, now) >= min(ask.cost, bucket.burst)
    ):
        return 0.0
    return ask.reserve


def room(bucket: Bucket, ask: Ask, leave: RequestUnits) -> RequestUnits:
    """Return the highest level at which `ask` is admitted if it has to `leave` that much (see `kept`).

    Below 0 not even a full bucket admits it.
    """
    highest = bucket.burst - leave - ask.cost
    if highest >= 0.0:
        return highest
    # A credit that is ripe goes before a high ask that cannot leave it.
    ripe = not ask.low and leave > 0.0 and leave >= min(bucket.want, bucket.burst)
    return highest if ripe else 0.0


def admits(bucket: Bucket, ask: Ask, now: Micros) -> bool:
    """Return whether `ask` would be admitted at `now`."""
    return level_at(bucket, now) <= room(bucket, ask, kept(bucket, ask, now))


def agree(buckets: tuple[Bucket, ...], cost: RequestUnits, now: Micros) -> bool:
    """Return whether all of these admit a high ask, no low one waiting; and note that it is made, at all that do.

    The steps of `demand` and `admits` for what nearly always holds, written out: as calls they take five times as long.
    """
    for bucket in buckets:
        if now < bucket.low_until:
            return False
        level = bucket.level
        elapsed = now - bucket.stamp
        if elapsed > 0:
            level -= bucket.rate_us * elapsed
        if level > bucket.burst - cost and level > 0.0:
            return False
        bucket.high_at = now
    return True


def demand(bucket: Bucket, ask: Ask, now: Micros) -> None:
    """Note that `ask` is made, whatever becomes of it: the reserve binds while a higher class has demand."""
    if not ask.low:
        bucket.high_at = now


def refuse(bucket: Bucket, ask: Ask, now: Micros) -> Micros:
    """Note that `ask` was refused at `now`, and return its wait."""
    low = ask.low
    if low:
        _await(bucket, ask, now)
    return _wait(bucket, ask, now, low=low)


def _await(bucket: Bucket, ask: Ask, now: Micros) -> None:
    """Note that a low ask waits, so that credit grows for it."""
    pace = ask.floor * bucket.rate_us
    if pace <= 0.0:
        return
    # The credit earned so far is settled before anything that bounds it changes.
    bucket.credit = _due(bucket, ask.floor, now)
    bucket.credit_at = max(bucket.credit_at, now)
    until = now + SECOND + int(JITTER * ask.cost / pace)
    if ask.cost >= bucket.want or now >= bucket.want_until:
        bucket.want = ask.cost
        bucket.want_until = until
        bucket.credit = min(bucket.credit, ask.cost)
    bucket.low_until = max(bucket.low_until, until)


def take(bucket: Bucket, ask: Ask, now: Micros) -> None:
    """Charge an ask that was admitted at `now`."""
    if ask.low and now < bucket.low_until:
        bucket.credit = max(0.0, _due(bucket, ask.floor, now) - ask.cost)
        bucket.credit_at = max(bucket.credit_at, now)
    pay(bucket, ask.cost, now)


def pay(bucket: Bucket, cost: RequestUnits, now: Micros) -> None:
    """Charge `cost` where no credit of a lower class is paid with it; written out, for every batch request does it."""
    level = bucket.level
    elapsed = now - bucket.stamp
    if elapsed > 0:
        level -= bucket.rate_us * elapsed
        if level < 0.0:  # noqa: PLR1730 - max() is a call
            level = 0.0
        bucket.stamp = now
    bucket.level = level + cost


def take_all(buckets: tuple[Bucket, ...], cost: RequestUnits, now: Micros, left: list[RequestUnits]) -> None:
    """Charge a high ask where all of these `agree`; what is left in each is appended to `left`. Written out as well."""
    for bucket in buckets:
        level = bucket.level
        elapsed = now - bucket.stamp
        if elapsed > 0:
            level -= bucket.rate_us * elapsed
            if level < 0.0:  # noqa: PLR1730 - max() is a call
                level = 0.0
            bucket.stamp = now
        bucket.level = level + cost
        left.append(bucket.burst - level - cost)


def give_back(bucket: Bucket, ask: Ask, now: Micros) -> None:
    """Undo the charge of `ask`; never above full, and the floor's credit never above what is wanted."""
    if ask.low and now < bucket.low_until:
        bucket.credit = min(bucket.want, _due(bucket, ask.floor, now) + ask.cost)
        bucket.credit_at = max(bucket.credit_at, now)
    bucket.level = max(0.0, level_at(bucket, now) - ask.cost)
    bucket.stamp = max(bucket.stamp, now)


def resize(bucket: Bucket, rate_us: float, burst: RequestUnits, now: Micros) -> None:
    """Change rate and burst: settle at the old rate, then scale the level, so that full stays full and empty empty.

    A bucket that had no rate had no tokens either: it starts empty.
    """
    level = level_at(bucket, now)
    if rate_us <= 0:
        level = inf
    elif bucket.rate_us <= 0:
        level = burst
    elif bucket.burst > 0:
        level *= burst / bucket.burst
    bucket.level = level
    bucket.stamp = max(bucket.stamp, now)
    bucket.rate_us = rate_us
    bucket.burst = burst


def wait(bucket: Bucket, ask: Ask, now: Micros) -> Micros:
    """Return how long after `now` the refused `ask` would be admitted if nobody else asked; NEVER with a zero rate."""
    return _wait(bucket, ask, now, low=ask.low)


def _wait(bucket: Bucket, ask: Ask, now: Micros, *, low: bool) -> Micros:
    if bucket.rate_us <= 0:
        return NEVER
    if low and now < bucket.high_at + SECOND:
        return _exact(bucket, ask, now, _low_turn(bucket, ask)) - now
    if not low and now < bucket.low_until:
        return _exact(bucket, ask, now, _high_turn(bucket, ask, now)) - now
    # The common case, checked without a call; `_exact` is for what rounding moves.
    highest = max(0.0, bucket.burst - ask.cost)
    drained = _up((bucket.level - highest) / bucket.rate_us)
    at = bucket.stamp + drained
    if at > now and bucket.level - bucket.rate_us * drained <= highest < bucket.level - bucket.rate_us * (drained - 1):
        return at - now
    return _exact(bucket, ask, now, at) - now


def _up(instant: float) -> Micros:
    """Return what `math.ceil` does, without a call that the compiler cannot see through."""
    down = int(instant)
    return down + 1 if down < instant else down


def _reach(bucket: Bucket, level: RequestUnits) -> float:
    """Return when the bucket will have drained to `level`, to within the rounding of one division."""
    return bucket.stamp + (bucket.level - level) / bucket.rate_us


def _low_turn(bucket: Bucket, ask: Ask) -> float:
    """Return when a low ask passes: over the reserve, or when high demand is forgotten, or by the floor's credit."""
    burst, cost = bucket.burst, ask.cost
    free = _reach(bucket, max(0.0, burst - cost))
    turn = min(_reach(bucket, max(0.0, burst - ask.reserve - cost)), max(bucket.high_at + SECOND, free))
    pace = ask.floor * bucket.rate_us
    if pace > 0.0:
        turn = min(turn, max(free, bucket.credit_at + (min(cost, burst) - bucket.credit) / pace))
    return turn


def _high_turn(bucket: Bucket, ask: Ask, now: Micros) -> float:
    """Return when a high ask passes beside waiting low ones: the first of the instants at which that can change."""
    missing = ask.cost - bucket.burst
    turns = [_reach(bucket, 0.0)]
    if missing + bucket.want < 0.0:
        turns.append(_reach(bucket, -missing - bucket.want))
    pace = ask.floor * bucket.rate_us
    if pace < bucket.rate_us:
        # Level and credit together fall at what the floor leaves.
        both = level_at(bucket, now) + _due(bucket, ask.floor, now)
        turns.append(now + (both + missing) / (bucket.rate_us - pace))
    for turn in sorted(turns):
        # Rounding may move the turn by a microsecond, which may be all that a small bucket leaves to it.
        at = max(_up(turn), now + 1)
        if turn < bucket.low_until and (admits(bucket, ask, at) or admits(bucket, ask, at + 1)):
            return turn
    # The low ones are forgotten.
    return max(bucket.low_until, _reach(bucket, max(0.0, -missing)))


def _exact(bucket: Bucket, ask: Ask, now: Micros, at: float) -> Micros:
    """Return the microsecond near `at`, after `now`, at which `ask` turns from refused to admitted.

    Division rounds, so the answer is looked for with the very arithmetic of `admits`. A guess that is no turn at all
    ends at the next one.
    """
    high = max(_up(at), now + 1)
    step = 1
    low = now
    while not admits(bucket, ask, high):
        low = high
        high += step
        step += step
    step = 1
    while low < high - step and admits(bucket, ask, high - step):
        high -= step
        step += step
    low = max(low, high - step)
    while high - low > 1:
        middle = (low + high) // 2
        if admits(bucket, ask, middle):
            high = middle
        else:
            low = middle
    return high
