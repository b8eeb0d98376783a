"""The figures of a window, from the raw list of requests: the contract's sentences, none of the code they check."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence

from policies.units import SECOND, Micros
from tests.gateway.telemetry.made import Event

__all__ = ["fairness"]

#: Length of a window in its slots, and of its slots in seconds.
WINDOWS = {"1m": (6, 10), "5m": (30, 10), "15m": (90, 10), "1h": (360, 10), "24h": (288, 300)}
OWN = {"key", "tenant", "concurrency", "paused", "login"}


def fairness(events: Sequence[Event], window: str, now: Micros) -> dict[str, object]:
    """Return `/api/fairness` without `contended`; rows by tenant."""
    slots, seconds = WINDOWS[window]
    last = now // (seconds * SECOND)
    inside = [event for event in events if last - slots < event.now // (seconds * SECOND) <= last]
    by_tenant: dict[str, list[Event]] = {}
    for event in inside:
        tenant = event.tenant
        if event.outcome == "rejected" and (event.status in (400, 401) or event.kind not in ("user", "job")):
            tenant = "rejected"
        by_tenant.setdefault(tenant, []).append(event)
    rows = {tenant: _row(tenant, mine) for tenant, mine in by_tenant.items()}
    counted = [row for tenant, row in rows.items() if tenant != "rejected" and row["offered"]]
    return {
        "window": window,
        "aggregate": _aggregate(counted),
        "worst": _worst(counted, {tenant: _in_profile(mine) for tenant, mine in by_tenant.items()}),
        "tenants": [rows[tenant] for tenant in sorted(rows)],
    }


def _offered(events: Sequence[Event]) -> list[Event]:
    return [event for event in events if event.outcome != "rejected"]


def _in_profile(events: Sequence[Event]) -> list[Event]:
    def excused(event: Event) -> bool:
        own = event.outcome == "refused" and event.limit in OWN
        beyond = event.outcome == "refused" and _beyond(event)
        early = event.outcome == "aborted" and not event.judged
        return own or beyond or early

    return [event for event in _offered(events) if not excused(event)]


def _beyond(event: Event) -> bool:
    """Return whether its own limits would have refused it too; of seats of an upstream nobody can say so."""
    return event.beyond and event.limit != "connections"


def _row(tenant: str, events: Sequence[Event]) -> dict[str, object]:
    offered = _offered(events)
    outcomes = Counter(event.outcome.value for event in offered)
    refused = [event for event in offered if event.outcome == "refused"]
    own = [event for event in refused if event.limit in OWN]
    shared = [event for event in refused if event not in own]
    return {
        "tenant": tenant,
        "offered": len(offered),
        "served": outcomes["served"],
        "upstream_error": outcomes["upstream_error"],
        "aborted": outcomes["aborted"],
        "refused": dict(Counter(event.limit for event in refused)),
        "success": _ratio(outcomes["served"], len(offered)),
        "in_profile_success": _ratio(outcomes["served"], len(_in_profile(events))),
        "throttled_fraction": _ratio(len(refused), len(offered)),
        "share_over": any(event.over or _beyond(event) or event.limit == "share" for event in shared),
        "within_share_refused": sum(
            event.limit in {"backstop", "connections"} and not event.over and not _beyond(event) for event in shared
        ),
    }


def _aggregate(rows: Sequence[dict[str, object]]) -> dict[str, object]:
    def total(name: str) -> int:
        return sum(int(str(row[name])) for row in rows)

    successes = [float(str(row["success"])) for row in rows]
    return {
        "offered": total("offered"),
        "served": total("served"),
        "refused": total("offered") - total("served") - total("upstream_error") - total("aborted"),
        "within_share_refused": total("within_share_refused"),
        "upstream_error": total("upstream_error"),
        "aborted": total("aborted"),
        "success": _ratio(total("served"), total("offered")),
        "success_by_tenant": math.fsum(successes) / len(successes) if successes else None,
    }


def _worst(rows: Sequence[dict[str, object]], in_profile: dict[str, list[Event]]) -> dict[str, object] | None:
    ranked = [
        (row["in_profile_success"], -len(in_profile[str(row["tenant"])]), row["tenant"], row)
        for row in rows
        if len(in_profile[str(row["tenant"])]) >= 20
    ]
    if not ranked:
        return None
    success, denominator, tenant, row = min(ranked, key=lambda entry: entry[:3])
    return {
        "tenant": tenant,
        "in_profile_success": success,
        "success": row["success"],
        "offered": row["offered"],
        "interval": _interval(float(str(success)), -denominator),
        "share_over": row["share_over"],
    }


def _interval(share: float, trials: int) -> list[float]:
    """Return the two proportions from which `share` is 1.96 standard errors away, found by bisection."""

    def distance(proportion: float) -> float:
        error = math.sqrt(proportion * (1 - proportion) / trials)
        return abs(share - proportion) - 1.959963984540054 * error

    def edge(inner: float, outer: float) -> float:
        if distance(outer) <= 0:
            return outer
        for _ in range(100):
            middle = (inner + outer) / 2
            inner, outer = (middle, outer) if distance(middle) <= 0 else (inner, middle)
        return inner

    return [edge(share, 0.0), edge(share, 1.0)]


def _ratio(part: int, whole: int) -> float | None:
    return part / whole if whole else None
