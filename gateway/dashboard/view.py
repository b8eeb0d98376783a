"""What the page shows, as one JSON object: the fairness of a window, as much of the list as is looked at, and why.

Rules
1. `window`, `aggregate`, `worst`, `contended` and the rows of `tenants` are those of `/api/fairness`, and more is added
   to them; nothing is computed in a second way.
2. Worst first: tenants with a denominator worth ranking by their in-profile success, the others after them. So the
   first row is the worst tenant.
3. What costs something per tenant (sparklines, quota, share) is worked out for the rows that are shown.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime
from itertools import islice
from typing import Any, Protocol

from gateway.clock import Clock
from gateway.dashboard.band import Band
from gateway.dashboard.recent import Recent
from gateway.telemetry import Telemetry
from gateway.telemetry.columns import Table
from gateway.telemetry.figures import FLOOR, Figures, Report
from gateway.telemetry.order import in_pieces
from gateway.telemetry.recorder import SCOPES
from gateway.telemetry.windows import WINDOWS
from policies.kernels.share import SharesView, ShareView
from policies.policy import PolicySet, TenantRules
from policies.request import Kind, Principal
from policies.sizing import effective_key, effective_tenant
from policies.units import SECOND, Micros

__all__ = ["LIMIT", "SORTS", "Asked", "Shown", "View", "read_query"]

LIMIT = 200
_HEAVY = 5
_LOOKED_AT = 50
_SECONDS = {"1m": 60, "5m": 300, "15m": 900, "1h": 3600, "24h": 86_400}

#: Whether a row comes after all others, and its place among its like; smaller comes first.
_Key = tuple[bool, float, int]


def _ratio(served: int, of: int) -> _Key:
    return of < FLOOR, served / of if of else 0.0, -of


#: By the number of a tenant in the table.
SORTS: Mapping[str, Callable[[Table, int], _Key]] = {
    "worst": lambda table, number: _ratio(table.served[number], table.whole[number]),
    "success": lambda table, number: _ratio(table.served[number], table.offered[number]),
    "offered": lambda table, number: (False, 0.0, -table.offered[number]),
    "refused": lambda table, number: (False, 0.0, -table.refused[number]),
    "tenant": lambda _table, _number: (False, 0.0, 0),
}


class Asked:
    """Which part of the list, in which order, of which window."""

    __slots__ = ("limit", "offset", "scope", "search", "sort", "window")

    def __init__(self, window: str, sort: str, search: str, offset: int, limit: int, scope: str = SCOPES[0]) -> None:
        self.scope = scope
        self.window = window
        self.sort = sort
        self.search = search
        self.offset = offset
        self.limit = limit

    @property
    def key(self) -> tuple[str, str, str, int, int, str]:
        """Equal for equal questions."""
        return self.window, self.sort, self.search, self.offset, self.limit, self.scope


def read_query(query: Mapping[str, str]) -> Asked:
    """Read the parameters of the stream. Raises ValueError with one sentence."""
    window, sort = query.get("window", "5m"), query.get("sort", "worst")
    if window not in WINDOWS:
        raise ValueError(f"window is one of {', '.join(WINDOWS)}")
    if sort not in SORTS:
        raise ValueError(f"sort is one of {', '.join(SORTS)}")
    offset, limit = (_whole(query.get(name, default)) for name, default in (("offset", "0"), ("limit", "50")))
    scope = query.get("scope", SCOPES[0])
    if scope not in SCOPES:
        raise ValueError(f"scope is one of {', '.join(SCOPES)}")
    return Asked(window, sort, query.get("q", "")[:128], offset, min(limit, LIMIT), scope)


def _whole(text: str) -> int:
    if not (text.isascii() and text.isdecimal() and len(text) < 10):
        raise ValueError("offset and limit are whole numbers")
    return int(text)


class Shown(Protocol):
    """Whoever knows the shares: the kernel, or a parent that was told by its workers."""

    def view(self, now: Micros) -> SharesView:
        """Return the state of the backstop."""
        ...

    def share_of(self, tenant: str, now: Micros) -> ShareView | None:
        """Return a tenant's share, None if it is not known."""
        ...


