"""`evenhand top`: the dashboard in a terminal. Text in, text out; who writes it is somebody else.

Rules
1. The aggregate never without the worst beside it, and a part is never rounded up to the whole.
2. Whatever a caller chose is shown as text: what would move the cursor, change colours, hide or turn the direction of
   writing is spelled out. Cells count columns, not characters.
3. State is told by a sign and a word; colour only repeats them.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

__all__ = ["fitted", "plain", "screen", "visible"]

_UNSEEN = frozenset({"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"})
_INVISIBLE = frozenset("\u00a0\u115f\u1160\u17b4\u17b5\u3164\uffa0\u034f")
_SIGNS = {"good": "o", "fair": "^", "poor": "v", "none": "."}
_COLOURS = {"good": "32", "fair": "33", "poor": "31", "none": "2", "head": "1", "band": "7"}
_COLUMNS = (24, 10, 10, 10, 28, 20, 10)
_HEADS = ("tenant", "in profile", "success", "offered/s", "refused by", "quota", "share/s")


def visible(text: str) -> str:
    """Return `text` with everything that would not be seen as itself spelled out, as <U+202E>."""
    return "".join(
        f"<U+{ord(letter):04X}>" if unicodedata.category(letter) in _UNSEEN or letter in _INVISIBLE else letter
        for letter in text
    )


def fitted(text: str, width: int) -> str:
    """Return `text` in exactly `width` columns, cut with a mark if it needs more."""
    out, used = [], 0
    total = sum(map(_columns, text))
    room = width if total <= width else width - 1
    for letter in text:
        if used + _columns(letter) > room:
            break
        out.append(letter)
        used += _columns(letter)
    if total > width:
        out.append("~")
        used += 1
    return "".join(out) + " " * (width - used)


def _columns(letter: str) -> int:
    if unicodedata.combining(letter) or unicodedata.category(letter) in ("Mn", "Me"):
        return 0
    return 2 if unicodedata.east_asian_width(letter) in "WF" else 1


def screen(snapshot: Mapping[str, Any], columns: int, lines: int, *, colours: bool) -> list[str]:
    """Return what to show of one snapshot of `/api/stream`, in at most `lines` lines of `columns`."""
    rows = list(_rows(snapshot, colours=colours))
    room = max(1, lines - 1)
    found = [*_top(snapshot, colours=colours), *rows]
    if len(found) > room:
        found = [*found[: room - 1], f"... {int(snapshot['total']) - max(0, room - 1 - (len(found) - len(rows)))} more"]
    return [_cut(line, columns) for line in found]


def _top(snapshot: Mapping[str, Any], *, colours: bool) -> Iterator[str]:
    total, worst, back = snapshot["aggregate"], snapshot["worst"], snapshot["backstop"]
    name = "nobody" if worst is None else visible(worst["tenant"])
    low = None if worst is None else worst["in_profile_success"]
    yield _paint(
        f"{snapshot['at'][11:19]}  window {snapshot['window']}   aggregate {_percent(total['success'])}   "
        f"worst {_percent(low)} ({name})   within share refused {total['within_share_refused']}{_scope(snapshot)}",
        "head",
        colours=colours,
    )
    if "used" in back:
        state = "CONTENDED" if snapshot["contended"] else "not contended"
        used = f"{_percent(back['used'])} of {back['capacity']:g}/s"
        yield f"backstop {used}, {state}, level {back['level']:g}/s for each weight"
    for entry in snapshot["band"]:
        act = f" [{entry['act']}]" if entry.get("act") else ""
        yield _paint(f"! {entry['kind']}: {visible(entry['text'])}{act}", "band", colours=colours)
    for row in snapshot["heavy"]:
        share = "" if row["share"] is None else f", its share {row['share']:g}/s"
        yield f"over its share: {visible(row['tenant'])} asks {row['rate']:g}/s{share}"
    yield ""
    yield "  " + " ".join(fitted(head, width) for head, width in zip(_HEADS, _COLUMNS, strict=True))


def _scope(snapshot: Mapping[str, Any]) -> str:
    """Return whose figures these are, where there can be several instances."""
    match snapshot.get("scope"):
        case "fleet":
            count = snapshot["instances"]
            return f"   {count} instance{'' if count == 1 else 's'}"
        case "local" | "self":
            return "   THIS INSTANCE ALONE"
        case _:
            return ""


def _rows(snapshot: Mapping[str, Any], *, colours: bool) -> Iterator[str]:
    for row in snapshot["tenants"]:
        grade = _grade(row["in_profile_success"])
        by = sorted(row["refused"].items(), key=_count, reverse=True)
        quota = row["quota"]
        cells = (
            visible(row["tenant"]),
            _percent(row["in_profile_success"]),
            _percent(row["success"]),
            f"{row['rate']:g}",
            ", ".join(f"{visible(limit)} {count}" for limit, count in by) or "-",
            "-" if quota is None else f"{quota['rate']:g}/s {quota['provenance']}",
            "-" if row["share"] is None else f"{row['share']:g}",
        )
        line = " ".join(fitted(cell, width) for cell, width in zip(cells, _COLUMNS, strict=True))
        yield _paint(f"{_SIGNS[grade]} {line}", grade, colours=colours)


def _count(entry: tuple[str, int]) -> int:
    return entry[1]


def _grade(share: float | None) -> str:
    if share is None:
        return "none"
    return "good" if share >= 0.99 else "fair" if share >= 0.9 else "poor"


def _percent(share: float | None) -> str:
    return "-" if share is None else f"{int(share * 1000 + 1e-9) / 10:.1f} %"


def _paint(text: str, colour: str, *, colours: bool) -> str:
    return f"\x1b[{_COLOURS[colour]}m{text}\x1b[0m" if colours else text


def _cut(line: str, columns: int) -> str:
    """Cut a line to the terminal; what paints it takes no room."""
    if not line.startswith("\x1b["):
        return fitted(line, columns).rstrip()
    start = line.index("m") + 1
    return line[:start] + fitted(line[start:-4], columns).rstrip() + line[-4:]


def plain(rows: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """Yield a line for each act."""
    for row in rows:
        names = row.get("match") or {"posture": row.get("posture"), "route": row.get("route")}
        match = ", ".join(f"{name} {visible(str(value))}" for name, value in names.items() if value is not None)
        raised = (
            f" x {row['multiplier']:g}" if row.get("multiplier") else f" at {row['quota']}" if row.get("quota") else ""
        )
        why = ", ".join(visible(row[name]) for name in ("reason", "owner") if row.get(name))
        yield f"{row['id'] or 'gateway.toml'}  {match}{raised}  until {row['expires']}  {why}".rstrip()
