"""`sort`, `limit` and `cursor` of lists.

Rules
1. Rows come worst first unless `sort` says otherwise; equal ones by tenant. A ratio that does not exist comes last,
   whichever way the order goes.
2. A cursor holds where a page ended, not how many rows it had, so rows that come and go between two pages cost at most
   themselves.
3. What cannot be obeyed is 400, in a sentence.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import islice

import orjson
from starlette.exceptions import HTTPException

from gateway.telemetry.figures import Figures
from gateway.telemetry.order import in_pieces

__all__ = ["SORTS", "page"]

_DEFAULT = "in_profile_success"

#: What rows can be sorted by; a leading `-` turns the order round.
SORTS: Mapping[str, Callable[[Figures], float | None]] = {
    "offered": lambda row: row.offered,
    "served": lambda row: row.served,
    "refused": lambda row: row.refusals,
    "upstream_error": lambda row: row.upstream_error,
    "aborted": lambda row: row.aborted,
    "success": lambda row: row.success,
    _DEFAULT: lambda row: row.in_profile_success,
    "throttled_fraction": lambda row: row.throttled_fraction,
    "within_share_refused": lambda row: row.within_share_refused,
    "share_over": lambda row: row.share_over,
    "tenant": lambda _: 0,
}

#: (whether the figure is missing, the figure as it is sorted, the tenant)
_Place = tuple[bool, float, str]


def page(rows: Iterable[Figures], query: Mapping[str, str]) -> tuple[Sequence[Figures], str | None]:
    """Return the rows that `query` asks for, in order, and the cursor of the next page if there is one.

    Without `limit` that is all of them. Raises HTTPException (400).
    """
    sort = query.get("sort", _DEFAULT)
    name = sort.removeprefix("-")
    if name not in SORTS:
        raise HTTPException(400, f"sort is one of {', '.join(SORTS)}, with - before it for the other way round.")
    placed = [(_place(SORTS[name](row), row.tenant, down=sort != name), row) for row in rows]
    backwards = sort == "-tenant"  # the one figure that has no negative
    if "cursor" in query:
        after = _read(query["cursor"], sort)
        placed = [entry for entry in placed if (entry[0] < after if backwards else entry[0] > after)]
    found = list(islice(in_pieces(placed, backwards=backwards), _limit(query, len(placed))))
    return [row for _, row in found], _cursor(found[-1][0], sort) if len(found) < len(placed) else None


def _place(value: float | None, tenant: str, *, down: bool) -> _Place:
    if value is None:
        return True, 0.0, tenant
    return False, -value if down else value, tenant


def _limit(query: Mapping[str, str], available: int) -> int:
    text = query.get("limit", "")
    if not text:
        return available
    limit = int(text[:9]) if text.isascii() and text.isdecimal() else 0
    if not limit:
        raise HTTPException(400, "limit is a whole number above 0.")
    return limit


def _cursor(place: _Place, sort: str) -> str:
    return base64.urlsafe_b64encode(orjson.dumps([sort, *place])).decode("ascii").rstrip("=")


def _read(cursor: str, sort: str) -> _Place:
    """Return the place that a cursor of ours names."""
    try:
        match orjson.loads(base64.urlsafe_b64decode(cursor + "=" * (-len(cursor) % 4))):
            case [made_for, bool() as missing, (int() | float()) as value, str() as tenant] if made_for == sort:
                return missing, value, tenant
    except (ValueError, binascii.Error):
        pass
    raise HTTPException(400, "cursor is what the page before returned, for the same sort.")
