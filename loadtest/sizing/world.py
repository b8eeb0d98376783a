"""One key and its quota, in simulated time: traffic by the slot, sizing by the day.

Rules
1. The measuring and the arithmetic are those of the gateway (`history/peaks.py`, `policies/sizing_past.py`); only the
   bucket is simulated, as a fluid, since ten seconds are much longer than a request.
2. A slot's demand is a function of the instant and of the quota in force, so that a caller may use all it has.
3. Instants are UTC seconds. What a local clock does is up to the demand.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from fractions import Fraction

from gateway.history.peaks import KeyPeaks, sealed_before
from policies.policy import Mode, Quota, Sized, Sizing
from policies.sizing_past import Day, Hour, Past, Step, size, summarise
from policies.units import SECOND, Rate

__all__ = ["DAY", "SIZING", "SLOT", "START", "KeyWorld", "per_second"]

SLOT = 10
DAY = 86_400
#: 2026-01-01, in days since the epoch.
START = 20_454


def per_second(rate: float, burst: float | None = None) -> Quota:
    """Return a quota of `rate` units a second, with a second's burst unless told otherwise."""
    return Quota(Rate(Fraction(str(rate))), rate if burst is None else burst)


#: The defaults of gateway.toml.
SIZING = Sizing(
    initial=per_second(20),
    floor=per_second(5),
    window_us=30 * DAY * SECOND,
    peak_interval_us=SLOT * SECOND,
    multiplier=2.0,
    learn_us=7 * DAY * SECOND,
    ceiling=0.5,
    max_growth_per_day=1.25,
    max_growth_per_month=3.0,
    max_shrink_per_day=0.9,
)

#: (UTC second, units a second that are in force) -> units a second wanted in this slot.
Demand = Callable[[int, float], float]


@dataclass(slots=True)
class KeyWorld:
    """A key from day `START` on. `days` and `steps` are its past; `refused` counts units by day."""

    sizing: Sizing = SIZING
    backstop: Quota = field(default_factory=lambda: per_second(10_000))
    today: int = START
    days: list[Day] = field(default_factory=list)
    steps: list[Step] = field(default_factory=list)
    refused: dict[int, float] = field(default_factory=dict)
    offered: dict[int, float] = field(default_factory=dict)
    quotas: dict[int, float] = field(default_factory=dict)
    sized: Sized | None = None
    _peaks: KeyPeaks = field(default_factory=lambda: KeyPeaks(SLOT))
    _hours: list[Hour] = field(default_factory=list)
    _tokens: float = 0.0

    @property
    def quota(self) -> Quota:
        """What is in force, or would be once it is enforced."""
        return self.sizing.initial if self.sized is None else self.sized.quota

    @property
    def rate(self) -> float:
        """The same in units a second."""
        return float(self.quota.rate.per_second)

    def seed(self, rate: float, days: int = 40) -> None:
        """Begin with `days` at a peak of `rate`, sized accordingly and learnt."""
        self.run(days, lambda at, _: rate if 9 <= at % DAY // 3600 < 17 else rate / 4)

    def run(self, days: int, demand: Demand) -> None:
        """Live through some days of traffic."""
        for _ in range(days):
            self._live(demand)
            self._size()

    def _live(self, demand: Demand) -> None:
        enforced = self.sized is not None and self.sized.mode is Mode.ENFORCE
        rate, burst = self.rate, self.quota.burst
        refused = offered = 0.0
        for at in range(self.today * DAY, (self.today + 1) * DAY, SLOT):
            wanted = demand(at, rate) * SLOT
            self._tokens = min(burst, self._tokens) + rate * SLOT
            admitted = min(wanted, self._tokens) if enforced else wanted
            self._tokens -= min(admitted, self._tokens)
            if wanted:
                turned = wanted - admitted > 1e-9
                refused += wanted - admitted
                offered += wanted
                quota = rate if enforced else float("inf")
                second = min(admitted, max(admitted / SLOT, min(burst, wanted / SLOT)))
                self._peaks.add(at, admitted, second, wanted, refused=turned, own=turned, quota=quota)
        self.refused[self.today], self.offered[self.today] = refused, offered
        self.quotas[self.today] = rate

    def _size(self) -> None:
        """Do what happens half an hour after midnight, when the last hour of the day is sealed."""
        self._hours += self._peaks.seal(sealed_before((self.today + 1) * DAY + 1800))
        self.days.append(summarise(self.today, self._hours))
        self._hours = []
        self.today += 1
        past = Past([day for day in self.days if day.offered], self.steps, START)
        self.sized = sized = size(self.sizing, self.backstop, past, self.today)
        rate = sum(term.delta for term in sized.terms)
        self.steps.append(Step(self.today, rate, sized.next_quota.burst))
