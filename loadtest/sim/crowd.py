"""Many patient callers of one key that come straight back: served in random order.

Each waiting caller comes back every so often. Of hundreds of them the attempts together are a Poisson process, and who
makes the next one is anybody's chance, so a crowd is simulated as one process that picks a waiting caller at random.

An own limit and a plain bucket say exactly when they could admit (a refusal changes nothing, and nothing but time makes
a token). What would be tried before then is counted and not tried: that is what makes 1,900 callers at 5 ms cheap.
"""

from __future__ import annotations

from loadtest.sim.model import Loop
from loadtest.sim.world import SLOT_US, Account, World
from policies.charge import Plan, Reading
from policies.units import SECOND, Micros

__all__ = ["Crowd"]


class Crowd:
    """The callers of one closed loop; `begin` lets them in."""

    __slots__ = (
        "_account",
        "_callers",
        "_carry",
        "_every_us",
        "_plan",
        "_service_us",
        "_stop_us",
        "_waiting",
        "_world",
    )

    def __init__(self, world: World, account: Account, plan: Plan, loop: Loop, stop_us: Micros) -> None:
        self._world = world
        self._account = account
        self._plan = plan
        self._callers = loop.callers
        self._every_us = loop.retry.every * SECOND
        self._service_us = loop.service * SECOND
        self._stop_us = stop_us
        #: When each waiting call was begun.
        self._waiting: list[Micros] = []
        self._carry = 0.0

    def begin(self, now: Micros) -> None:
        """Let everybody make a first attempt, and then come back."""
        for _ in range(self._callers):
            self._call(now)
        self._world.at(self._next(now), self._poll)

    def _next(self, now: Micros) -> Micros:
        """Return when the next attempt would be if everybody waited; those in service are drawn in vain."""
        return now + int(self._world.random.expovariate(self._callers / self._every_us))

    def _call(self, now: Micros) -> None:
        """Begin a call."""
        if now >= self._stop_us:
            return
        account, cost = self._account, self._plan.cost
        account.offered_slots[now // SLOT_US] += cost
        if now >= self._world.since_us:
            account.calls += 1
            account.offered += cost
        if self._world.attempt(account, self._plan, now).refused:
            self._waiting.append(now)
        else:
            self._serve(now, now)

    def _poll(self, now: Micros) -> None:
        """Let one of the waiting callers try again."""
        waiting = self._waiting
        back = now
        pick = int(self._world.random.random() * self._callers)
        if pick < len(waiting):
            reading = self._world.attempt(self._account, self._plan, now)
            if reading.refused:
                back = self._skip(reading, now)
            else:
                waiting[pick], waiting[-1] = waiting[-1], waiting[pick]
                self._serve(waiting.pop(), now)
        self._world.at(self._next(back), self._poll)

    def _skip(self, reading: Reading, now: Micros) -> Micros:
        """Return until when every attempt is refused for certain, having counted those attempts."""
        refusal = reading.refused[0]
        if refusal.limit in {"share", "class"} or (refusal.limit == "backstop" and self._world.gate.shares is not None):
            return now
        if now >= self._world.since_us:
            skipped = self._carry + refusal.wait_us * len(self._waiting) / self._every_us
            self._carry = skipped - int(skipped)
            self._account.attempts += int(skipped)
            self._account.refused[refusal.limit] += int(skipped)
        return now + refusal.wait_us

    def _serve(self, begun: Micros, now: Micros) -> None:
        world, account = self._world, self._account
        if begun >= world.since_us:
            account.served += 1
            account.longest_us = max(account.longest_us, now - begun)
        world.at(now + int(self._service_us * world.random.random()), self._call)
