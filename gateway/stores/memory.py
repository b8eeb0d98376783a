"""The embedded store: buckets and seats in this process. It is the reference that every other store must agree with.

Rules
1. One step, never interrupted: a take looks at every limit before it changes any. Nothing here awaits.
2. All or none. Own charges and seats are all asked; only if all agree is the backstop asked; only if it agrees is
   anything taken.
3. Whoever asks leaves a mark of demand on the buckets it asked; a refusal changes nothing else.
4. Memory is bounded by `max_keys` whatever callers send. Buckets that come from the configuration stand outside it:
   they are as many as the operator wrote, never overflow, and are evicted only after a reload. Of the others a hand
   going round drops those that are full again, a few at every new key and more at every tick. With no room left, new
   keys share one overflow bucket per kind of limit, and are counted.
5. A reload keeps every bucket. Each is resized when it is next touched, as of the instant of the reload.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import count
from typing import Final, Protocol

from policies.charge import Charge, Hold, Memo, Plan, Reading, Refusal, ShareCharge
from policies.kernels import gcra
from policies.kernels.cells import Cells, free
from policies.kernels.fairshare import Shares
from policies.kernels.gcra import GONE, Bucket
from policies.policy import ClassRule, PolicySet
from policies.units import SECOND, Micros, RequestUnits

__all__ = ["SEAT_WAIT_US", "Backstop", "MemoryStore", "ShareRefusal"]

#: What is told to whoever finds all seats taken. It is a hint: nobody knows when a request will end.
SEAT_WAIT_US: Final = SECOND

#: Buckets looked at for each new key, and at each tick; the latter takes about 0.1 ms.
SWEEP_PER_KEY: Final = 4
SWEEP_PER_TICK: Final = 500

#: A table that has shrunk below an eighth of its size is made anew if that is quick.
COMPACT_BELOW: Final = 2_000

_NUMBERS: Final = count(1)


class ShareRefusal(Protocol):
    """Why the backstop took nothing."""

    @property
    def limit(self) -> str:
        """`share`, `class` or `backstop`."""
        ...

    @property
    def wait_us(self) -> Micros:
        """When it could admit this cost at this class."""
        ...

    @property
    def beyond_own(self) -> bool:
        """True if the tenant's own limits would not have let this through either."""
        ...

    @property
    def over(self) -> bool:
        """True if the backstop refused a tenant that asks for more than its share."""
        ...


class Backstop(Protocol):
    """What the service can serve, and for whom: `fairshare.Shares`, or one plain bucket."""

    #: Whether the last take was over the tenant's fair share.
    over: bool

    def take(self, ask: ShareCharge, now: Micros) -> ShareRefusal | None:
        """Take the ask and return None, or take nothing and say why."""
        ...

    def give_back(self, ask: ShareCharge, now: Micros, *, over: bool = False) -> None:
        """Undo a take, which was `over` the share or not."""
        ...

    def tick(self, now: Micros) -> None:
        """Do the next slice of background work."""
        ...

    def rebuild(
        self, rate_us: float, burst: RequestUnits, classes: tuple[ClassRule, ...], unlisted_weight: float, now: Micros,
        max_unlisted: int,
    ) -> None:  # fmt: skip
        """Go on under a new configuration."""
        ...


