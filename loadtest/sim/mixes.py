"""Random mixes of tenants, for what must hold in all of them: arrivals that fit a share are never refused by it.

A *fitting* tenant is shaped: a token bucket of its own lets through what is offered, so in any interval it asks for at
most burst + rate x time. It fits if that rate is at most the lowest level in force times its weight, and the burst is
one share burst (less the reserve where low asks shall fit too). The rest of the mix wants more than its part, in every
way.

Rules
1. The mix drives `Shares` itself, without own limits before it: nothing hides what it refuses.
2. Each `backstop` refusal is looked at: the debt must be at its bound for what the share bucket holds.
3. A mix is known by its seed.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from heapq import heapify, heapreplace
from math import inf
from random import Random

from policies.kernels.fairshare import Shares
from policies.policy import ClassRule
from policies.units import SECOND, Micros

__all__ = ["Ask", "Mix", "Outcome", "run_mix"]

CLASSES = (ClassRule(priority=0), ClassRule(priority=1, reserve=0.25, floor=0.05))
#: What a share bucket holds at least; a fitting tenant's burst.
BURST = 20.0


@dataclass(slots=True)
class Ask:
    """What `Shares` is asked."""

    tenant: str
    weight: float
    cost: float
    cls: int
    listed: bool = True
    own_rate_us: float = inf
    own_burst: float = inf


@dataclass(slots=True)
class Source:
    """A tenant of the mix. `rate` is what its arrivals are shaped to, in units a second; inf if they are not."""

    asks: list[Ask]
    rate: float
    burst: float
    #: Mean seconds between two arrivals, and how many come together.
    gap: float
    together: int
    tokens: float
    #: Whether its low asks fit too.
    low_fits: bool = True
    seen: Micros = 0
    offered: int = 0
    refused: Counter[tuple[str, int]] = field(default_factory=Counter)

    def lets(self, ask: Ask, now: Micros) -> bool:
        """Return whether the shaper lets `ask` through."""
        if self.rate == inf:
            return True
        self.tokens = min(self.burst, self.tokens + self.rate * (now - self.seen) / SECOND)
        self.seen = now
        if self.tokens < ask.cost:
            return False
        self.tokens -= ask.cost
        return True


@dataclass(slots=True)
class Outcome:
    """What became of a mix. `fitting` asks are those of tenants that fitted; refusals are counted by limit."""

    seed: int
    tenants: int
    capacity: float
    asked: int = 0
    fitting: int = 0
    refused: Counter[str] = field(default_factory=Counter)
    #: Refusals of fitting tenants: by `share`, of high and of low asks that it covers, and by `backstop`.
    by_share: int = 0
    by_backstop: int = 0
    #: `backstop` refusals that came before the debt was at its bound.
    too_early: int = 0
    lowest_level: float = inf


class Mix:
    """Tenants drawn from a seed: up to `density` of them per unit of capacity."""

    def __init__(self, seed: int, density: float) -> None:
        self.seed = seed
        self.random = random = Random(seed)
        self.capacity = random.choice((400.0, 1_000.0, 2_000.0, 4_000.0))
        self.burst = self.capacity * random.choice((0.25, 0.5, 1.0, 2.0))
        most = max(2, int(self.capacity * density))
        self.tenants = random.randint(max(2, most // 4), most)
        self.sources = [self._source(index) for index in range(self.tenants)]

    def _source(self, index: int) -> Source:
        random = self.random
        weight = random.choice((0.5, 1.0, 1.0, 1.0, 2.0, 4.0))
        even = self.capacity * weight / (1.5 * self.tenants)
        classes = random.choice(((0,), (0,), (1,), (0, 1)))
        costs = random.choice(((1.0,), (1.0,), (1.0, 2.0, 5.0), (4.0,)))
        asks = [Ask(f"t{index}", weight, cost, cls) for cls in classes for cost in costs]
        together = random.choice((1, 1, 5, 40))
        mean = sum(costs) / len(costs)
        if random.random() < 0.6:
            low_fits = 1 not in classes or random.random() < 0.7
            burst = BURST * (1.0 - CLASSES[1].reserve) if 1 in classes and low_fits else BURST
            rate = even * random.uniform(0.1, 1.0)
            # Offered above what the shaper lets through, so that every token is used.
            gap = mean * together / (rate * random.uniform(0.8, 4.0))
            return Source(asks, rate, burst, gap, together, burst, low_fits)
        wanted = even * random.uniform(1.0, 8.0)
        return Source(asks, inf, inf, mean * together / wanted, together, inf)


def run_mix(mix: Mix, most: int) -> Outcome:
    """Let a mix ask `most` times."""
    random, outcome = mix.random, Outcome(mix.seed, mix.tenants, mix.capacity)
    shares = Shares(mix.capacity / SECOND, mix.burst, CLASSES, 1.0, 0)
    due = [(int(random.expovariate(1.0 / source.gap) * SECOND), index) for index, source in enumerate(mix.sources)]
    heapify(due)
    while outcome.asked < most:
        now, index = due[0]
        source = mix.sources[index]
        for _ in range(source.together):
            ask = random.choice(source.asks) if len(source.asks) > 1 else source.asks[0]
            if not source.lets(ask, now):
                continue
            outcome.asked += 1
            source.offered += 1
            refusal = shares.take(ask, now)
            if refusal is not None:
                source.refused[refusal.limit, ask.cls] += 1
                if refusal.limit == "backstop":
                    outcome.too_early += not _at_bound(shares, ask, now)
        outcome.lowest_level = min(outcome.lowest_level, shares.level)
        heapreplace(due, (now + 1 + int(random.expovariate(1.0 / source.gap) * SECOND), index))
    for source in mix.sources:
        _judge(source, outcome)
    return outcome


def _at_bound(shares: Shares, ask: Ask, now: Micros) -> bool:
    """Return whether the debt was at its bound for what the share bucket of a refused tenant held."""
    view, share = shares.view(now), shares.share_of(ask.tenant, now)
    if share is None:
        return False
    return view.debt >= view.debt_bound * (0.5 + 0.5 * share.tokens / share.burst) * (1 - 1e-6)


def _judge(source: Source, outcome: Outcome) -> None:
    for (limit, _), count in source.refused.items():
        outcome.refused[limit] += count
    if source.rate > outcome.lowest_level * source.asks[0].weight:
        return
    outcome.fitting += source.offered
    covered = (0, 1) if source.low_fits else (0,)
    outcome.by_share += sum(source.refused["share", cls] for cls in covered)
    outcome.by_backstop += source.refused["backstop", 0] + source.refused["backstop", 1]
