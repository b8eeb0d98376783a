"""Safe capacity: what this process admits by itself while a shared store does not answer.

Every limit is asked at its safe part: what is this process's of the whole (the greater of its last share of the leases
and 1/N of N processes), times `safe_fraction`. The backstop is shared by the real kernel at such a capacity, so tenants
are dealt with as fairly as ever.

Rules
1. An episode begins with the first request after `EPISODE` without one. It takes the parts as they are then, and the
   backstop begins without tokens: what was handed out before is not handed out again.
2. A bucket is never fuller than it was last known to be, as a part of its burst: an outage gives nobody a second burst.
3. Whoever asks for more than its whole limit, as far as that is this process's, is refused by that limit. Whoever asks
   for less is refused by `posture`: it was promised more, and no figure may hold that against it.
4. A store that is there and slow leases to others all the while: a seat is given only if it was leased here already,
   or if nobody else shares the store.
5. Nothing here awaits, and memory is bounded as the embedded store's is.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple, Protocol

from gateway.stores.memory import SEAT_WAIT_US, MemoryStore, ShareRefusal
from policies.charge import Plan, Reading, Refusal, SeatCharge, ShareCharge
from policies.kernels.fairshare import Shares
from policies.kernels.plain import PlainBackstop
from policies.policy import ClassRule, PolicySet
from policies.posture import LEAST, LIMIT, SAFE, scaled
from policies.units import SECOND, Micros, RequestUnits

__all__ = ["EPISODE", "Known", "SafeCapacity"]

EPISODE: Micros = 2 * SECOND
#: Scaled plans kept; each is about 2 KB.
MAX_PLANS = 10_000


class Known(Protocol):
    """What the store that is gone had told last."""

    def part(self, bucket: str) -> float:
        """Return which part of what was leased of a bucket, or of the seats of a holder, this process had; 0 to 1."""
        ...

    def backstop_part(self) -> float:
        """Return which part of the backstop was leased to this process; 0 to 1."""
        ...

    def processes(self) -> int:
        """Return how many processes share the store."""
        ...

    def owed(self, bucket: str, now: Micros) -> float:
        """Return what a bucket still owes at `now` of what it owed when last heard of, as a part of its burst."""
        ...

    def seat_free(self, holder: str, now: Micros) -> bool:
        """Return whether a seat of a holder is certainly free here."""
        ...

    def in_use(self, holder: str) -> int:
        """Return how many seats of a holder are taken here, whoever let them in."""
        ...


class _Plans(NamedTuple):
    """A plan at its safe part, that without its seats, and its own limits at the whole part, one limit each."""

    of: Plan
    safe: Plan
    rates: Plan
    whole: tuple[Plan, ...]


class SafeCapacity:
    """The safe part of the limits of `policies`. Seats are counted below, so that none is taken twice."""

    def __init__(self, policies: PolicySet, max_keys: int, now: Micros, known: Known) -> None:
        self._known = known
        #: Processes that there are at least, whatever the store had told.
        self.peers = 1
        self._fraction = policies.safe_fraction
        self._shares = _SafeShares(policies, now)
        self._store = MemoryStore(policies, max_keys, now, self._shares)
        # Asked by what is offered, admitted or not: it says who is beyond its own limit.
        self._whole = MemoryStore(policies, max_keys, now, PlainBackstop(0.0, LEAST, policies.classes, 1.0, now))
        self._plans: dict[int, _Plans] = {}
        self._last: Micros = now - EPISODE
        self._least = 1.0

    def take(self, plan: Plan, now: Micros, *, slow: bool = False) -> Reading:
        """Take the plan at its safe part, all or none; `slow` says that the store is there and had not answered yet."""
        if now - self._last >= EPISODE:
            self._begin(now)
        self._last = now
        plans = self._of(plan)
        if plan.seats and not self._seats(plans.safe.seats, now, slow=slow):
            return Reading((Refusal(LIMIT, SEAT_WAIT_US),), (), posture=SAFE)
        for charge in plans.safe.own:
            self._store.raise_level(charge, self._known.owed(charge.bucket, now), now)
        reading = self._store.take(plans.rates, now)
        reading.posture = SAFE
        beyond = {plan.own[0].limit for plan in plans.whole if self._whole.take(plan, now).refused}
        if reading.refused:
            reading.refused = tuple(_named(refusal, plan, beyond) for refusal in reading.refused)
        return reading

    def _seats(self, seats: Sequence[SeatCharge], now: Micros, *, slow: bool) -> bool:
        """Return whether a seat of each is free; while the others lease theirs, only one that was leased here is."""
        if slow and self._least < 1.0:
            return all(self._known.seat_free(seat.holder, now) for seat in seats)
        return all(self._known.in_use(seat.holder) < seat.seats for seat in seats)

    def give_back(self, plan: Plan, now: Micros, reading: Reading) -> None:
        """Return what was taken for a request that never reached the upstream."""
        self._store.give_back(self._of(plan).safe, now, reading)

    def rebuild(self, policies: PolicySet, now: Micros) -> None:
        """Go on under new policies: refills nothing, forgets nothing."""
        self._fraction = policies.safe_fraction
        self._plans.clear()
        self._shares.fraction = policies.safe_fraction
        self._store.rebuild(policies, now)
        self._whole.rebuild(policies, now)

    def tick(self, now: Micros) -> None:
        """Do the next slice of background work."""
        self._store.tick(now)
        self._whole.tick(now)

    def part(self, bucket: str) -> float:
        """Return which part of a limit is this process's, before `safe_fraction`."""
        return min(1.0, max(self._known.part(bucket), self._least))

    def _begin(self, now: Micros) -> None:
        self._plans.clear()
        self._least = 1.0 / max(1, self.peers, self._known.processes())
        self._shares.begin(max(self._known.backstop_part(), self._least), now)

    def _of(self, plan: Plan) -> _Plans:
        """Return a plan scaled; kept by identity, as the planner keeps it."""
        kept = self._plans.get(id(plan))
        if kept is not None and kept.of is plan:
            return kept
        if len(self._plans) >= MAX_PLANS:
            self._plans.clear()
        fraction, part = self._fraction, self.part
        safe = scaled(plan, lambda bucket: fraction * part(bucket))
        bare = replace(scaled(plan, part), seats=(), share=None)
        whole = tuple(replace(bare, own=(charge,)) for charge in bare.own)
        made = self._plans[id(plan)] = _Plans(plan, safe, replace(safe, seats=()), whole)
        return made


