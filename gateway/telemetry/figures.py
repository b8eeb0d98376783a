"""The figures of a window: what each tenant got, and the aggregate beside the worst.

Rules (contract, section 7)
1. offered = served + refused + upstream_error + aborted. `rejected` is no part of it.
2. success = served / offered. in_profile_success = served / (offered - refused by own limits - refused beyond what its
   own limits would have let through - aborted before a verdict): what others did to it.
3. A ratio whose denominator is 0 is None, never 1.
4. The aggregate leaves out the tenant `rejected`, and so do the worst and the lowest. (Probes never come here: they are
   answered by another listener.)
5. The worst is the tenant with the lowest in_profile_success among those with at least 20 requests in its denominator;
   it is ranked by the point estimate, and the interval says how much to believe it. The lowest is the same of the raw
   success, among tenants with at least 20 offered.
"""

from __future__ import annotations

import math
from collections.abc import Container, Iterable, Sequence
from dataclasses import dataclass, field
from operator import add

from gateway.telemetry.codebook import Codebook, Tally
from gateway.telemetry.slots import Cells
from policies.request import REJECTED

__all__ = ["FLOOR", "Aggregate", "Figures", "Report", "aggregate", "figures", "interval", "ratio", "report"]

#: Requests below which a tenant is not ranked: one failure in three would otherwise be the worst of the day.
FLOOR = 20
#: Two-sided 95 %.
_Z = 1.959_963_984_540_054
#: Of sums by tally: what is offered, and what of it is no part of the in-profile denominator.
_OFFERED = slice(Tally.SERVED, Tally.REJECTED)
_EXCUSED = slice(Tally.ABORTED_EARLY, Tally.OVER)
_NOTHING = [0] * len(Tally)
_SERVED = int(Tally.SERVED)  # members of an enumeration are slow to look up


def ratio(part: int, whole: int) -> float | None:
    """Return part / whole, None for 0 / 0."""
    return part / whole if whole else None


def interval(successes: int, trials: int) -> tuple[float, float]:
    """Return the Wilson score interval of a proportion at 95 % (E. B. Wilson, JASA 22, 1927). `trials` is positive."""
    share = successes / trials
    z2 = _Z * _Z / trials
    centre = (share + z2 / 2) / (1 + z2)
    half = _Z * math.sqrt(share * (1 - share) / trials + z2 / trials / 4) / (1 + z2)
    return max(0.0, centre - half), min(1.0, centre + half)


@dataclass(slots=True)
class Figures:
    """One tenant in one window. `refused` is by limit, enforced refusals only; `shadow` the same of the others.

    `excused` counts what is left out of the in-profile denominator. `share_over` says that it was refused for being
    over its fair share.
    """

    tenant: str
    served: int = 0
    upstream_error: int = 0
    aborted: int = 0
    excused: int = 0
    within_share_refused: int = 0
    rejected: int = 0
    share_over: bool = False
    refused: dict[str, int] = field(default_factory=dict)
    shadow: dict[str, int] = field(default_factory=dict)

    @property
    def refusals(self) -> int:
        """Enforced refusals by all limits."""
        return sum(self.refused.values())

    @property
    def offered(self) -> int:
        """All requests but rejected ones."""
        return self.served + self.upstream_error + self.aborted + self.refusals

    @property
    def in_profile(self) -> int:
        """The denominator of in_profile_success."""
        return self.offered - self.excused

    @property
    def success(self) -> float | None:
        """Served over offered."""
        return ratio(self.served, self.offered)

    @property
    def in_profile_success(self) -> float | None:
        """Served over what its own limits let through."""
        return ratio(self.served, self.in_profile)

    @property
    def throttled_fraction(self) -> float | None:
        """Refused over offered."""
        return ratio(self.refusals, self.offered)

    def as_row(self) -> dict[str, object]:
        """Return the members of one entry of `/api/fairness`."""
        return {
            "tenant": self.tenant,
            "offered": self.offered,
            "served": self.served,
            "upstream_error": self.upstream_error,
            "aborted": self.aborted,
            "refused": self.refused,
            "success": self.success,
            "in_profile_success": self.in_profile_success,
            "throttled_fraction": self.throttled_fraction,
            "share_over": self.share_over,
            "within_share_refused": self.within_share_refused,
        }


def figures(tenant: str, cells: Cells, codebook: Codebook) -> Figures:
    """Add up the counts of one tenant."""
    if len(cells) == 1:
        # Nearly everybody's: served and nothing else.
        ((code, count),) = cells.items()
        if codebook.tallies[code] == Tally.SERVED:
            return Figures(tenant, served=count)
    sums = _sums(cells, codebook)
    refused: dict[str, int] = {}
    shadow: dict[str, int] = {}
    for code, count in cells.items():
        if limit := codebook.limits[code]:
            side = shadow if codebook.tallies[code] == Tally.SHADOW else refused
            side[limit] = side.get(limit, 0) + count
    return Figures(
        tenant,
        served=sums[Tally.SERVED],
        upstream_error=sums[Tally.UPSTREAM_ERROR],
        aborted=sums[Tally.ABORTED] + sums[Tally.ABORTED_EARLY],
        excused=sum(sums[_EXCUSED]),
        within_share_refused=sums[Tally.WITHIN],
        rejected=sums[Tally.REJECTED],
        share_over=bool(sums[Tally.OVER] or sums[Tally.BEYOND]),
        refused=refused,
        shadow=shadow,
    )


