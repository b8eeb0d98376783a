"""Where a number came from: written as JSON for the file and the API, and as a paragraph for people."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from fractions import Fraction
from typing import Any

import orjson

from policies.policy import Mode, Quota, Sized, Term
from policies.sizing_past import NANO
from policies.units import Rate

__all__ = ["date_of", "members", "paragraph", "read", "write"]

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def date_of(day: int) -> str:
    """Return a day since the epoch as 2026-04-01."""
    return f"{_EPOCH + timedelta(days=day):%Y-%m-%d}"


def write(sized: Sized) -> str:
    """Return all of it as JSON, exact."""
    return orjson.dumps(
        {
            "quota": _quota(sized.quota),
            "next": _quota(sized.next_quota),
            "mode": sized.mode.value,
            "provenance": sized.provenance,
            "day": sized.day,
            "terms": [list(term) for term in sized.terms],
            "peak": [sized.peak, sized.peak_hour, sized.peak_rule],
            "grown": [sized.grown, sized.flagged],
            "starved": sized.starved,
            "proposal": None if sized.proposal is None else _quota(sized.proposal),
            "offered": sized.offered,
        }
    ).decode()


def read(text: str) -> Sized:
    """Return what `write` wrote."""
    held: dict[str, Any] = orjson.loads(text)
    return Sized(
        quota=_read_quota(held["quota"]),
        mode=Mode(held["mode"]),
        provenance=held["provenance"],
        day=held["day"],
        next_quota=_read_quota(held["next"]),
        terms=tuple(Term(*term) for term in held["terms"]),
        peak=held["peak"][0],
        peak_hour=held["peak"][1],
        peak_rule=held["peak"][2],
        grown=held["grown"][0],
        flagged=held["grown"][1],
        starved=held["starved"],
        proposal=None if held["proposal"] is None else _read_quota(held["proposal"]),
        offered=held["offered"],
    )


def _quota(quota: Quota) -> list[Any]:
    return [quota.rate.per_second.numerator, quota.rate.per_second.denominator, quota.burst]


def _read_quota(held: list[Any]) -> Quota:
    return Quota(Rate(Fraction(held[0], held[1])), held[2])


def members(sized: Sized) -> Mapping[str, object]:
    """Return what `/api/limits` shows of it; the terms add up to `next_per_second`."""
    return {
        "since": date_of(sized.day),
        "next_per_second": float(sized.next_quota.rate.per_second),
        "terms": [{"name": term.name, "per_second": term.delta / NANO, "detail": term.detail} for term in sized.terms],
        "peak": None if not sized.peak else {"per_second": sized.peak, "hour": _hour(sized), "rule": sized.peak_rule},
        "offered_per_second": sized.offered,
        "grown_in_30_days": sized.grown,
        "flagged": sized.flagged,
        "starved": sized.starved,
        "proposal": None if sized.proposal is None else spelt(sized.proposal),
        "explanation": paragraph(sized),
    }


def spelt(quota: Quota) -> str:
    """Return a quota as gateway.toml has it."""
    return f"{float(quota.rate.per_second):.10g}/s burst {quota.burst:g}"


def _hour(sized: Sized) -> str:
    return f"{_EPOCH + timedelta(hours=sized.peak_hour):%Y-%m-%dT%H:00Z}"


def paragraph(sized: Sized) -> str:
    """Return one readable paragraph."""
    said = [f"On {date_of(sized.day)} the past of this key came to {spelt(sized.next_quota)}."]
    if sized.peak:
        peak = f"Its peak was {sized.peak:.4g}/s, {sized.peak_rule}, in the hour of {_hour(sized)}."
        said.append(peak)
    else:
        said.append("No hour in the window counted as a peak.")
    if sized.provenance != "sized":
        word = "what its tenant had" if sized.provenance == "inherited" else "[sizing] initial"
        said.append(f"Until it has enough history it keeps {word}, {spelt(sized.quota)}, {_how(sized.mode)}.")
    if sized.flagged:
        said.append(f"That is {sized.grown:.3g} times what it was 30 days ago or began with.")
    if sized.starved and sized.proposal is not None:
        said.append(
            f"Its own limit held it back on at least three of the last seven days, while it asked for up to "
            f'{sized.offered:.4g}/s. To grant that, write quota = "{spelt(sized.proposal)}".'
        )
    return " ".join(said)


def _how(mode: Mode) -> str:
    return "enforced" if mode is Mode.ENFORCE else "counted and not enforced"
