"""What does not hold as usual: the band that cannot be missed.

An entry has a `kind` (`off`, `shadow`, `exempt`, `paused`, `posture`, `degraded`, `warning`), a sentence, and, of an
act, its `act` id, so that the page can offer to end it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from typing import Any

from gateway.clock import Clock
from policies.policy import Exemption, Match, Pause, PolicySet, PostureAct
from policies.units import SECOND, Micros

__all__ = ["Band"]

_MOST = 30

Ready = Callable[[], dict[str, Any]]
#: The ids of acts in force by the names of what they made.
ActIds = Callable[[], dict[str, str]]


class Band:
    """Collects entries from health and from the policies in force, the gravest first."""

    def __init__(self, ready: Ready, policies: Callable[[], PolicySet], acts: ActIds, clock: Clock) -> None:
        self._ready = ready
        self._policies = policies
        self._acts = acts
        self._clock = clock

    def entries(self) -> list[dict[str, Any]]:
        """Return at most so many entries as people read."""
        found = list(self._entries())
        if len(found) > _MOST:
            more = {"kind": "warning", "text": f"and {len(found) - _MOST} more: see /readyz"}
            found = [*found[:_MOST], more]
        return found

    def _entries(self) -> Iterator[dict[str, Any]]:
        ready, policies, now = self._ready(), self._policies(), self._clock.wall()
        acts = self._acts()
        yield from _degraded(ready)
        for act in policies.posture_acts:
            if act.expires_us > now:
                yield _posture(act, acts)
        for pause in policies.pauses:
            if pause.expires_us > now:
                yield _act("paused", pause, acts, "")
        for name in ready.get("shadow", ()):
            yield {"kind": "shadow", "text": name}
        for name in ready.get("off", ()):
            yield {"kind": "off", "text": f"policy {name}"}
        for exemption in policies.exemptions:
            if exemption.expires_us > now:
                yield _act("exempt", exemption, acts, _raised(exemption))
        for warning in ready.get("warnings", ()):
            said_as_off = warning.startswith("policy ") and warning.endswith("limits nobody")
            if not said_as_off and warning not in ready.get("degraded", ()):
                yield {"kind": "warning", "text": warning}


def _degraded(ready: dict[str, Any]) -> Iterator[dict[str, Any]]:
    failing = [check for check in ready["checks"] if not check["ok"]]
    yield from ({"kind": "degraded", "text": f"{check['name']}: {check['detail']}"} for check in failing)
    told = {check["detail"] for check in failing}
    yield from ({"kind": "degraded", "text": text} for text in ready.get("degraded", ()) if text not in told)


def _act(kind: str, made: Pause | Exemption, acts: dict[str, str], what: str) -> dict[str, Any]:
    why = ", ".join(filter(None, (made.reason, made.owner)))
    text = f"{covered(made.match)}{what} until {_clock(made.expires_us)}" + (f" ({why})" if why else "")
    return {"kind": kind, "text": text, "act": acts.get(made.name)}


def _posture(act: PostureAct, acts: dict[str, str]) -> dict[str, Any]:
    why = ", ".join(filter(None, (act.reason, act.owner)))
    where = "" if act.route is None else f" on route {act.route}"
    text = f"without a store {act.posture} decides{where} until {_clock(act.expires_us)}" + (f" ({why})" if why else "")
    return {"kind": "posture", "text": text, "act": acts.get(act.name)}


def covered(match: Match) -> str:
    """Say what a match covers."""
    parts = (
        ("tenant", match.tenant),
        ("credential", match.credential),
        ("class", None if match.cls is None else match.cls.label),
        ("route", match.route),
        ("method", match.method),
        ("identity", None if match.identity is None else match.identity.value),
    )
    return ", ".join(f"{name} {value}" for name, value in parts if value is not None)


def _raised(exemption: Exemption) -> str:
    if exemption.quota is not None:
        return f" at {exemption.quota.rate}"
    return f" at {exemption.multiplier:g} times its quota"


def _clock(instant: Micros) -> str:
    return datetime.fromtimestamp(instant / SECOND, UTC).strftime("%Y-%m-%d %H:%M UTC")
