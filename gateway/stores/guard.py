"""The store that always answers: a leased one, and a posture where that has no answer.

    known below:  take -> leased store
    not known:    take -> what needs no store -> the posture of the plan: a draw, or safe capacity

Rules
1. Nobody is answered 500, and nobody waits, because a store is gone. Whoever asks before it is known to be gone waits
   for the store's deadline at most (`ask`).
2. Of a store that is down what is known stays good for as long as the backstop's lease: then another process may have
   it, and the posture decides whatever this process holds.
3. What was decided here says so in its reading (`posture`); what a request took, it gives back where it took it.
   Seats are all counted below, so that those which a posture gave are known to the store once it is back.
4. What a posture admitted is charged: at once to the leases while the store is there and merely slow, so that the
   grant which comes late pays for it; else as soon as the store is back, before anything else is asked (`debts.py`).
5. One line in the log when the store goes, with the cause, and one when it is back, with what was decided meanwhile;
   one a minute while it is there and does not decide all the same. None of a store that is not met yet and that nobody
   has missed, unless connecting to it failed.
"""

from __future__ import annotations

import logging
import random
from collections.abc import Callable, Mapping
from typing import Protocol

from gateway.ports import Store
from gateway.stores.debts import Debts
from gateway.stores.memory import Backstop
from gateway.stores.safe import Known, SafeCapacity
from policies.charge import Charge, Plan, Reading, Refusal
from policies.policy import PolicySet
from policies.posture import LIMIT, SAFE, WAIT_US, certain, read_posture
from policies.units import SECOND, Micros, RequestUnits

__all__ = ["BACKSTOP_LEASE", "CALM", "GuardedStore", "Leased", "State"]

_LOG = logging.getLogger("evenhand.store")
MINUTE: Micros = 60 * SECOND
#: How long a part of the backstop is this process's without being renewed.
BACKSTOP_LEASE: Micros = 3 * SECOND // 2
#: For so long after an outage some requests may still be decided without the store.
CALM: Micros = 5 * SECOND
#: Debts told in one tick, about 0.1 ms.
TOLD_PER_TICK = 200


class State(Protocol):
    """Whether a store can be reached; `stores.link.Link` is one."""

    @property
    def up(self) -> bool:
        """False from the moment in which the store is known not to answer until it does."""
        ...

    @property
    def cause(self) -> str:
        """The kind of the last fault while not up, else empty."""
        ...

    @property
    def errors(self) -> Mapping[str, int]:
        """Failed calls by kind."""
        ...


class Leased(Store, Known, Protocol):
    """The store below: it decides what it holds leases for, and can be asked for more."""

    @property
    def keys(self) -> int:
        """Buckets held now."""
        ...

    @property
    def overflow_requests(self) -> int:
        """Requests charged to a shared overflow bucket."""
        ...

    @property
    def backstop(self) -> Backstop:
        """What the service can serve, and for whom."""
        ...

    def knows(self, plan: Plan, now: Micros) -> bool:
        """Return whether `take` can decide `plan` at `now` without the store."""
        ...

    def ask(self, plan: Plan, now: Micros, resume: Callable[[], None]) -> Callable[[], None] | None:
        """Ask the store for what `plan` lacks, and call `resume`; None if it is known, or nobody is there to ask."""
        ...

    def spent(self, charge: Charge, units: RequestUnits, now: Micros) -> None:
        """Count units of a bucket that were admitted without the store."""
        ...

    def owe(self, plan: Plan, now: Micros) -> None:
        """Charge what was admitted while the store is there and had not answered yet."""
        ...

    def forgive(self, charge: Charge) -> None:
        """Note that a charge which is owed was never used."""
        ...

    def occupy(self, plan: Plan, now: Micros) -> None:
        """Count the seats of a plan that was admitted without the store, until their `release`."""
        ...

    def tick(self, now: Micros) -> None:
        """Do the next slice of background work."""
        ...


