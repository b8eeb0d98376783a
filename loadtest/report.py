"""What a run came to, as a table that reads without explanation."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from statistics import median

from loadtest.sim.figures import Figures, Row
from loadtest.sim.model import Check

__all__ = ["holds", "table", "text"]

#: Groups of at most this many tenants are shown tenant by tenant.
FEW = 4


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return rows as columns: the first to the left, numbers to the right."""
    lines = [list(head), *(list(row) for row in rows)]
    widths = [max(len(line[column]) for line in lines) for column in range(len(head))]
    return "\n".join(
        "  ".join(
            cell.ljust(width) if column == 0 else cell.rjust(width)
            for column, (cell, width) in enumerate(zip(line, widths, strict=True))
        ).rstrip()
        for line in lines
    )


def _part(value: float | None) -> str:
    return "-" if value is None else f"{100 * value:.2f} %"


def _spread(rows: Sequence[Row], of: Callable[[Row], float | None]) -> str:
    """Return the worst and the middle of a group, or the one value there is."""
    values = [value for value in map(of, rows) if value is not None]
    if not values:
        return "-"
    return _part(values[0]) if len(values) == 1 else f"{_part(min(values))} / {_part(median(values))}"


def _line(name: str, rows: Sequence[Row], seconds: float) -> list[str]:
    refused: dict[str, int] = {}
    for row in rows:
        for limit, count in row.refused.items():
            refused[limit] = refused.get(limit, 0) + count
    return [
        name,
        f"{sum(row.calls for row in rows) / seconds:,.1f}",
        f"{sum(row.attempts for row in rows) / seconds:,.1f}",
        f"{sum(row.admitted for row in rows) / seconds:,.1f}",
        f"{sum(row.fair for row in rows) / seconds:,.1f}",
        _spread(rows, lambda row: row.call_success),
        _spread(rows, lambda row: row.in_profile),
        " ".join(f"{limit} {count:,}" for limit, count in sorted(refused.items())) or "none",
    ]


def _tenants(figures: Figures, *, every: bool) -> str:
    head = ("tenant", "calls/s", "attempts/s", "admitted/s", "max-min/s", "call success", "in profile", "refused by")
    lines = []
    for group in dict.fromkeys(row.group for row in figures.rows):
        rows = figures.group(group)
        if every or len(rows) <= FEW:
            lines += [_line(row.tenant, [row], figures.seconds) for row in rows]
        else:
            lines.append(_line(f"{group} ({len(rows)})", rows, figures.seconds))
    return table(head, lines)


def holds(figures: Figures) -> list[tuple[Check, float, bool]]:
    """Return each line that this mode must hold, what was measured, and whether it held."""
    measured = [(check, check.measure(figures)) for check in figures.scenario.checks if check.mode is figures.mode]
    return [(check, value, check.least <= value <= check.most) for check, value in measured]


def _bounds(check: Check) -> str:
    if check.least == check.most:
        return f"is {check.least:g}"
    least = "" if check.least == float("-inf") else f"at least {check.least:g}"
    most = "" if check.most == float("inf") else f"at most {check.most:g}"
    return ", ".join(part for part in (least, most) if part)


def text(figures: Figures, *, every: bool = False) -> str:
    """Return the report of a run; `every` shows all tenants instead of groups (worst / middle)."""
    scenario, worst = figures.scenario, figures.worst
    success = f"per call {_part(figures.per_call)}, per attempt {_part(figures.per_attempt)}"
    debt = f"deepest debt {figures.debt:,.0f} of {figures.debt_bound:,.0f}"
    fair = f"Jain index of admitted over max-min {figures.jain:.4f}"
    used = f"utilisation {_part(figures.utilisation)}, over-admission {figures.over_admission:,.1f} units"
    lines = [
        f"{scenario.name} ({figures.mode}, seed {figures.seed}): {scenario.about}",
        "",
        _tenants(figures, every=every),
        "",
        f"success        {success}, mean over tenants {_part(figures.by_tenant)}",
        f"worst tenant   {worst.tenant}: {_part(worst.in_profile)} in profile" if worst else "worst tenant   none",
        f"fairness       {fair}; refused though within the share {figures.false_refusals:,}",
        f"service        {used}, {debt}",
    ]
    if figures.convergence:
        after = ", ".join(f"{seconds:.1f} s" for seconds in figures.convergence)
        lines.append(f"convergence    within 5 % of max-min {after} after demand changed")
    for check, value, held in holds(figures):
        lines.append(f"{'holds ' if held else 'FAILS '} {check.says}: {value:,.4g}{check.unit} ({_bounds(check)})")
    return "\n".join(lines)
