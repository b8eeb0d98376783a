"""The figures of a window: what each tenant got, and the aggregate beside the worst.

Rules (contract, section 7)
1. offered = served + refused + upstream_error + aborted. `rejected` is no part of it.
2. success = served / offered. in_profile_success = served / (offered - refused by own limits - refused beyond what its
   own limits would have let through - aborted before a verdict): what others did to it.
3. A ratio whose denominator is 0 is None, never 1.
4. The aggregate leaves out the tenant `rejected`, and so do the worst and the lowest.
5. The worst is the tenant with the lowest in_profile_success among those with at least 20 requests in its denominator;
   it is ranked by the point estimate, and the interval says how much to believe it. The lowest is the same of the raw
   success, among tenants with at least 20 offered.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from gateway.telemetry.codebook import Codebook, Tally
from gateway.telemetry.slots import Cells
from policies.request import REJECTED

__all__ = ["FLOOR", "Aggregate", "Figures", "Report", "figures", "interval", "ratio", "report"]

#: Requests below which a tenant is not ranked: one failure in three would otherwise be the worst of the day.
FLOOR = 20
#: Two-sided 95 %.
_Z = 1.959_963_984_540_054


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
    tallies, limits = codebook.tallies, codebook.limits
    sums = [0] * len(Tally)
    refused: dict[str, int] = {}
    shadow: dict[str, int] = {}
    for code, count in cells.items():
        tally = tallies[code]
        sums[tally] += count
        if limit := limits[code]:
            side = shadow if tally == Tally.SHADOW else refused
            side[limit] = side.get(limit, 0) + count
    return Figures(
        tenant,
        served=sums[Tally.SERVED],
        upstream_error=sums[Tally.UPSTREAM_ERROR],
        aborted=sums[Tally.ABORTED] + sums[Tally.ABORTED_EARLY],
        excused=sums[Tally.OWN] + sums[Tally.BEYOND] + sums[Tally.ABORTED_EARLY],
        within_share_refused=sums[Tally.WITHIN],
        rejected=sums[Tally.REJECTED],
        share_over=bool(sums[Tally.OVER] or sums[Tally.BEYOND]),
        refused=refused,
        shadow=shadow,
    )


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
    """One window over all tenants, in no particular order."""

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
        }


def report(window: str, tenants: Iterable[Figures]) -> Report:
    """Put the tenants of a window beside each other; those without a single request are left out."""
    rows: list[Figures] = []
    total = Aggregate()
    worst = lowest = None
    worst_rank = lowest_rank = (2.0, 0, "")
    successes = 0.0
    busy = 0
    for row in tenants:
        offered = row.offered
        if not offered and not row.rejected:
            continue
        rows.append(row)
        if not offered or row.tenant == REJECTED:
            continue
        _add(total, row, offered)
        busy += 1
        successes += row.served / offered
        in_profile = offered - row.excused
        # Equal ratios: the one with more requests behind it, then the name, so that the answer does not flicker.
        if in_profile >= FLOOR and (rank := (row.served / in_profile, -in_profile, row.tenant)) < worst_rank:
            worst, worst_rank = row, rank
        if offered >= FLOOR and (rank := (row.served / offered, -offered, row.tenant)) < lowest_rank:
            lowest, lowest_rank = row, rank
    total.success_by_tenant = successes / busy if busy else None
    return Report(window, rows, total, worst, lowest)


def _add(total: Aggregate, row: Figures, offered: int) -> None:
    total.offered += offered
    total.served += row.served
    total.refused += offered - row.served - row.upstream_error - row.aborted
    total.within_share_refused += row.within_share_refused
    total.upstream_error += row.upstream_error
    total.aborted += row.aborted
