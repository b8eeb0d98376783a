"""What a run came to: per tenant, in three counts of success, and against exact max-min.

Rules
1. Success is counted three ways and printed three ways: per call (the caller's view), per attempt (the gateway's), and
   as the mean over tenants. An aggregate never stands alone: the worst tenant is beside it.
2. In-profile success is what others did to a tenant: admitted over attempts less those its own limits refused or would
   have refused.
3. Fair is what sorting says (`maxmin`), sharing out what was handed out; the demand of callers that always have another
   call is what their own limits let through.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from math import inf

from loadtest.sim.maxmin import maxmin
from loadtest.sim.model import Loop, Mode, Scenario, TenantLoad
from loadtest.sim.world import SLOT_US, Account, World
from policies.request import Class
from policies.units import SECOND

__all__ = ["Figures", "Row", "figures"]

OWN = ("key", "tenant")
SLOTS = SECOND // SLOT_US


@dataclass(frozen=True, slots=True)
class Row:
    """One tenant. Rates are per second of the measured time; successes are None when nothing was asked."""

    tenant: str
    group: str
    weight: float
    calls: int
    served: int
    failed: int
    attempts: int
    admitted: float
    own_refused: int
    refused: dict[str, int]
    call_success: float | None
    in_profile: float | None
    demand: float
    fair: float
    by_class: tuple[float, ...]
    served_at_once: int
    first_return: int
    most_refused: int
    longest: float
    #: The longest Retry-After of callers that obey; refusals within the share.
    told: float
    within: int

    @property
    def against_fair(self) -> float:
        """Return admitted over fair; 1 when nothing was due."""
        return self.admitted / self.fair if self.fair > 0.0 else 1.0


@dataclass(frozen=True, slots=True)
class Figures:
    """A whole run. In slots of 0.1 s: `series` is admitted units per second by group, `attempts` everybody's number."""

    scenario: Scenario
    mode: Mode
    seed: int
    rows: list[Row]
    series: dict[str, list[float]]
    attempts: list[int]
    per_call: float
    per_attempt: float
    by_tenant: float
    worst: Row | None
    jain: float
    over_admission: float
    false_refusals: int
    utilisation: float
    debt: float
    debt_bound: float
    convergence: tuple[float, ...]

    def group(self, name: str) -> list[Row]:
        """Return the rows of one group."""
        return [row for row in self.rows if row.group == name]

    def lowest_call_success(self, group: str) -> float:
        """Return the call success of the worst tenant of a group."""
        return min((row.call_success for row in self.group(group) if row.call_success is not None), default=1.0)

    def call_success(self, group: str) -> float:
        """Return the call success of a group as one."""
        rows = self.group(group)
        ended = sum(row.served + row.failed for row in rows)
        return sum(row.served for row in rows) / ended if ended else 1.0

    def rate(self, group: str, cls: Class | None = None) -> float:
        """Return the units per second admitted of a group, or of one class of it."""
        rows = self.group(group)
        return sum(row.admitted if cls is None else row.by_class[cls] for row in rows) / self.seconds

    def least(self, group: str) -> float:
        """Return the units per second of the tenant of a group that was admitted least."""
        return min(row.admitted for row in self.group(group)) / self.seconds

    def off_fair(self, group: str) -> float:
        """Return by how much a tenant of a group misses exact max-min at most, as a part of it."""
        return max(abs(row.against_fair - 1.0) for row in self.group(group))

    def refused(self, limit: str, group: str | None = None) -> int:
        """Return how many attempts `limit` refused."""
        return sum(row.refused.get(limit, 0) for row in self.rows if group is None or row.group == group)

    def within(self, group: str) -> int:
        """Return how many refusals of a group are counted as within its share."""
        return sum(row.within for row in self.group(group))

    @property
    def seconds(self) -> float:
        """Return the measured time."""
        return self.scenario.seconds - self.scenario.measure_from


def _quota(load: TenantLoad) -> tuple[float, float]:
    """Return what a tenant's own limits let through, as rate and burst."""
    keys = (
        (load.quota.per_second * load.keys, (load.quota.burst or load.quota.per_second) * load.keys)
        if load.quota
        else (inf, inf)
    )
    if load.tenant_quota is None:
        return keys
    return min(keys, (load.tenant_quota.per_second, load.tenant_quota.burst or load.tenant_quota.per_second))


def _demand(load: TenantLoad, offered: float, seconds: float, mode: Mode) -> float:
    """Return what a tenant could have used in `seconds`, its own limits allowing."""
    rate, burst = (inf, inf) if mode is Mode.SHARED_BUCKET else _quota(load)
    if any(isinstance(callers, Loop) for callers in load.callers):
        return rate * seconds
    return min(offered, rate * seconds + burst)


def _fair(world: World, scenario: Scenario, mode: Mode, first: int, last: int) -> tuple[list[float], list[float]]:
    """Return what each tenant got and what it should have got, in units, in slots [first, last)."""
    got, wanted = [], []
    for load in scenario.tenants:
        account = world.account(load.id)
        got.append(sum(account.admitted_slots[first:last]))
        wanted.append(_demand(load, sum(account.offered_slots[first:last]), (last - first) / SLOTS, mode))
    unlisted = world.gate.policies.unlisted_weight
    weights = [load.weight if load.listed else unlisted for load in scenario.tenants]
    # A call that was begun before may be admitted now: nobody is due less than it got of what it wanted.
    wanted = [max(want, have) for want, have in zip(wanted, got, strict=True)]
    return got, maxmin(wanted, weights, sum(got))