class MemoryStore:
    """Buckets and seats of one process; implements `gateway.ports.Store`.

    `max_keys` bounds the buckets that callers can bring into being. The backstop is shared out fairly, unless another
    one is given.
    """

    __slots__ = ("_backstop", "_buckets", "_changed_at", "_changes", "_hand", "_left", "_max_keys", "_number",
                 "_overflow", "_peak", "_pinned", "_ring", "_seats", "_shares", "overflow_requests")  # fmt: skip

    def __init__(self, policies: PolicySet, max_keys: int, now: Micros, backstop: Backstop | None = None) -> None:
        self._backstop: Backstop = backstop or Shares(
            policies.backstop.rate.per_us, policies.backstop.burst, policies.classes, policies.unlisted_weight, now,
            policies.max_unlisted_tenants,
        )  # fmt: skip
        #: The same, where it is those.
        self._shares = self._backstop if isinstance(self._backstop, Shares) else None
        #: No other store of this process has it.
        self._number = next(_NUMBERS)
        self._max_keys = max_keys
        self._buckets: dict[str, Bucket] = {}
        self._overflow: dict[str, Bucket] = {}
        #: Names of the buckets that may be dropped, in no order; `_hand` is where the sweep goes on.
        self._ring: list[str] = []
        self._hand = 0
        #: Names of the configured ones; and those of before the last reload, not looked at yet.
        self._pinned: list[str] = []
        self._left: list[str] = []
        self._peak = 0
        self._seats = Cells()
        #: Counts what a plan that keeps what it found has to notice: `changed` of a bucket or cell is one of these.
        self._changes = 0
        self._changed_at = now
        self.overflow_requests = 0

    @property
    def keys(self) -> int:
        """Buckets held now, overflow included."""
        return len(self._buckets) + len(self._overflow)

    @property
    def backstop(self) -> Backstop:
        """What the service can serve, and for whom."""
        return self._backstop

    @property
    def seats_taken(self) -> int:
        """Seats held now, over all concurrency limits."""
        return self._seats.taken

    def take(self, plan: Plan, now: Micros) -> Reading:
        """Take every enforced charge and seat of `plan` at `now`, or nothing; then ask the shadow charges."""
        memo = plan.memo
        if not self._holds(memo):
            self._find(plan, memo, now)
        left: list[RequestUnits] = []
        # Nearly every request: no other class waits at any bucket, and the charges need not be looked at.
        quiet = memo.even and free(memo.cells) and not plan.holds and gcra.agree(memo.buckets, plan.cost, now)
        if not quiet:
            refused = self._ask(plan, memo, now, left)
            if refused:
                return Reading(tuple(refused), tuple(left))
        over = False
        if plan.share is not None:
            # What shares fairly is called without a detour where this is compiled.
            shares = self._shares
            if shares is None:
                share = self._backstop.take(plan.share, now)
                over = self._backstop.over
            else:
                member = memo.member
                if member is None or member.ask is not plan.share:
                    member = memo.member = shares.meet(plan.share, now)
                share = shares.take_of(member, now)
                over = shares.over
            if share is not None:
                left = left or [bucket.burst - gcra.level_at(bucket, now) for bucket in memo.buckets]
                return Reading((Refusal(share.limit, share.wait_us),), tuple(left), (), share.beyond_own, share.over)
        if quiet:
            gcra.take_all(memo.buckets, plan.cost, now, left)
        else:
            _pay(plan, memo, now, left)
        for cell in memo.cells:
            cell.held += 1
        return Reading((), tuple(left), self._shadow(plan, now) if plan.shadow else (), False, over)

    def _holds(self, memo: Memo) -> bool:
        """Return whether what was found for a plan still holds; all is touched at once: memory is waited for once."""
        if memo.store != self._number:
            return False
        as_of = memo.as_of
        for bucket in memo.buckets:
            if bucket.changed > as_of:
                return False
        for cell in memo.cells:  # noqa: SIM110 - any() would make a generator
            if cell.changed > as_of:
                return False
        return True

    def _find(self, plan: Plan, memo: Memo, now: Micros) -> None:
        """Look up what a plan is about, made if need be and as large as it says, and keep that in its memo."""
        buckets: list[Bucket] = []
        even = True
        for charge in plan.own:
            buckets.append(self._bucket(charge, now, buckets))
            even &= charge.cost == plan.cost and not charge.low
        self._changes += 1
        seats = self._seats
        memo.cells = cells = tuple([seats.find(seat.holder, seat.seats, self._changes) for seat in plan.seats])
        seats.trim(cells)
        memo.buckets, memo.even, memo.member = tuple(buckets), even, None
        memo.store, memo.as_of = self._number, self._changes

    def _ask(self, plan: Plan, memo: Memo, now: Micros, left: list[RequestUnits]) -> list[Refusal]:
        """Ask all own limits, changing none, and return what refused.

        What this class could take of each bucket is appended to `left`. The kernel's step is written out for no other
        class waiting: as calls to `gcra` it takes 1 us more a decision. The contract suite compares the two.
        """
        refused: list[Refusal] = []
        for index, charge in enumerate(plan.own):
            bucket = memo.buckets[index]
            level = bucket.level
            elapsed = now - bucket.stamp
            if elapsed > 0:
                level -= bucket.rate_us * elapsed
                if level < 0.0:  # noqa: PLR1730 - max() is a call
                    level = 0.0
            could = bucket.burst - level
            if charge.low:
                contest = now < bucket.high_at + SECOND
            else:
                bucket.high_at = now
                contest = now < bucket.low_until
            if contest:
                leave = gcra.kept(bucket, charge, now)
                could -= leave
                fits = level <= gcra.room(bucket, charge, leave)
            else:
                fits = level <= bucket.burst - charge.cost or level <= 0.0
            if not fits:
                refused.append(Refusal(charge.limit, gcra.refuse(bucket, charge, now)))
            left.append(could)
        for index, cell in enumerate(memo.cells):
            if cell.held >= cell.seats:
                refused.append(Refusal("concurrency", SEAT_WAIT_US, plan.seats[index].whose))
        return refused + _held(plan.holds, now) if plan.holds else refused

    def _shadow(self, plan: Plan, now: Micros) -> tuple[Refusal, ...]:
        """Ask the shadow charges, each for itself, and return those that would have refused."""
        refused: list[Refusal] = []
        for charge in plan.shadow:
            bucket = self._bucket(charge, now)
            gcra.demand(bucket, charge, now)
            if gcra.admits(bucket, charge, now):
                gcra.take(bucket, charge, now)
            else:
                refused.append(Refusal(charge.limit, gcra.refuse(bucket, charge, now)))
        return tuple(refused)

    def give_back(self, plan: Plan, now: Micros, reading: Reading | None = None) -> None:
        """Return the charges of a taken plan whose request never reached the upstream (seats are `release`'s).

        With its reading, shadow charges go back too. A bucket that is gone was full again; what an overflow bucket was
        charged stays, since whose it was is no longer known.
        """
        for charge in plan.own:
            self._undo(charge, now)
        if reading is not None and plan.shadow:
            refused = {refusal.limit for refusal in reading.shadow_refused}
            for charge in plan.shadow:
                if charge.limit not in refused:
                    self._undo(charge, now)
        if plan.share is not None:
            self._backstop.give_back(plan.share, now, over=reading is not None and reading.share_over)

    def raise_level(self, charge: Charge, owed: float, now: Micros) -> None:
        """Let the bucket of a charge owe at least `owed`, a part of its burst. An overflow bucket stays as it is."""
        bucket = self._bucket(charge, now)
        level = owed * bucket.burst
        if gcra.level_at(bucket, now) < level and self._buckets.get(charge.bucket) is bucket:
            bucket.level = level
            bucket.stamp = max(bucket.stamp, now)

    def _undo(self, charge: Charge, now: Micros) -> None:
        bucket = self._buckets.get(charge.bucket)
        if bucket is not None:
            gcra.give_back(bucket, charge, now)

    def release(self, plan: Plan) -> None:
        """Return the seats of a taken plan. Exactly once per take."""
        if plan.memo.store == self._number:
            # No cell is dropped while a seat is taken in it, so they are those of the take.
            for cell in plan.memo.cells:
                cell.held -= 1
        else:
            for seat in plan.seats:
                self._seats.give(seat.holder)

    def tick(self, now: Micros) -> None:
        """Drop some buckets that are full again, and let the backstop do its slice."""
        self._sweep(now, SWEEP_PER_TICK)
        if self._left:
            self._forget(now)
        size = len(self._buckets)
        self._peak = max(self._peak, size)
        if size * 8 < self._peak and size < COMPACT_BELOW:
            self._buckets = dict(self._buckets)
            self._peak = size
        self._backstop.tick(now)

    def rebuild(self, policies: PolicySet, now: Micros) -> None:
        """Go on under new policies: refills nothing, forgets nothing."""
        self._changed_at = now
        self._left += self._pinned
        self._pinned = []
        self._backstop.rebuild(
            policies.backstop.rate.per_us, policies.backstop.burst, policies.classes, policies.unlisted_weight, now,
            policies.max_unlisted_tenants,
        )  # fmt: skip

    def _forget(self, now: Micros) -> None:
        """Drop some of the configured buckets of before the reload that are full: their entries may be gone."""
        for _ in range(min(SWEEP_PER_TICK, len(self._left))):
            name = self._left.pop()
            if self._idle(self._buckets[name], now):
                self._buckets.pop(name).changed = GONE
            else:
                self._pinned.append(name)

    def _bucket(self, charge: Charge, now: Micros, keep: Sequence[Bucket] = ()) -> Bucket:
        """Return the bucket of a charge with the charge's rate and burst, made if need be, none of `keep` dropped."""
        bucket = self._buckets.get(charge.bucket)
        if bucket is None:
            bucket = self._open(charge, now, keep)
        if bucket.rate_us != charge.rate_us or bucket.burst != charge.burst:
            gcra.resize(bucket, charge.rate_us, charge.burst, self._changed_at)
            if bucket.changed != GONE:
                self._changes += 1
                bucket.changed = self._changes
        return bucket

    def _open(self, charge: Charge, now: Micros, keep: Sequence[Bucket]) -> Bucket:
        if charge.pinned:
            self._pinned.append(charge.bucket)
            return self._new(charge, now)
        self._sweep(now, SWEEP_PER_KEY, keep)
        if len(self._ring) < self._max_keys:
            self._ring.append(charge.bucket)
            return self._new(charge, now)
        # Nobody keeps this one: it is `GONE` from the first.
        self.overflow_requests += 1
        name = charge.overflow or charge.limit
        shared = self._overflow.get(name)
        if shared is None:
            shared = self._overflow[name] = Bucket(charge.rate_us, charge.burst, now)
        return shared

    def _new(self, charge: Charge, now: Micros) -> Bucket:
        bucket = self._buckets[charge.bucket] = Bucket(charge.rate_us, charge.burst, now)
        self._changes += 1
        bucket.changed = self._changes
        return bucket

    def _idle(self, bucket: Bucket, now: Micros) -> bool:
        """Return whether nobody would notice if the bucket were made anew."""
        # One not touched since the reload fills at a rate that only its next asker knows.
        at = now if bucket.stamp >= self._changed_at else self._changed_at
        return now >= bucket.high_at + SECOND and gcra.level_at(bucket, at) <= 0.0

    def _sweep(self, now: Micros, steps: int, keep: Sequence[Bucket] = ()) -> None:
        """Look at the next `steps` buckets of the ring and drop those that are full, with nobody's demand on them.

        `keep` are those that the take under way has found already.
        """
        ring, buckets = self._ring, self._buckets
        hand = self._hand
        for _ in range(min(steps, len(ring))):
            if hand >= len(ring):
                hand = 0
            name = ring[hand]
            bucket = buckets[name]
            if self._idle(bucket, now) and bucket not in keep:
                del buckets[name]
                bucket.changed = GONE
                last = ring.pop()
                if hand < len(ring):
                    ring[hand] = last
            else:
                hand += 1
        self._hand = hand


def _pay(plan: Plan, memo: Memo, now: Micros, left: list[RequestUnits]) -> None:
    """Charge what `_ask` agreed to, one by one, and count it out of `left`."""
    for index, charge in enumerate(plan.own):
        bucket = memo.buckets[index]
        if charge.low and now < bucket.low_until:
            gcra.take(bucket, charge, now)
        else:
            gcra.pay(bucket, charge.cost, now)
        left[index] -= charge.cost


def _held(holds: tuple[Hold, ...], now: Micros) -> list[Refusal]:
    """Return the holds that are still on."""
    return [Refusal(hold.limit, hold.until_us - now) for hold in holds if now < hold.until_us]
