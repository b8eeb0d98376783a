"""Callers: those that wait, that come straight back, that give up at a deadline, that do as they are told.

A call is what a caller wants done; it lasts from its first attempt until it is admitted, or its deadline passes, or the
caller gives up. However often it is refused meanwhile, it is one call.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from loadtest.sim.crowd import Crowd
from loadtest.sim.model import Arrivals, Callers, Herd, Loop, Mint, Retry, TenantLoad
from loadtest.sim.world import SLOT_US, Account, Step, World
from policies.charge import Plan, Reading
from policies.request import Class
from policies.units import SECOND, Micros

__all__ = ["people"]

#: Later than any end.
NEVER_US: Micros = 1 << 62


class Call:
    """One call on its way: `step` is its next attempt, `done` what follows it."""

    __slots__ = ("_account", "_begun_us", "_deadline_us", "_done", "_ends_us", "_plan", "_refusals", "_retry", "_world")

    def __init__(
        self, world: World, account: Account, plan: Plan, retry: Retry, deadline: float | None, done: Step | None
    ) -> None:
        self._world = world
        self._account = account
        self._plan = plan
        self._retry = retry
        self._deadline_us = NEVER_US if deadline is None else int(deadline * SECOND)
        self._done = done
        self._begun_us = self._ends_us = 0
        self._refusals = 0

    def begin(self, now: Micros) -> None:
        """Make the first attempt of a new call."""
        self._begun_us = now
        self._ends_us = now + self._deadline_us
        self._refusals = 0
        cost = self._plan.cost
        self._account.offered_slots[now // SLOT_US] += cost
        if now >= self._world.since_us:
            self._account.calls += 1
            self._account.offered += cost
        self.step(now)

    def step(self, now: Micros) -> None:
        """Try, and if refused come back or give up."""
        world = self._world
        reading = world.attempt(self._account, self._plan, now)
        if not reading.refused:
            self._end(now, served=True)
            return
        self._refusals += 1
        back = self._back(reading, now)
        if back == NEVER_US:
            self._fail(now)
        elif back < self._ends_us:
            world.at(back, self.step)
        else:
            world.at(self._ends_us, self._fail)

    def _back(self, reading: Reading, now: Micros) -> Micros:
        """Return when this caller tries again; NEVER_US if it does not."""
        retry, world = self._retry, self._world
        if retry.obeys:
            told = world.gate.told(self._plan, reading, now, world.random.random())
            if told is None:
                return NEVER_US
            if now >= world.since_us:
                self._account.longest_told_us = max(self._account.longest_told_us, told)
            return now + told
        if not retry.every:
            return NEVER_US
        return now + int(retry.every * SECOND * (1.0 + retry.spread * (2.0 * world.random.random() - 1.0)))

    def _fail(self, now: Micros) -> None:
        self._end(now, served=False)

    def _end(self, now: Micros, *, served: bool) -> None:
        account = self._account
        if self._begun_us >= self._world.since_us:
            account.served += served
            account.failed += not served
            account.at_once += served and not self._refusals
            account.first_return += served and self._refusals == 1
            account.most_refused = max(account.most_refused, self._refusals)
            if served:
                account.longest_us = max(account.longest_us, now - self._begun_us)
        if self._done is not None:
            self._done(now)


def people(world: World, load: TenantLoad) -> None:
    """Let the callers of a tenant into the world."""
    for callers in load.callers:
        match callers:
            case Arrivals():
                _arrive(world, load, callers)
            case Loop():
                _loop(world, load, callers)
            case Herd():
                _herd(world, load, callers)
            case Mint():
                _mint(world, load, callers)


def _plans(world: World, load: TenantLoad, callers: Callers) -> list[Plan]:
    cost, cls = getattr(callers, "cost", 1.0), getattr(callers, "cls", Class.INTERACTIVE)
    return [world.gate.plan(load.id, key, cls, cost, listed=load.listed) for key in range(load.keys)]


def _stop(world: World, stop: float | None) -> Micros:
    return world.end_us if stop is None else min(world.end_us, int(stop * SECOND))


def _pace(world: World, rate: float, *, even: bool) -> Callable[[], Micros]:
    """Return what draws the time between two arrivals."""
    if even:
        return lambda: int(SECOND / rate)
    return lambda: int(world.random.expovariate(rate) * SECOND)


def _arrive(world: World, load: TenantLoad, callers: Arrivals) -> None:
    account = world.account(load.id)
    plans = _plans(world, load, callers)
    stop = _stop(world, callers.stop)
    gap = _pace(world, callers.rate / callers.together, even=callers.even)
    turn = 0

    def arrive(now: Micros) -> None:
        nonlocal turn
        for _ in range(callers.together):
            turn += 1
            plan = plans[turn % len(plans)]
            Call(world, account, plan, callers.retry, callers.deadline, None).begin(now)
        following = now + gap()
        if following < stop:
            world.at(following, arrive)

    first = world.random.random() * callers.together / callers.rate
    world.at(int((callers.start + first) * SECOND), arrive)


def _loop(world: World, load: TenantLoad, callers: Loop) -> None:
    account = world.account(load.id)
    plans = _plans(world, load, callers)
    stop = _stop(world, callers.stop)
    if callers.retry.every and callers.deadline is None and len(plans) == 1:
        world.at(int(callers.start * SECOND), Crowd(world, account, plans[0], callers, stop).begin)
        return
    service = callers.service * SECOND

    def again(call: list[Call], now: Micros) -> None:
        following = now + int(service * world.random.random())
        if following < stop:
            world.at(following, call[0].begin)

    for index in range(callers.callers):
        # The call needs what follows it, and what follows it needs the call.
        itself: list[Call] = []
        plan = plans[index % len(plans)]
        itself.append(Call(world, account, plan, callers.retry, callers.deadline, partial(again, itself)))
        # Callers told to stay away for whole seconds would otherwise be one wave for ever.
        world.at(int((callers.start + world.random.random()) * SECOND), itself[0].begin)


def _herd(world: World, load: TenantLoad, callers: Herd) -> None:
    account = world.account(load.id)
    plans = _plans(world, load, callers)
    for index in range(callers.callers):
        call = Call(world, account, plans[index % len(plans)], callers.retry, callers.deadline, None)
        world.at(int(callers.start * SECOND), call.begin)


def _mint(world: World, load: TenantLoad, callers: Mint) -> None:
    account = world.account(load.id)
    stop = _stop(world, callers.stop)
    gap = _pace(world, callers.rate, even=False)
    made = 0

    def mint(now: Micros) -> None:
        nonlocal made
        plan = world.gate.plan(f"{load.id}-{made // callers.calls}", 0, Class.INTERACTIVE, 1.0, listed=False)
        made += 1
        Call(world, account, plan, callers.retry, None, None).begin(now)
        following = now + gap()
        if following < stop:
            world.at(following, mint)

    world.at(int(callers.start * SECOND), mint)