def _named(refusal: Refusal, plan: Plan, beyond: set[str]) -> Refusal:
    """Return a refusal as it is told: own limits by their name only to whoever asks for more than they allow."""
    own = any(charge.limit == refusal.limit for charge in plan.own)
    return Refusal(LIMIT, refusal.wait_us) if own and refusal.limit not in beyond else refusal


class _SafeShares:
    """The fair shares of a safe part of the backstop; implements `memory.Backstop`."""

    def __init__(self, policies: PolicySet, now: Micros) -> None:
        self.fraction = policies.safe_fraction
        self.over = False
        self._whole = (
            policies.backstop.rate.per_us, policies.backstop.burst, policies.classes, policies.unlisted_weight,
            policies.max_unlisted_tenants,
        )  # fmt: skip
        self.begin(1.0, now)

    def begin(self, part: float, now: Micros) -> None:
        """Begin anew at a part of the backstop, without a token."""
        self._part = part
        rate_us, burst, classes, unlisted, max_unlisted = self._whole
        # A backstop without a rate holds nothing, and keeps holding nothing when it gets one.
        self._shares = Shares(0.0, burst, classes, unlisted, now, max_unlisted)
        self.rebuild(rate_us, burst, classes, unlisted, now, max_unlisted)

    def take(self, ask: ShareCharge, now: Micros) -> ShareRefusal | None:
        """Take the ask and return None, or take nothing and say why."""
        refusal = self._shares.take(ask, now)
        self.over = self._shares.over
        return refusal

    def give_back(self, ask: ShareCharge, now: Micros, *, over: bool = False) -> None:
        """Undo a take, which was `over` the share or not."""
        self._shares.give_back(ask, now, over=over)

    def tick(self, now: Micros) -> None:
        """Do the next slice of background work."""
        self._shares.tick(now)

    def rebuild(
        self, rate_us: float, burst: RequestUnits, classes: Sequence[ClassRule], unlisted_weight: float, now: Micros,
        max_unlisted: int,
    ) -> None:  # fmt: skip
        """Go on under a new configuration."""
        self._whole = (rate_us, burst, tuple(classes), unlisted_weight, max_unlisted)
        part = self._part * self.fraction
        self._shares.rebuild(
            rate_us * part, max(LEAST, burst * part), classes, unlisted_weight, now, max_unlisted
        )  # fmt: skip
