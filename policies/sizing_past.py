"""A quota from the past: what a key reached, times a multiplier, held in by caps that a flood cannot teach.

Everything is integer arithmetic in nano-units per second, so the terms of a number add up to it exactly.

Rules
1. A peak is what was sustained in six slots of one uncensored hour, or reached on three different days, whichever is
   higher: one freak slot sets nothing, a nightly job of ten seconds is followed.
2. Censored usage may hold a quota where it is and never raises it: a key that uses all it has would else double its
   limit every window (120 -> 3,840 in five). What was offered is never learnt from.
3. Growth is capped per day by the number of the day before, and over 30 days by the highest one in force 30 or more
   days ago; for a younger key by what it started with. Shrinking is capped per day.
4. The window is 30 days and, beyond it, the same days of the last two months: a monthly job is one day out of a 30-day
   window in a 31-day month. Days are UTC, so no clock change moves a peak.
5. A key has its starting quota until it has `learn` of history. What would hold by then is worked out all the same.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import NamedTuple

from policies.policy import Mode, Quota, Sized, Sizing, Term
from policies.units import SECOND, Rate, RequestUnits

__all__ = [
    "DAY_US", "MEMORY_DAYS", "NANO", "SUSTAINED", "TOP", "Day", "Hour", "Past", "Peak", "Step", "default_burst",
    "same_day", "size", "summarise",
]  # fmt: skip

DAY_US = 86_400 * SECOND
NANO = 10**9
#: Slots kept of an hour; the sixth is what was sustained.
TOP = 8
SUSTAINED = 6
#: Days on which something must be reached to count although it was never sustained.
RECURRING = 3
#: The month of `max_growth_per_month`, and of the flag.
MONTH = 30
#: How far the memory of the same day of the month goes: two months and a day.
MEMORY_DAYS = 63
#: Growth over a month that is flagged.
FLAGGED = 2
#: A key censored on so many of the last seven days is starved.
STARVED, STARVED_OF = 3, 7
#: Digits of a number that is sized, so that RateLimit-Policy stays readable.
_DIGITS = 4


@dataclass(frozen=True, slots=True)
class Hour:
    """One hour with traffic. `slots` are the highest of it, in order: (units a second, units in their best second).

    `censored` counts the slots that were refused anything or used over 90 % of the quota; one of them censors all.
    `own` says that the key's own limit was among the causes. `offered` is the highest slot with what was refused.
    """

    number: int
    slots: tuple[tuple[float, float], ...]
    censored: int = 0
    offered: float = 0.0
    own: bool = False


class Peak(NamedTuple):
    """Units a second, the hour (since the epoch) they were seen in, and units in the best second."""

    rate: float = 0.0
    hour: int = 0
    second: float = 0.0


_NO_PEAK = Peak()


@dataclass(frozen=True, slots=True)
class Day:
    """What one day taught: free and held (censored) peaks, sustained and reached; censored slots, highest offered."""

    number: int
    sustained: Peak = _NO_PEAK
    reached: Peak = _NO_PEAK
    held: Peak = _NO_PEAK
    held_reached: Peak = _NO_PEAK
    censored: int = 0
    own: bool = False
    offered: float = 0.0


class Step(NamedTuple):
    """A number in force from `day` on: nano-units a second, and units of burst."""

    day: int
    rate: int
    burst: float


@dataclass(frozen=True, slots=True)
class Past:
    """All that is known of a key: its days in any order, the numbers it had in order, when it was first seen.

    `start` is what it began with if that is not `[sizing] initial`: its tenant's quota, `enforced` at once if so.
    """

    days: Sequence[Day]
    steps: Sequence[Step]
    first_day: int
    start: Quota | None = None
    start_enforced: bool = False


def summarise(number: int, hours: Iterable[Hour]) -> Day:
    """Return what a day taught."""
    free, held, free_top, held_top = [Peak()], [Peak()], [Peak()], [Peak()]
    censored, own, offered = 0, False, 0.0
    for hour in hours:
        censored += hour.censored
        own = own or hour.own
        offered = max(offered, hour.offered)
        if not hour.slots:
            continue
        # Two of the seconds may be freaks; the third is a habit.
        seconds = sorted((second for _, second in hour.slots), reverse=True)
        top = Peak(_short(hour.slots[0][0]), hour.number, _short(hour.slots[0][1]))
        (held_top if hour.censored else free_top).append(top)
        if len(hour.slots) >= SUSTAINED:
            sustained = Peak(_short(hour.slots[SUSTAINED - 1][0]), hour.number, _short(seconds[TOP - SUSTAINED]))
            (held if hour.censored else free).append(sustained)
    return Day(number, max(free), max(free_top), max(held), max(held_top), censored, own, offered)


def _short(number: float) -> float:
    """Return a measured number in as many digits as are shown: what is stored in few bits shows none of it."""
    return float(f"{number:.{_DIGITS}g}")


def same_day(day: int, today: int) -> bool:
    """Return whether `day` is the same day of an earlier month as `today` or a day beside it, 31st and all."""
    if today - day > MEMORY_DAYS:
        return False
    return any(_month_day(day) == _month_day(near) or (_is_last(day) and _is_last(near)) for near in _beside(today))


def _beside(day: int) -> Iterable[int]:
    return (day - 1, day, day + 1)


def _is_last(day: int) -> bool:
    return _month_day(day + 1) == 1


def _month_day(day: int) -> int:
    """Return the day of the month of a day since the epoch (H. Hinnant, `civil_from_days`)."""
    of_era = (day + 719_468) % 146_097
    year = (of_era - of_era // 1460 + of_era // 36_524 - of_era // 146_096) // 365
    of_year = of_era - (365 * year + year // 4 - year // 100)
    return of_year - (153 * ((5 * of_year + 2) // 153) + 2) // 5 + 1


def default_burst(per_second: Fraction, dearest: RequestUnits) -> RequestUnits:
    """Return the burst of a rate that has none of its own (contract, section 3)."""
    return max(float(per_second), 1.0, dearest)


def _nano(rate: float | Fraction) -> int:
    return round(Fraction(rate) * NANO)


def _seen(past: Past, today: int, window: int) -> list[Day]:
    return [
        day for day in past.days if day.number < today and (today - day.number <= window or same_day(day.number, today))
    ]


def _peak(days: Sequence[Day], *, held: bool) -> tuple[Peak, str]:
    """Return the peak of some days and the rule that found it; with `held` censored usage counts too."""
    sustained = max((max(day.sustained, day.held) if held else day.sustained for day in days), default=Peak())
    tops = sorted((max(day.reached, day.held_reached) if held else day.reached for day in days), reverse=True)
    recurring = tops[RECURRING - 1] if len(tops) >= RECURRING else Peak()
    return (recurring, "reached on three days") if recurring.rate > sustained.rate else (sustained, "sustained")


@dataclass(slots=True)
class _Sum:
    """A number and the terms that it is the sum of."""

    value: int = 0
    terms: list[Term] = field(default_factory=list)

    def become(self, value: int, name: str, detail: str) -> None:
        """Change the number, for a reason; one that changes nothing is no term."""
        if value != self.value:
            self.terms.append(Term(name, value - self.value, detail))
            self.value = value


def size(sizing: Sizing, backstop: Quota, past: Past, today: int, dearest: RequestUnits = 1.0) -> Sized:
    """Return the quota of a key on `today` (days since the epoch), with where it came from."""
    start = past.start or sizing.initial
    steps = [step for step in past.steps if step.day < today]
    before = steps[-1] if steps else Step(past.first_day, _nano(start.rate.per_second), start.burst)
    days = _seen(past, today, -(-sizing.window_us // DAY_US))
    peak, rule = _peak(days, held=False)
    total = _Sum()
    _want(total, sizing, days, before.rate, _nano(start.rate.per_second), (peak, rule))
    month = _month_ago(steps, today, start)
    ceiling = _nano(backstop.rate.per_second * Fraction(str(sizing.ceiling)))
    floor = min(_nano(sizing.floor.rate.per_second), ceiling)
    lowest = max(floor, _cap(total, sizing, before.rate, month))
    total.become(max(total.value, floor), "floor", "[sizing] floor")
    total.become(min(total.value, ceiling), "ceiling", f"{sizing.ceiling:g} of the backstop")
    total.become(_rounded(total.value, lowest, min(before.rate, ceiling)), "rounding", f"{_DIGITS} digits")
    rate = Fraction(total.value, NANO)
    burst = _burst(sizing, backstop, peak.second, before, month, default_burst(rate, dearest))
    offered = max((day.offered for day in past.days if 0 < today - day.number <= STARVED_OF), default=0.0)
    hungry = sum(day.own for day in past.days if 0 < today - day.number <= STARVED_OF) >= STARVED
    learnt = (today - past.first_day) * DAY_US >= sizing.learn_us
    return Sized(
        quota=Quota(Rate(rate), burst) if learnt else start,
        mode=Mode.ENFORCE if learnt or past.start_enforced else Mode.SHADOW,
        provenance="sized" if learnt else "initial" if past.start is None else "inherited",
        day=today,
        next_quota=Quota(Rate(rate), burst),
        terms=tuple(total.terms),
        peak=peak.rate,
        peak_hour=peak.hour,
        peak_rule=rule,
        grown=total.value / month.rate if month.rate else 1.0,
        flagged=total.value > FLAGGED * month.rate,
        starved=hungry,
        proposal=_proposal(total.value, offered, ceiling) if hungry else None,
        offered=offered,
    )


def _want(total: _Sum, sizing: Sizing, days: Sequence[Day], before: int, start: int, found: tuple[Peak, str]) -> None:
    """Put the peak, times the multiplier, into the sum; or what holds the number where it was."""
    peak, rule = found
    factor = Fraction(str(sizing.multiplier))
    total.become(_nano(peak.rate), "peak", rule)
    total.become(round(total.value * factor), "multiplier", f"x {sizing.multiplier:g}")
    held = min(before, round(_nano(_peak(days, held=True)[0].rate) * factor))
    total.become(max(total.value, held), "held", "usage while limited holds the number and never raises it")
    if not any(day.reached.rate or day.held_reached.rate for day in days):
        total.become(min(before, start), "idle", "no traffic in the window: back to what it started with")


def _month_ago(steps: Sequence[Step], today: int, start: Quota) -> Step:
    """Return the highest rate and burst in force 30 or more days ago, or what a younger key started with."""
    old = [step for step in steps if today - step.day >= MONTH]
    if not old:
        return Step(today, _nano(start.rate.per_second), start.burst)
    return Step(today, max(step.rate for step in old), max(step.burst for step in old))


def _cap(total: _Sum, sizing: Sizing, before: int, month: Step) -> int:
    """Hold the sum within what a day and a month allow; return the least that it may be."""
    lowest = -(-before * Fraction(str(sizing.max_shrink_per_day)) // 1)
    per_day = int(before * Fraction(str(sizing.max_growth_per_day)))
    per_month = int(month.rate * Fraction(str(sizing.max_growth_per_month)))
    total.become(min(total.value, per_day), "growth per day", f"at most x {sizing.max_growth_per_day:g} a day")
    total.become(
        min(total.value, per_month), "growth per month", f"at most x {sizing.max_growth_per_month:g} in 30 days"
    )
    total.become(max(total.value, int(lowest)), "shrink per day", f"at most x {sizing.max_shrink_per_day:g} a day")
    return int(lowest)


def _rounded(value: int, lowest: int, highest: int) -> int:
    """Return `value` in four digits: downwards, or upwards if it stands at the least it may be, or as it is."""
    unit: int = 10 ** max(0, len(str(value)) - _DIGITS)
    down = value // unit * unit
    if down >= lowest or value < lowest:
        return down
    up = down + unit
    return up if up <= highest else value


def _burst(
    sizing: Sizing, backstop: Quota, second: float, before: Step, month: Step, usual: RequestUnits
) -> RequestUnits:
    """Return the burst: the best second times the multiplier, held in as the rate is, at least what is usual."""
    burst = min(
        max(second * sizing.multiplier, before.burst * sizing.max_shrink_per_day),
        before.burst * sizing.max_growth_per_day,
        month.burst * sizing.max_growth_per_month,
        backstop.burst * sizing.ceiling,
    )
    return float(f"{max(burst, usual):.4g}")


def _proposal(rate: int, offered: float, ceiling: int) -> Quota:
    """Return what an operator could grant a starved key: what it asks for, within the ceiling."""
    wanted = max(min(_nano(offered), ceiling), rate)
    unit: int = 10 ** max(0, len(str(wanted)) - 2)
    per_second = Fraction(-(-wanted // unit) * unit, NANO)
    return Quota(Rate(per_second), default_burst(per_second, 1.0))
