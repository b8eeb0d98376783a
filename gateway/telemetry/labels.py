"""Which tenants have a `tenant` label of their own, and what each label has counted since it began.

Rules
1. At most `limit` tenants are labelled; everybody else counts under `other`. The number of series is therefore bounded
   whatever tenants appear.
2. Every count goes to exactly one label, and stays there. A tenant that is labelled later begins a new series from 0;
   what it did before stays in `other`; what it did under its label goes when the label goes. No series ever falls, but
   one that begins again.
3. Labels change only between slots, so two scrapes within a slot never move a count from one label to another. While
   there is room a tenant is labelled at first sight, before anything of it was shown.
4. Ranked by harm (requests that its own limits let through and that were not served), then by volume. A label is lost
   only to a tenant that ranks clearly higher, or dashboards would see series come and go.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator

from gateway.telemetry.breath import breathing
from gateway.telemetry.columns import Ranked
from gateway.telemetry.slots import OTHER, Cells, Slot

__all__ = ["Labels"]

#: How much higher a challenger must rank.
_INCUMBENT_BONUS = 1.25


class Labels:
    """Cumulative counts by label."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self._series: dict[str, Cells] = {OTHER: {}}

    def __contains__(self, tenant: object) -> bool:
        return tenant in self._series

    def __iter__(self) -> Iterator[str]:
        return iter(self._series)

    @property
    def full(self) -> bool:
        """True if a new tenant has to displace one."""
        return len(self._series) > self.limit

    def label(self, tenant: str) -> str:
        """Return the label that counts `tenant`, which is given one of its own while there is room."""
        if tenant in self._series:
            return tenant
        if self.full:
            return OTHER
        self._series[tenant] = {}
        return tenant

    def close(self, slot: Slot) -> None:
        """Add a closed slot."""
        for tenant, cells in breathing(iter(slot.tenants.items())):
            _add(self._series[self.label(tenant)], cells.copy())

    def totals(self, current: Slot) -> dict[str, Cells]:
        """Return what each label has counted, the slot being written included."""
        fresh: dict[str, Cells] = {}
        for tenant, cells in breathing(iter(current.tenants.copy().items())):
            _add(fresh.setdefault(self.label(tenant), {}), cells.copy())
        totals = {label: dict(cells) for label, cells in self._series.items()}
        for label, cells in fresh.items():
            _add(totals[label], cells)
        return totals

    def rank(self, tenants: Iterable[Ranked]) -> None:
        """Give the labels to those who need them most. To be called between slots only."""
        best = heapq.nlargest(self.limit, (row for row in tenants if row[0] != OTHER), key=self._rank)
        wanted = dict.fromkeys(row[0] for row in best)
        for tenant in [label for label in self._series if label != OTHER]:
            # A label that nobody else needs stays, however quiet its tenant is.
            if tenant not in wanted and len(wanted) < self.limit:
                wanted[tenant] = None
            elif tenant not in wanted:
                del self._series[tenant]
        for tenant in wanted:
            self._series.setdefault(tenant, {})

    def _rank(self, row: Ranked) -> tuple[float, float]:
        tenant, harm, volume = row
        bonus = _INCUMBENT_BONUS if tenant in self._series else 1.0
        return harm * bonus, volume * bonus


def _add(total: Cells, cells: Cells) -> None:
    for code, count in cells.items():
        total[code] = total.get(code, 0) + count