def _sums(cells: Cells, codebook: Codebook) -> list[int]:
    """Return the counts by tally."""
    tallies = codebook.tallies
    sums = _NOTHING.copy()
    for code, count in cells.items():
        sums[tallies[code]] += count
    return sums


@dataclass(slots=True)
class Aggregate:
    """All tenants together, `rejected` left out."""

    offered: int = 0
    served: int = 0
    refused: int = 0
    within_share_refused: int = 0
    upstream_error: int = 0
    aborted: int = 0
    success_by_tenant: float | None = None

    @property
    def success(self) -> float | None:
        """By request."""
        return ratio(self.served, self.offered)

    def as_members(self) -> dict[str, object]:
        """Return the members of `aggregate` in `/api/fairness`."""
        return {
            "offered": self.offered,
            "served": self.served,
            "refused": self.refused,
            "within_share_refused": self.within_share_refused,
            "upstream_error": self.upstream_error,
            "aborted": self.aborted,
            "success": self.success,
            "success_by_tenant": self.success_by_tenant,
        }


@dataclass(slots=True)
class Report:
    """One window over all tenants. `tenants` are those that were asked for, in no particular order."""

    window: str
    tenants: Sequence[Figures]
    aggregate: Aggregate
    worst: Figures | None
    lowest: Figures | None

    def worst_members(self) -> dict[str, object] | None:
        """Return the members of `worst` in `/api/fairness`."""
        if self.worst is None:
            return None
        return {
            "tenant": self.worst.tenant,
            "in_profile_success": self.worst.in_profile_success,
            "success": self.worst.success,
            "offered": self.worst.offered,
            "interval": list(interval(self.worst.served, self.worst.in_profile)),
            "share_over": self.worst.share_over,
        }


class _Lowest:
    """The tenant with the lowest ratio so far, among those with a denominator of at least FLOOR."""

    __slots__ = ("cells", "rank")

    def __init__(self) -> None:
        self.rank: tuple[float, int, str] = (2.0, 0, "")
        self.cells: Cells | None = None

    def consider(self, tenant: str, part: int, whole: int, cells: Cells) -> None:
        if whole < FLOOR or part / whole > self.rank[0]:
            return
        # Equal ratios: the one with more requests behind it, then the name, so that the answer does not flicker.
        rank = (part / whole, -whole, tenant)
        if rank < self.rank:
            self.rank, self.cells = rank, cells

    def figures(self, codebook: Codebook) -> Figures | None:
        return None if self.cells is None else figures(self.rank[2], self.cells, codebook)


def report(
    window: str, counts: Iterable[tuple[str, Cells]], codebook: Codebook, shown: Container[str] | None = None
) -> Report:
    """Put the tenants of a window beside each other.

    `shown` are the tenants wanted one by one, None all who had a request. What is not shown costs no memory.
    """
    rows: list[Figures] = []
    totals = _NOTHING
    worst, lowest = _Lowest(), _Lowest()
    successes = 0.0
    busy = 0
    for tenant, cells in counts:
        if shown is None or tenant in shown:
            rows.append(figures(tenant, cells, codebook))
        sums = _sums(cells, codebook)
        offered = sum(sums[_OFFERED])
        if not offered or tenant == REJECTED:
            continue
        served = sums[_SERVED]
        totals = list(map(add, totals, sums))
        busy += 1
        successes += served / offered
        worst.consider(tenant, served, offered - sum(sums[_EXCUSED]), cells)
        lowest.consider(tenant, served, offered, cells)
    rows = [row for row in rows if row.offered or row.rejected]
    total = aggregate(totals, successes / busy if busy else None)
    return Report(window, rows, total, worst.figures(codebook), lowest.figures(codebook))


def aggregate(totals: Sequence[int], success_by_tenant: float | None) -> Aggregate:
    """Return the sum of all tenants, given by tally."""
    return Aggregate(
        offered=sum(totals[_OFFERED]),
        served=totals[Tally.SERVED],
        refused=sum(totals[Tally.OWN : Tally.REJECTED]),
        within_share_refused=totals[Tally.WITHIN],
        upstream_error=totals[Tally.UPSTREAM_ERROR],
        aborted=totals[Tally.ABORTED] + totals[Tally.ABORTED_EARLY],
        success_by_tenant=success_by_tenant,
    )
