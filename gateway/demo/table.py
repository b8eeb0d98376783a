"""The live table: what each tenant got, and the aggregate never without the worst beside it.

Rules
1. Rendering is text in, text out; the terminal is somebody else's.
2. A part is never rounded up to the whole: 99.97 % is shown as 99.9 %, so that 100 % means all.
3. Whoever had no call yet has no ratio.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from gateway.demo.drive import Tally

__all__ = ["Gateway", "Row", "Summary", "line", "percent", "rows", "screen", "sentence", "summary"]

_FORMAT = "{:<10} {:>9} {:>10} {:>9}   {:>10}  {:<30} {:>11}"
_HEAD = _FORMAT.format("tenant", "calls/s", "through/s", "success", "attempts/s", "refused/s, by limit", "in profile *")
_WIDTH = len(_HEAD)


@dataclass(frozen=True, slots=True)
class Row:
    """One tenant over a period, on the caller's side. Rates are per second."""

    tenant: str
    calls: int
    through: int
    seconds: float
    attempts: int
    failed: int
    refused: Mapping[str, int]

    @property
    def success(self) -> float | None:
        """The part of its calls that got through."""
        return self.through / self.calls if self.calls else None


@dataclass(frozen=True, slots=True)
class Summary:
    """All tenants together: the part of all calls that got through, and whose part was the smallest."""

    aggregate: float | None
    worst: str
    worst_success: float | None


@dataclass(frozen=True, slots=True)
class Gateway:
    """The gateway's own account of its last minute: in-profile success by tenant, and its worst one."""

    in_profile: Mapping[str, float | None] = field(default_factory=dict)
    worst: str = ""
    worst_success: float | None = None
    aggregate: float | None = None
    within_share_refused: int = 0

    @classmethod
    def of(cls, document: Mapping[str, object]) -> Gateway:
        """Read the answer of `/api/fairness`."""
        tenants, worst, aggregate = (document.get(name) for name in ("tenants", "worst", "aggregate"))
        listed = [entry for entry in tenants if isinstance(entry, dict)] if isinstance(tenants, list) else []
        worst = worst if isinstance(worst, dict) else {}
        aggregate = aggregate if isinstance(aggregate, dict) else {}
        return cls(
            {entry["tenant"]: entry["in_profile_success"] for entry in listed},
            worst.get("tenant", ""),
            worst.get("in_profile_success"),
            aggregate.get("success"),
            aggregate.get("within_share_refused", 0),
        )


def rows(tallies: Mapping[str, Tally], seconds: float) -> tuple[Row, ...]:
    """Return a row per tenant for what was counted in `seconds`."""
    return tuple(
        Row(name, tally.calls, tally.through, seconds, tally.attempts, tally.failed, dict(tally.refused))
        for name, tally in tallies.items()
    )


def summary(table: Iterable[Row]) -> Summary:
    """Return the aggregate and the worst of `table`."""
    table = [row for row in table if row.calls]
    if not table:
        return Summary(None, "", None)
    worst = min(table, key=lambda row: row.through / row.calls)
    return Summary(sum(row.through for row in table) / sum(row.calls for row in table), worst.tenant, worst.success)


def percent(part: float | None) -> str:
    """Write a part of the whole, rounded down to a tenth of a per cent."""
    return "-" if part is None else f"{int(part * 1000 + 1e-9) / 10:.1f} %"


def _rate(count: int, seconds: float) -> str:
    each = count / seconds
    return f"{each:,.1f}" if each < 100 else f"{each:,.0f}"


def _refused(row: Row) -> str:
    parts = [f"{limit} {_rate(count, row.seconds)}" for limit, count in sorted(row.refused.items()) if count]
    if row.failed:
        parts.append(f"failed {_rate(row.failed, row.seconds)}")
    return ", ".join(parts) or "-"


def screen(title: str, table: Sequence[Row], gateway: Gateway) -> list[str]:
    """Return the whole table as lines."""
    total = summary(table)
    return [
        title,
        "",
        _HEAD,
        "-" * _WIDTH,
        *(_cells(row, gateway) for row in table),
        "-" * _WIDTH,
        _totals("of all calls", total.aggregate, total.worst, total.worst_success),
        _totals("of all attempts *", gateway.aggregate, gateway.worst, gateway.worst_success),
        "* what the gateway itself reports of its last minute, in /api/fairness",
    ]


def _cells(row: Row, gateway: Gateway) -> str:
    return _FORMAT.format(
        row.tenant,
        _rate(row.calls, row.seconds),
        _rate(row.through, row.seconds),
        percent(row.success),
        _rate(row.attempts, row.seconds),
        _refused(row),
        percent(gateway.in_profile.get(row.tenant)),
    ).rstrip()


def _totals(what: str, aggregate: float | None, worst: str, success: float | None) -> str:
    named = f"worst {percent(success)} ({worst})" if worst else "worst -"
    return f"{what:<18} aggregate {percent(aggregate):<9} {named}"


def line(second: int, phase: str, table: Sequence[Row], gateway: Gateway) -> str:
    """Return one line for a second, for where there is no terminal."""
    total = summary(table)
    seconds = table[0].seconds
    offered = _rate(sum(row.calls for row in table), seconds)
    through = _rate(sum(row.through for row in table), seconds)
    refused = _rate(sum(sum(row.refused.values()) for row in table), seconds)
    own = f"gateway's own worst {percent(gateway.worst_success)}"
    return (
        f"{second:>4} s  {phase:<8}  calls {offered}/s  through {through}/s  refused {refused}/s  "
        f"aggregate {percent(total.aggregate)}  worst {percent(total.worst_success)} ({total.worst or '-'})  {own}"
    )


def sentence(who: str, table: Sequence[Row], backfill: str) -> str:
    """Return the outcome in one sentence."""
    total = summary(table)
    light = summary(row for row in table if row.tenant != backfill)
    if total.aggregate is None:
        return f"{who}: nobody called."
    asked = [row for row in table if row.tenant == backfill and row.attempts]
    attempts = asked[0].through / asked[0].attempts if asked else None
    return (
        f"{who}: of all calls {percent(total.aggregate)} got through, and of those of the worst tenant "
        f"({total.worst}) {percent(total.worst_success)}; the light tenants together: {percent(light.aggregate)}; "
        f"of the attempts of the {backfill}: {percent(attempts)}."
    )
