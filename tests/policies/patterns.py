"""Random demand, for the fair backstop to be compared with an oracle.

A pattern is a handful of tenants, each with own limits and with demand that changes kind at one to three instants. Own
buckets stand before the backstop and are charged only for what it lets through, as in the stores.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Protocol

from policies.kernels.share import Ask
from policies.policy import ClassRule
from policies.units import SECOND, Micros

__all__ = ["LENGTH", "WINDOW", "Backstop", "Pattern", "Tenant", "Window", "play"]

#: A pattern lasts this many seconds, and is looked at through windows of this many.
LENGTH = 5.0
WINDOW = 2.0
KINDS = ("poisson", "even", "burst", "hammer", "off")
CLASSES = (ClassRule(0), ClassRule(1, 0.25, 0.05))


@dataclass(slots=True)
class Tenant:
    """Own limits and what is asked; one object is both a tenant and its ask."""

    tenant: str
    weight: float
    cost: float
    own_rate_us: float
    own_burst: float
    cls: int = 0
    listed: bool = True
    #: Theoretical arrival time of the own bucket.
    arrival: float = -1e18

    def tokens(self, now: float) -> float:
        """Return what the own bucket holds at `now`."""
        return max(0.0, min(self.own_burst, (now - self.arrival) * self.own_rate_us))


@dataclass(slots=True)
class Window:
    """What was asked and taken in [begin, begin + WINDOW): per tenant, in units."""

    begin: Micros
    tokens: list[float]
    #: Tokens the backstop held at the beginning.
    stored: float
    offered: list[float]
    taken: list[float]


@dataclass(slots=True)
class Pattern:
    """A service of `capacity` units a second and `burst` units, and arrivals as (instant, tenant)."""

    capacity: float
    burst: float
    tenants: list[Tenant]
    changed: Micros
    arrivals: list[tuple[Micros, int]] = field(default_factory=list)

    @classmethod
    def draw(cls, random: Random, tenants: int, capacity: float, seconds: float, changes: Sequence[float]) -> Pattern:
        """Draw the tenants and their arrivals; `seconds` is how much capacity the backstop can store."""
        weights = [random.choice((1.0, 1.0, 1.0, 0.5, 2.0, 5.0)) for _ in range(tenants)]
        pattern = cls(capacity, capacity * seconds, [], int(changes[-1] * SECOND))
        for index, weight in enumerate(weights):
            own = capacity / tenants * random.choice((0.3, 0.8, 1.5, 4.0, 20.0))
            burst = max(10.0, own * random.choice((0.2, 1.0)))
            cost = random.choice((1.0, 1.0, 1.0, 2.0, 5.0))
            pattern.tenants.append(Tenant(f"t{index}", weight, cost, own / SECOND, burst))
            kind = random.choice(KINDS)
            for begin, end in zip(changes, (*changes[1:], LENGTH), strict=True):
                even = capacity * weight / sum(weights) / cost
                pattern.arrivals += [(at, index) for at in _arrivals(random, kind, even, begin, end)]
                kind = random.choice(KINDS) if random.random() < 0.7 else kind
        pattern.arrivals.sort()
        return pattern

    def begins(self) -> list[Micros]:
        """Return where windows begin: at least a second after the last change."""
        first, last = self.changed + SECOND, int((LENGTH - WINDOW) * SECOND)
        return sorted({min(first + 50_000, last), (first + last) // 2, last})


def _arrivals(random: Random, kind: str, even: float, begin: float, end: float) -> list[Micros]:
    """Return the instants of one kind of demand; `even` is the tenant's even part of the service."""
    rate = even * math.exp(random.uniform(-2.0, 2.0)) * (5.0 if kind == "hammer" else 1.0)
    together = max(1, int(rate * random.choice((0.02, 0.05, 0.1)))) if kind == "burst" else 1
    at: list[Micros] = []
    if kind == "off":
        return at
    now = begin + random.random() * together / rate
    while now < end:
        at += [int(now * SECOND)] * together
        now += random.expovariate(rate) if kind in {"poisson", "hammer"} else together / rate
    return at


class Backstop(Protocol):
    """`Shares`, or one plain bucket."""

    def take(self, ask: Ask, now: Micros) -> object | None:
        """Take, or say why not."""
        ...


def play(pattern: Pattern, backstop: Backstop, stored: Tokens, start: Micros) -> list[Window]:
    """Let the tenants ask, and return what was seen through each window; `start` is the instant of second 0."""
    tenants, count = pattern.tenants, len(pattern.tenants)
    windows: list[Window] = []
    begins = [start + begin for begin in pattern.begins()]
    length = int(WINDOW * SECOND)
    for at, index in pattern.arrivals:
        now = start + at
        while len(windows) < len(begins) and now >= begins[len(windows)]:
            begin = begins[len(windows)]
            held = [tenant.tokens(begin) for tenant in tenants]
            windows.append(Window(begin, held, stored(begin), [0.0] * count, [0.0] * count))
        tenant = tenants[index]
        arrival = max(tenant.arrival, now - tenant.own_burst / tenant.own_rate_us)
        after = arrival + tenant.cost / tenant.own_rate_us
        taken = after <= now and backstop.take(tenant, now) is None
        if taken:
            tenant.arrival = after
        for window in windows:
            if now < window.begin + length:
                window.offered[index] += tenant.cost
                window.taken[index] += tenant.cost if taken else 0.0
    return windows


class Tokens(Protocol):
    """What a backstop holds at an instant."""

    def __call__(self, now: Micros) -> float:
        """Return it in units."""
        ...
