"""Stored series in the admin API: `?from=&to=` of fairness and of one tenant.

Rules
1. Instants are RFC 3339, `to` is now if left out and at most a day ahead of it; a span is at most 90 days and begins
   before it ends, else 400.
2. The span that the figures are true of stands in the answer: it is rounded outwards to what is kept.
3. Where the last crash lost something of the span, that is said.
4. Without a history that can be read: 503, never other figures.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime

from starlette.exceptions import HTTPException
from starlette.requests import Request

from gateway.admin.paging import page
from gateway.clock import Clock
from gateway.errors import GatewayError
from gateway.history.keeper import History
from gateway.history.series import DAYS, Counted, Point, Span
from gateway.telemetry.codebook import Codebook, Tally
from gateway.telemetry.figures import Figures, Report, figures, report
from gateway.telemetry.slots import Cells
from policies.request import Class
from policies.units import SECOND

__all__ = ["Stored"]

#: Clocks differ; whoever asks a little ahead is not refused.
_AHEAD = 86_400

Members = dict[str, object]


class Stored:
    """Answers from the history's file."""

    def __init__(self, history: History, clock: Clock) -> None:
        self._history = history
        self._clock = clock

    @staticmethod
    def asked(request: Request) -> bool:
        """Return whether a request asks for stored series."""
        return "from" in request.query_params or "to" in request.query_params

    def fairness(self, request: Request) -> tuple[Members, list[Figures]]:
        """Return the members of `/api/fairness` for a span, and the rows asked for."""
        start, end, now = self._span(request)
        try:
            span, counts = self._history.archive.series.tenants(start, end, now)
        except GatewayError as error:
            raise HTTPException(503, str(error)) from error
        made = _report(counts)
        rows, cursor = page(made.tenants, request.query_params)
        members: Members = {
            **self._bounds(span),
            "window": f"{10 * (span.last - span.first)}s",
            "aggregate": made.aggregate.as_members(),
            "worst": made.worst_members(),
            "contended": any(row.share_over or row.within_share_refused for row in made.tenants),
        }
        if cursor is not None:
            members["cursor"] = cursor
        return members, list(rows)

    def tenant(self, request: Request, tenant: str) -> Members | None:
        """Return one tenant's `history` for a span, None if nothing was counted."""
        start, end, now = self._span(request)
        try:
            span, step, found = self._history.archive.series.tenant(tenant, start, end, now)
        except GatewayError as error:
            raise HTTPException(503, str(error)) from error
        if not found:
            return None
        whole = [point for (kind, _), points in found.items() if kind == "tenant" for point in points]
        return {
            **self._bounds(span),
            "step_seconds": step,
            "total": _members(tenant, _sum(whole)),
            "points": [_point(tenant, point) for point in whole],
            "credentials": [
                {"credential": credential, "identity": kind, "total": _members(tenant, _sum(points)),
                 "points": [_point(tenant, point) for point in points]}
                for (kind, credential), points in sorted(found.items())
                if kind != "tenant"
            ],
        }  # fmt: skip

    def _bounds(self, span: Span) -> Members:
        lost = self._history.lost
        members: Members = {"from": _instant(span.first * 10), "to": _instant(span.last * 10)}
        if lost[0] < span.last * 10 and lost[1] > span.first * 10:
            members["incomplete"] = {"from": _instant(lost[0]), "to": _instant(lost[1])}
        return members

    def _span(self, request: Request) -> tuple[int, int, int]:
        now = self._clock.now() // SECOND
        query = request.query_params
        end = _read("to", query["to"]) if "to" in query else now
        start = _read("from", query["from"]) if "from" in query else end - 3600
        if end > now + _AHEAD:
            raise HTTPException(400, "to is at most a day ahead of now: nothing is counted before it happens.")
        if start >= end:
            raise HTTPException(400, "from is before to.")
        if now - start > (DAYS + 1) * 86_400:
            raise HTTPException(400, f"from is at most {DAYS} days ago: that is how long series are kept.")
        return start, end, now


def _read(name: str, text: str) -> int:
    try:
        # A plus sign in a query is a blank; an offset written without care still means what it says.
        instant = datetime.fromisoformat(text.strip().replace(" ", "+") if "T" in text else text)
        return int((instant if instant.tzinfo else instant.replace(tzinfo=UTC)).timestamp())
    except (ValueError, OverflowError):  # the latter where an offset leads out of the calendar
        raise HTTPException(400, f"{name} is an instant by RFC 3339, such as 2026-04-01T02:20:00Z.") from None


def _instant(seconds: int) -> str:
    return f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%dT%H:%M:%SZ}"


def _cells(counts: Counted, codebook: Codebook) -> Cells:
    cells: Cells = {}
    for (tally, limit), count in counts.items():
        code = codebook.code(Tally(tally), Class.INTERACTIVE, limit)
        cells[code] = cells.get(code, 0) + count
    return cells


def _report(counts: Mapping[str, Counted]) -> Report:
    codebook = Codebook()
    cells = [(tenant, _cells(found, codebook)) for tenant, found in counts.items()]
    return report("", cells, codebook)


def _sum(points: list[Point]) -> Counted:
    total: Counted = {}
    for point in points:
        for what, count in point.counts.items():
            total[what] = total.get(what, 0) + count
    return total


def _members(tenant: str, counts: Counted) -> Members:
    codebook = Codebook()
    row = figures(tenant, _cells(counts, codebook), codebook)
    return {name: value for name, value in row.as_row().items() if name != "tenant"} | {"shadow": row.shadow}


def _point(tenant: str, point: Point) -> Members:
    row = _members(tenant, point.counts)
    kept = ("offered", "served", "refused", "upstream_error", "aborted", "throttled_fraction", "shadow")
    return {"at": _instant(point.at), **{name: row[name] for name in kept}}