def _row(load: TenantLoad, account: Account, demand: float, fair: float, seconds: float) -> Row:
    own = sum(account.refused[limit] for limit in OWN) + account.beyond
    in_profile = account.attempts - own
    ended = account.served + account.failed
    admitted = account.attempts - account.refused.total()
    return Row(
        tenant=load.id,
        group=load.group or load.id,
        weight=load.weight,
        calls=account.calls,
        served=account.served,
        failed=account.failed,
        attempts=account.attempts,
        admitted=account.admitted,
        own_refused=own,
        refused=dict(account.refused),
        call_success=account.served / ended if ended else None,
        in_profile=admitted / in_profile if in_profile > 0 else None,
        demand=demand / seconds,
        fair=fair,
        by_class=tuple(account.by_class),
        served_at_once=account.at_once,
        first_return=account.first_return,
        most_refused=account.most_refused,
        longest=account.longest_us / SECOND,
        told=account.longest_told_us / SECOND,
        within=account.within,
    )


def _excess(slots: list[float], per_second: float, burst: float) -> float:
    """Return by how much any interval exceeds burst + rate x time, to within one slot."""
    worst = run = 0.0
    for slot in slots:
        run = max(0.0, run + slot - per_second / SLOTS)
        worst = max(worst, run)
    return max(0.0, worst - burst - per_second / SLOTS)


def _convergence(world: World, scenario: Scenario, mode: Mode) -> tuple[float, ...]:
    """Return, for each change of demand, after how long every second to follow is within 5 % of max-min."""
    edges = [*scenario.changes, scenario.seconds]
    times = []
    for begin, end in pairwise(edges):
        settled = int(begin * SLOTS)
        for first in range(int(begin * SLOTS), int(end * SLOTS) - SLOTS):
            got, fair = _fair(world, scenario, mode, first, first + SLOTS)
            if sum(abs(a - b) for a, b in zip(got, fair, strict=True)) > 0.1 * max(1.0, sum(got)):
                settled = first + 1
        times.append(settled / SLOTS - begin)
    return tuple(times)


def figures(world: World, scenario: Scenario, mode: Mode, seed: int) -> Figures:
    """Work out everything that the report shows."""
    seconds = scenario.seconds - scenario.measure_from
    first, last = int(scenario.measure_from * SLOTS), int(scenario.seconds * SLOTS)
    _, fair = _fair(world, scenario, mode, first, last)
    rows = []
    for load, due in zip(scenario.tenants, fair, strict=True):
        account = world.account(load.id)
        demand = _demand(load, account.offered, seconds, mode)
        rows.append(_row(load, account, demand, due, seconds))
    series: dict[str, list[float]] = {}
    for load in scenario.tenants:
        slots = world.account(load.id).admitted_slots
        total = series.setdefault(load.group or load.id, [0.0] * last)
        series[load.group or load.id] = [a + b * SLOTS for a, b in zip(total, slots, strict=False)]
    ended = sum(row.served + row.failed for row in rows)
    attempts = sum(row.attempts for row in rows)
    judged = [row for row in rows if row.in_profile is not None and row.attempts - row.own_refused >= 20]
    ratios = [row.against_fair for row in rows if row.fair > 0.0]
    capacity, burst = scenario.backstop.per_second, scenario.backstop.burst or scenario.backstop.per_second
    handed = sum(row.admitted for row in rows)
    could = min(capacity * seconds, sum(row.demand for row in rows) * seconds)
    every = [
        sum(slots) for slots in zip(*(world.account(load.id).admitted_slots for load in scenario.tenants), strict=True)
    ]
    shares = world.gate.shares
    within = [row for row in rows if row.demand * seconds <= row.fair * 1.0001]
    successes = [row.call_success for row in rows if row.call_success is not None]
    return Figures(
        scenario=scenario,
        mode=mode,
        seed=seed,
        rows=rows,
        series=series,
        attempts=world.attempts,
        per_call=sum(row.served for row in rows) / ended if ended else 1.0,
        per_attempt=sum(row.attempts - sum(row.refused.values()) for row in rows) / attempts if attempts else 1.0,
        by_tenant=sum(successes) / len(successes) if successes else 1.0,
        worst=min(judged, key=lambda row: row.in_profile or 0.0) if judged else None,
        jain=sum(ratios) ** 2 / (len(ratios) * sum(r * r for r in ratios)) if any(ratios) else 1.0,
        over_admission=_excess(every, capacity, burst),
        false_refusals=sum(sum(r.refused.get(limit, 0) for limit in ("share", "class", "backstop")) for r in within),
        utilisation=handed / could if could else 1.0,
        debt=world.deepest_debt,
        debt_bound=shares.view(world.end_us).debt_bound if shares is not None else 0.0,
        convergence=_convergence(world, scenario, mode),
    )
