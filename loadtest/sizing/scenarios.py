"""Six lives of a key, each with what must come of it. `python -m loadtest.sizing` prints them.

Each returns the figures that its check looks at, and `ok`. Tests run the same functions.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from loadtest.sizing.world import DAY, SLOT, START, KeyWorld

__all__ = [
    "SCENARIOS",
    "Outcome",
    "clock_change",
    "freak",
    "idle_return",
    "monthly_job",
    "organic_growth",
    "ramp",
    "saturating",
    "step",
]


@dataclass(frozen=True, slots=True)
class Outcome:
    """What came of a scenario."""

    ok: bool
    figures: Mapping[str, Any]


def _day_shape(at: int, peak: float) -> float:
    """Return office traffic: a quarter of the peak at night, all of it around 14:00 UTC."""
    return peak * (0.625 + 0.375 * math.cos((at % DAY / DAY - 14 / 24) * 2 * math.pi))


def ramp(days: int = 30) -> Outcome:
    """Let a patient tenant use 85 % of what it has, all day: it gains 3 x in 30 days, and is flagged."""
    world = KeyWorld()
    world.seed(40)
    before = world.rate
    world.run(days, lambda _, quota: 0.85 * quota)
    gain = world.rate / before
    flagged = world.sized is not None and world.sized.flagged
    return Outcome(gain <= world.sizing.max_growth_per_month * 1.001 and flagged, {"gain": gain, "flagged": flagged})


def saturating(windows: int = 10, offset: int = 0) -> Outcome:
    """Let a tenant always take all it has, ramping up and down over 20 minutes: it keeps its limit for ten windows.

    `offset` shifts its session, in seconds, so that the ramp crosses an hour.
    """
    world = KeyWorld()
    world.seed(40)
    before = world.rate

    def session(at: int, quota: float) -> float:
        since = (at - offset) % DAY - 10 * 3600
        if not 0 <= since < 3 * 3600:
            return 0.0
        return 2 * quota * min(1.0, since / 1200, (3 * 3600 - since) / 1200)

    world.run(windows * 30, session)
    drift = world.rate / before
    return Outcome(0.9 <= drift <= 1.0, {"before": before, "after": world.rate, "drift": drift})


def freak() -> Outcome:
    """One 10 s slot at everything the limit allows moves the limit by less than 5 %."""
    plain, hit = KeyWorld(), KeyWorld()
    for world in (plain, hit):
        world.seed(40)
    moment = hit.today * DAY + 3 * 3600
    plain.run(3, lambda at, _: _day_shape(at, 40))
    hit.run(3, lambda at, _: 90.0 if moment <= at < moment + SLOT else _day_shape(at, 40))
    moved = max(abs(hit.quotas[day] / plain.quotas[day] - 1) for day in plain.quotas) if plain.quotas else 1.0
    moved = max(moved, abs(hit.rate / plain.rate - 1))
    burst = abs(hit.quota.burst / plain.quota.burst - 1)
    return Outcome(moved < 0.05 and burst < 0.05, {"rate moved": moved, "burst moved": burst})


def monthly_job(months: int = 4, minutes: int = 5) -> Outcome:
    """Run a job on the first of each month, and little else: it still fits, 31 days after the last."""
    world = KeyWorld()
    firsts = [START + sum((31, 28, 31, 30, 31, 30, 31)[:month]) for month in range(months + 1)]
    starts = {first * DAY + 2 * 3600 for first in firsts}

    def life(at: int, _: float) -> float:
        running = any(start <= at < start + minutes * 60 for start in starts)
        return 50.0 if running else 2.0 if 9 <= at % DAY // 3600 < 17 else 0.0

    world.run(firsts[-1] + 1 - START, life)
    refused = {first - START: world.refused[first] for first in firsts[1:]}
    return Outcome(not any(refused.values()), {"refused by day": refused, "quota": world.rate})


def idle_return(idle: int = 20) -> Outcome:
    """Leave for three weeks and find what was there; for much longer, and find the start or more."""
    world = KeyWorld()
    world.seed(40)
    world.run(idle, lambda _at, _quota: 0.0)
    found = world.rate
    world.run(7, lambda at, _: _day_shape(at, 40))
    refused = sum(world.refused[day] for day in range(world.today - 7, world.today))
    wanted = sum(world.offered[day] for day in range(world.today - 7, world.today))
    last = world.refused[world.today - 1]
    initial = float(world.sizing.initial.rate.per_second)
    ok = not refused if idle <= 30 else found >= initial and not last
    return Outcome(ok, {"found": found, "refused in the first week": refused / wanted, "on its last day": last})


def clock_change() -> Outcome:
    """Run a nightly job at 02:30 of a local clock that is put forward and back: it is never refused."""
    world = KeyWorld()
    forward, back = START + 87, START + 297  # 29 March and 25 October 2026, Central Europe

    def life(at: int, _: float) -> float:
        local = at + (7200 if forward * DAY + 3600 <= at < back * DAY + 3600 else 3600)
        return 50.0 if 9000 <= local % DAY < 9060 else 2.0 if 9 <= local % DAY // 3600 < 17 else 0.0

    world.run(60, life)
    quota = world.rate
    world.run(back + 10 - world.today, life)
    refused = sum(world.refused[day] for day in range(START + 30, world.today))
    return Outcome(not refused and world.rate == quota, {"refused": refused, "quota": world.rate})


def organic_growth(weeks: int = 26, weekly: float = 1.03) -> Outcome:
    """Growth of 3 % a week is followed for half a year without one refusal."""
    world = KeyWorld()
    world.seed(40)
    began = world.today

    def life(at: int, _: float) -> float:
        return _day_shape(at, 40 * weekly ** ((at // DAY - began) / 7))

    world.run(weeks * 7, life)
    refused = sum(world.refused[day] for day in range(began, world.today))
    return Outcome(not refused, {"refused": refused, "grown to": world.rate})


def step(factor: float, days: int) -> Outcome:
    """Step up by `factor`, with a day shape: on day `days` and after, nothing to speak of is refused."""
    world = KeyWorld()
    world.seed(40)
    began = world.today
    world.run(days + 4, lambda at, _: _day_shape(at, 40 * factor))
    parts = [world.refused[day] / world.offered[day] for day in range(began, world.today)]
    return Outcome(max(parts[days:]) < 0.005, {"refused by day": [round(part, 4) for part in parts]})


SCENARIOS: Mapping[str, Callable[[], Outcome]] = {
    "ramp": ramp,
    "monthly-job": monthly_job,
    "idle-return": idle_return,
    "idle-return, 60 days": lambda: idle_return(60),
    "freak": freak,
    "saturating": saturating,
    "saturating, across an hour": lambda: saturating(10, 2700),
    "organic-growth": organic_growth,
    "clock-change": clock_change,
    "step x 1.7": lambda: step(1.7, 0),
    "step x 2.5": lambda: step(2.5, 1),
    "step x 4": lambda: step(4.0, 3),
}