class View:
    """Snapshots for the page. From any thread but the data plane's."""

    def __init__(
        self,
        telemetry: Telemetry,
        recent: Recent,
        band: Band,
        policies: Callable[[], PolicySet],
        shares: Shown | None,
        clock: Clock,
    ) -> None:
        self._telemetry = telemetry
        self._recent = recent
        self._band = band
        self._policies = policies
        self.shares = shares
        self._clock = clock
        self._began = clock.now()

    def snapshot(self, asked: Asked) -> dict[str, Any]:
        """Return the state at this moment."""
        now, window = self._clock.now(), asked.window
        tenants, scope = self._telemetry.figures(asked.scope)
        table = tenants.table(window, now)
        names, offered = table.names, table.offered
        known = [number for number, count in enumerate(offered) if count]
        found = known
        if asked.search:
            wanted = asked.search.casefold()
            found = [number for number in known if wanted in names[number].casefold()]
        key = SORTS[asked.sort]
        placed = [((*key(table, number), names[number]), names[number]) for number in found]
        shown = [name for _, name in islice(in_pieces(placed), asked.offset, asked.offset + asked.limit)]
        most = [names[number] for number in heapq.nlargest(_LOOKED_AT, known, key=offered.__getitem__)]
        worst = table.worst()
        rows = {row.tenant: row for row in tenants.rows(window, now, {*shown, *most, *filter(None, (worst,))})}
        report = Report(window, (), table.aggregate(), None if worst is None else rows[worst], None)
        seconds = self._seconds(window, now)
        heavy = self._heavy([rows[name] for name in most], seconds, now)
        contended = self._telemetry.gauges.backstop_contended
        return {
            "at": datetime.fromtimestamp(now / SECOND, UTC).isoformat(timespec="milliseconds"),
            "window": window,
            "scope": scope,
            "instances": len(self._telemetry.instances()),
            "seconds": round(seconds, 1),
            "aggregate": report.aggregate.as_members(),
            "worst": report.worst_members(),
            "contended": bool(contended and contended()),
            "backstop": self._backstop(now),
            "band": self._band.entries(),
            "count": len(known),
            "total": len(found),
            "offset": asked.offset,
            "heavy": [row | {"classes": self._classes(row["tenant"])} for row in self._rows(heavy, seconds, now)],
            "tenants": self._rows([rows[name] for name in shown], seconds, now),
        }

    def headlines(self, since: Micros) -> dict[str, Any]:
        """Return what the chart begins with: columns of time, aggregate and worst success."""
        kept = self._recent.headlines(since)
        return {
            "at": [one.at_us // 1000 for one in kept],
            "aggregate": [one.aggregate for one in kept],
            "worst": [one.worst for one in kept],
            "tenant": [one.tenant for one in kept],
        }

    def _heavy(self, most: list[Figures], seconds: float, now: Micros) -> list[Figures]:
        """Return who of `most` asks for more than its share: refused for it, or held back by its own limits."""
        return [row for row in most if row.share_over or row.offered / seconds > self._fair(row, most, now)][:_HEAVY]

    def _classes(self, tenant: str) -> list[str]:
        """Return the classes that a tenant was refused in lately: what there is to pause of it."""
        return sorted({one.cls for one in self._telemetry.last_refusals.of(tenant)})

    def _fair(self, row: Figures, among: list[Figures], now: Micros) -> float:
        """Return a tenant's share; where shares are not kept (one bucket for all), what an equal part would be."""
        if self.shares is not None:
            return self._share(row.tenant, now) or math.inf
        return float(self._policies().backstop.rate.per_second) / len(among)

    def _seconds(self, window: str, now: Micros) -> float:
        """Return how long the window has really counted."""
        return max(1.0, min(float(_SECONDS[window]), (now - self._began) / SECOND))

    def _rows(self, rows: Iterable[Figures], seconds: float, now: Micros) -> list[dict[str, Any]]:
        policies = self._policies()
        return [
            row.as_row()
            | {
                "rate": round(row.offered / seconds, 2),
                "share": self._share(row.tenant, now),
                "quota": quota_of(policies, row.tenant),
                "spark": self._recent.spark(row.tenant, now),
            }
            for row in rows
        ]

    def _share(self, tenant: str, now: Micros) -> float | None:
        share = None if self.shares is None else self.shares.share_of(tenant, now)
        return None if share is None else round(share.share, 2)

    def _backstop(self, now: Micros) -> dict[str, Any]:
        capacity = float(self._policies().backstop.rate.per_second)
        if self.shares is None:
            return {"capacity": capacity}
        view = self.shares.view(now)
        return {
            "capacity": capacity,
            "used": round(view.used_ratio, 4),
            "level": round(view.level, 2),
            "unlisted_level": round(view.unlisted_level, 2),
            "demand": round(view.demand, 1),
            "debt": round(view.debt, 1),
            "debt_bound": round(view.debt_bound, 1),
            "tenants": view.tenants,
        }


def quota_of(policies: PolicySet, tenant: str) -> dict[str, Any] | None:
    """Return what a tenant may spend, where that comes from, and over how many keys; None of what has no quota."""
    rules = policies.tenants.get(tenant)
    if rules is None:
        return None
    together = effective_tenant(policies, Principal(Kind.USER, tenant, ""))
    if together is not None:
        return _quota(float(together.quota.rate.per_second), {together.provenance}, {together.mode.value}, rules)
    keys = [effective_key(policies, Principal(Kind.USER, tenant, name)) for name in rules.credentials]
    if not keys:
        return None
    total = sum(float(key.quota.rate.per_second) for key in keys)
    return _quota(total, {key.provenance for key in keys}, {key.mode.value for key in keys}, rules)


def _quota(rate: float, provenance: set[str], modes: set[str], rules: TenantRules) -> dict[str, Any]:
    return {
        "rate": round(rate, 3),
        "provenance": ", ".join(sorted(provenance)),
        "mode": ", ".join(sorted(modes)),
        "keys": len(rules.credentials),
        "weight": rules.weight,
    }