class GuardedStore:
    """A leased store that always answers; implements `gateway.ports.Store`. `draw` is from [0, 1)."""

    def __init__(
        self,
        leased: Leased,
        state: State,
        policies: PolicySet,
        max_keys: int,
        now: Micros,
        draw: Callable[[], float] = random.random,
    ) -> None:
        self.leased = leased
        self._state = state
        self._draw = draw
        self._safe = SafeCapacity(policies, max_keys, now, leased)
        self._debts = Debts(max_keys, self._safe.part)
        #: The same, to look at for each request.
        self._owing = self._debts.kept
        self._policies = policies
        #: Requests that a posture decided.
        self.decided = 0
        #: Since when the store is known not to answer, 0 while it answers.
        self.lost_us: Micros = 0
        self._decided_before = 0
        #: When the lease of the backstop ends that was renewed last.
        self._lapses_us: Micros = now
        self._began_us = now
        #: Whether the store ever answered.
        self._met = False
        #: When it was last said that requests are decided without a store that is up, and how many had been by then.
        self._told_us = now - MINUTE
        self._told = 0
        #: How many had been decided by the last tick, and when that last changed.
        self._seen = 0
        self._slow_us = now
        #: Until when what is decided without the store still counts as of an outage.
        self._calm_us = now
        self._warning = ""

    def expect(self, processes: int) -> None:
        """Note that so many processes share the store at least, before the store could tell."""
        self._safe.peers = processes

    @property
    def up(self) -> bool:
        """Whether the store answers."""
        return self._state.up

    @property
    def degraded(self) -> str:
        """Return the kind of fault while the store is known not to answer, else nothing."""
        return "" if self._state.up else self._state.cause or "down"

    @property
    def errors(self) -> Mapping[str, int]:
        """Failed calls of the store by kind."""
        return self._state.errors

    def standing(self, now: Micros) -> dict[str, object]:
        """Return how the store stands, as the admin API tells it."""
        lost = max(0, now - self.lost_us) if self.lost_us else 0
        return {
            "up": self.up,
            "cause": self.degraded or None,
            "lost_seconds": lost // SECOND,
            "decided": self.decided,
        }

    @property
    def keys(self) -> int:
        """Buckets held now."""
        return self.leased.keys

    @property
    def overflow_requests(self) -> int:
        """Requests charged to a shared overflow bucket."""
        return self.leased.overflow_requests

    @property
    def backstop(self) -> Backstop:
        """What the service can serve, and for whom."""
        return self.leased.backstop

    def ask(self, plan: Plan, now: Micros, resume: Callable[[], None]) -> Callable[[], None] | None:
        """Begin to find out what `take` needs, and call `resume` then; None if it can decide now."""
        if self._owing and self._state.up:
            for charge, units in self._debts.of(plan, now):
                self.leased.spent(charge, units, now)
        return self.leased.ask(plan, now, resume)

    def take(self, plan: Plan, now: Micros) -> Reading:
        """Take the plan from the leases; where they do not tell, do as its posture says."""
        leased = self._state.up or plan.share is None or now < self._lapses_us
        if leased and self.leased.knows(plan, now):
            return self.leased.take(plan, now)
        return self._stand_in(plan, now)

    def _stand_in(self, plan: Plan, now: Micros) -> Reading:
        """Decide without the store."""
        self.decided += 1
        posture = read_posture(plan.posture)
        refused = certain(plan, now)
        if refused:
            return Reading(refused, (), posture=posture.name)
        if posture.refused is None:
            reading = self._safe.take(plan, now, slow=self._state.up)
        elif posture.refused and posture.refuses(self._draw()):
            return Reading((Refusal(LIMIT, WAIT_US),), (), posture=posture.name)
        else:
            reading = Reading((), (), posture=posture.name)
        if not reading.refused:
            if self._state.up:
                self.leased.owe(plan, now)
            else:
                self._debts.add(plan, now)
            if plan.seats:
                self.leased.occupy(plan, now)
        return reading

    def give_back(self, plan: Plan, now: Micros, reading: Reading | None = None) -> None:
        """Return the charges of a taken plan whose request never reached the upstream."""
        if reading is None or not reading.posture:
            self.leased.give_back(plan, now, reading)
            return
        for charge in self._debts.take_back(plan, now):
            self.leased.forgive(charge)
        if reading.posture == SAFE:
            self._safe.give_back(plan, now, reading)

    def release(self, plan: Plan) -> None:
        """Return the seats of a taken plan. Exactly once per take; it counts there whoever let it in."""
        self.leased.release(plan)

    def rebuild(self, policies: PolicySet, now: Micros) -> None:
        """Go on under new policies: refills nothing, forgets nothing."""
        self._policies = policies
        self.leased.rebuild(policies, now)
        self._safe.rebuild(policies, now)

    def tick(self, now: Micros) -> None:
        """Do the next slice of background work, tell debts, and say once that the store went or came."""
        self.leased.tick(now)
        self._safe.tick(now)
        up = self._state.up
        if up:
            self._met = True
            self._lapses_us = now + BACKSTOP_LEASE
        if up and self._debts:
            for charge, units in self._debts.drain(TOLD_PER_TICK, now):
                self.leased.spent(charge, units, now)
        if up == bool(self.lost_us):
            self._back(now) if up else self._gone(now)
        elif up:
            self._in_part(now)

    def _gone(self, now: Micros) -> None:
        missed = self._met or self.decided != self._decided_before
        if not missed and (self.degraded == "down" or now < self._began_us + SECOND):
            return  # the first connection is being made, and nothing failed yet
        self.lost_us, self._warning = now, ""
        _LOG.warning("the store does not answer (%s): postures decide, %s by default", self.degraded,
                     self._policies.posture)  # fmt: skip

    def _in_part(self, now: Micros) -> None:
        """Say what a store that is up, but too slow or in part gone, did not decide: at once, then once a minute."""
        if now < self._calm_us:
            self._seen = self._told = self.decided
            return
        if self.decided != self._seen:
            self._seen, self._slow_us = self.decided, now
        elif self._warning and now >= self._slow_us + MINUTE:
            self._warning = ""
        if self.decided != self._told and now >= self._told_us + MINUTE:
            count, self._told, self._told_us = self.decided - self._told, self.decided, now
            self._warning = f"the store is up, but requests were decided without it: {count} within a minute"
            _LOG.warning("%s", self._warning)

    def warnings(self) -> list[str]:
        """Return what an operator should know of now, beside whether the store answers."""
        return [self._warning] if self._warning else []

    def _back(self, now: Micros) -> None:
        decided, seconds = self.decided - self._decided_before, (now - self.lost_us) / SECOND
        self.lost_us, self._decided_before, self._calm_us = 0, self.decided, now + CALM
        _LOG.warning("the store answers again: %d requests were decided without it in %.1f s", decided, seconds)
