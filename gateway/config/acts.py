"""What an operator asks of a running gateway: pauses and exemptions, in JSON, checked like the entries of gateway.toml.

Rules
1. The members are those of the TOML: `match`, `reason`, `owner`, `expires`, and for an exemption `multiplier` or
   `quota`, and `policies`. An act on the posture has `posture`, and perhaps a `route`, instead of `match`. `for` (a
   duration from now) stands for `expires`; the instant is RFC 3339.
2. An act ends: `expires` is needed, at most `LONGEST` away.
3. Everything wrong is told at once, as ConfigError.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from typing import Any, Literal

from pydantic import ValidationError

from gateway.config.build import act_exemption, act_pause
from gateway.config.entries import ExemptionEntry, MatchTable
from gateway.config.faults import findings
from gateway.config.kinds import Id, Instant, Note, Posture
from gateway.config.places import dotted
from gateway.config.table import Table, option, required
from gateway.config.values import parse_wait, shown
from gateway.errors import ConfigError, Fault
from policies.policy import Exemption, Pause, PolicySet, PostureAct
from policies.units import SECOND, Micros

__all__ = ["LONGEST", "ActKind", "PauseEntry", "PostureEntry", "build_act", "read_act"]

LONGEST: Micros = 90 * 86_400 * SECOND

ActKind = Literal["pause", "exemption", "posture"]
Members = Mapping[str, Any]


class PauseEntry(Table):
    """Nothing that it covers is admitted for a while."""

    name: Id = required("Its name in figures")
    match: MatchTable = required("Which requests it covers; names a tenant, a credential, a class or a route")
    reason: Note = option("", doc="Why, in words")
    owner: Note = option("", doc="Who answers for it")
    expires: Instant = required("When it ends")

    def contradictions(self) -> Iterator[tuple[str, str]]:
        """Pause something in particular, never everybody."""
        match = self.match
        if match.tenant is None and match.credential is None and match.cls is None and match.route is None:
            yield "match", "expected a tenant, a credential, a class or a route, found none"


class PostureEntry(Table):
    """What is answered without a store for a while."""

    name: Id = required("Its name in figures")
    posture: Posture = required("open, closed, safe-capacity, or deny:N per cent")
    route: Id | None = option(None, doc="Only on this route; without it, wherever the route has no posture of its own")
    reason: Note = option("", doc="Why, in words")
    owner: Note = option("", doc="Who answers for it")
    expires: Instant = required("When it ends")


_ENTRIES: Mapping[ActKind, type[PauseEntry | ExemptionEntry | PostureEntry]] = {
    "pause": PauseEntry, "exemption": ExemptionEntry, "posture": PostureEntry,
}  # fmt: skip


def read_act(kind: ActKind, members: object, name: str, policies: PolicySet, wall: Micros) -> tuple[Members, Micros]:
    """Return what is kept of an act that is asked for, and when it ends. `name` is its name where it gives none.

    Raises ConfigError with every fault.
    """
    if not isinstance(members, dict):
        raise ConfigError((Fault("body", f"expected an object, found {shown(members)}"),))
    asked = {"name": name, **members}
    faults: list[Fault] = []
    lasting = asked.pop("for", None)
    if lasting is not None:
        try:
            asked["expires"] = _instant(wall + parse_wait(lasting))
        except ValueError as error:
            faults.append(Fault("for", str(error)))
            asked["expires"] = _instant(wall + SECOND)
    try:
        expires = _entry(kind, asked).expires
    except ConfigError as error:
        raise ConfigError((*faults, *error.faults)) from None
    faults += _beyond(kind, asked, expires, policies, wall)
    if faults:
        raise ConfigError(tuple(faults))
    return asked, expires


def build_act(kind: ActKind, members: Members, policies: PolicySet) -> Pause | Exemption | PostureAct:
    """Return the document of the core that kept members stand for. Raises ConfigError."""
    entry = _entry(kind, members)
    if isinstance(entry, PauseEntry):
        return act_pause(entry.name, entry.match, entry.reason, entry.owner, entry.expires)
    if isinstance(entry, PostureEntry):
        return PostureAct(entry.name, entry.posture, entry.route, entry.reason, entry.owner, entry.expires)
    return act_exemption(entry, max((route.cost for route in policies.routes), default=1.0))


def _beyond(kind: ActKind, asked: Members, expires: Micros, policies: PolicySet, wall: Micros) -> Iterator[Fault]:
    """Yield what one entry alone cannot know: the time, and the rest of the configuration."""
    if not wall < expires <= wall + LONGEST:
        yield Fault("expires", f"expected an instant within the next {LONGEST // SECOND // 86_400} days")
    routes = {route.name for route in policies.routes}
    place = "route" if kind == "posture" else "match.route"
    route = (asked if kind == "posture" else asked["match"]).get("route")
    if route is not None and route not in routes:
        yield Fault(place, f"expected the name of a known route, found {shown(route)}")
    if kind == "exemption":
        if (asked.get("multiplier") is None) == (asked.get("quota") is None):
            yield Fault("multiplier", "expected one of multiplier or quota")
        known = {policy.name for policy in policies.policies}
        for wanted in asked.get("policies", ()):
            if wanted not in known:
                yield Fault("policies", f"expected the name of a known policy, found {shown(wanted)}")


def _entry(kind: ActKind, members: Members) -> PauseEntry | ExemptionEntry | PostureEntry:
    read = dict(members)
    if isinstance(read.get("expires"), str):
        with contextlib.suppress(ValueError):  # the entry says what it expected
            read["expires"] = datetime.fromisoformat(read["expires"])
    table = _ENTRIES[kind]
    try:
        return table.model_validate(read)
    except ValidationError as error:
        raise ConfigError(tuple(Fault(dotted(at) or "body", said) for at, said in findings(error, table, ()))) from None


def _instant(wall: Micros) -> str:
    return datetime.fromtimestamp(wall // SECOND, UTC).isoformat()
