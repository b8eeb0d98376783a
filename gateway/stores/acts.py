"""Acts of operators on the running gateway: pauses, exemptions, postures, each with an end, in SQLite and in memory.

Rules
1. An act is on disk before it is confirmed, and off before its end is: a restart forgets none and revives none. None is
   ever written to gateway.toml.
2. `version` goes up with every change, an end by the clock included; whoever decides compares it and asks `over` again.
3. Another process with the same file sees a change within the second or two until its next `poll`.
4. Bounded: `MAX_ACTS` at a time. What has ended is kept `KEPT` longer, to be looked up.
"""

from __future__ import annotations

import secrets
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from gateway.clock import Clock
from gateway.config.acts import ActKind, build_act, read_act
from gateway.errors import ConfigError, GatewayError
from gateway.stores.registry import Entry, RegistryError, open_registry
from policies.policy import Exemption, Pause, PolicySet, PostureAct
from policies.units import SECOND, Micros

if TYPE_CHECKING:
    from gateway.stores.calls import Calls

__all__ = ["KEPT", "MAX_ACTS", "Act", "ActError", "Acts"]

MAX_ACTS = 1000
KEPT: Micros = 90 * 86_400 * SECOND


class ActError(GatewayError):
    """The act cannot be kept; nothing was changed."""


class Act(NamedTuple):
    """One act in force until `expires_us` of the wall clock. `members` are those of gateway.toml."""

    id: str
    kind: ActKind
    members: dict[str, Any]
    made_us: Micros
    expires_us: Micros


class Acts:
    """The acts of one file, which comes into being with the first of them, or of one shared store. Any thread may call.

    `current` are those in force, the oldest first; `version` changes whenever they do.
    """

    def __init__(self, place: Path | Calls, clock: Clock) -> None:
        self._clock = clock
        self.registry = open_registry(place, "acts", MAX_ACTS, clock, KEPT)
        self.registry.gained = _check
        self._seen = 0
        self._current: tuple[Act, ...] = ()

    @property
    def version(self) -> int:
        """A number that changes with every change, an end by the clock included."""
        return self.registry.version

    @property
    def current(self) -> tuple[Act, ...]:
        """The acts in force, the oldest first."""
        seen = self.registry.version
        if seen != self._seen:
            acts = map(_act, self.registry.live.copy().values())
            self._current, self._seen = tuple(sorted(acts, key=lambda act: act.made_us)), seen
        return self._current

    def warnings(self) -> list[str]:
        """Return what an operator should know of now."""
        registry = self.registry
        told = [f"the acts at {registry.place} cannot be read: {registry.fault}"] if registry.fault else []
        told += [f"the act {id} holds in this process only, until the store is back" for id in list(registry.waiting)]
        return told

    def add(self, kind: ActKind, asked: object, policies: PolicySet) -> Act:
        """Keep an act. Raises ConfigError with what is wrong with it, ActError where it cannot be kept.

        One on the posture holds in this process even while a shared store is down: that is what it is for.
        """
        id = f"{kind}-{secrets.token_hex(4)}"
        now = self._clock.wall()
        members, expires = read_act(kind, asked, id, policies, now)
        act = Act(id, kind, dict(members), now, expires)
        body = {"kind": kind, "members": act.members, "made_us": now}
        try:
            self.registry.add(Entry(id, body, expires), here=kind == "posture")
        except RegistryError as error:
            raise ActError(str(error)) from error
        return act

    def end(self, kind: ActKind, id: str) -> Act | None:
        """End an act now and return it; None if there is no such act. Raises ActError."""
        if id not in self.registry.live:
            self.registry.poll()
        act = next((act for act in self.current if (act.kind, act.id) == (kind, id)), None)
        try:
            return act if act is not None and self.registry.end(id) else None
        except RegistryError as error:
            raise ActError(str(error)) from error

    def of(self, kind: ActKind) -> list[Act]:
        """Return the acts of a kind that are in force, the oldest first."""
        now = self._clock.wall()
        return [act for act in self.current if act.kind == kind and act.expires_us > now]

    def ids(self) -> dict[str, str]:
        """Return the ids of the acts in force by the names of what they made."""
        return {act.members["name"]: act.id for act in self.current}

    def over(self, policies: PolicySet) -> PolicySet:
        """Return `policies` with these acts in force instead of any before."""
        documents = [document for act in self.current if (document := _built(act, policies)) is not None]
        kept = tuple(exemption for exemption in policies.exemptions if not exemption.act)
        return replace(
            policies,
            exemptions=kept + tuple(one for one in documents if isinstance(one, Exemption)),
            pauses=tuple(one for one in documents if isinstance(one, Pause)),
            posture_acts=tuple(one for one in documents if isinstance(one, PostureAct)),
        )

    def poll(self) -> None:
        """Take over what other processes changed, and forget what has ended."""
        self.registry.poll()

    def start(self) -> None:
        """Read what there is, and follow it from now on."""
        self.registry.start()

    def close(self) -> None:
        """Follow no more, and let go of what is open."""
        self.registry.close()


def _check(entry: Entry) -> None:
    """Raise LookupError or TypeError for an entry that is no act of any version."""
    act = _act(entry)
    hash((act.made_us + 0, act.members["name"]))


def _act(entry: Entry) -> Act:
    body = entry.body
    return Act(entry.id, body["kind"], body["members"], body["made_us"], entry.expires_us)


def _built(act: Act, policies: PolicySet) -> Pause | Exemption | PostureAct | None:
    """Return the document of an act; None of one that a version before or after this one wrote in another shape."""
    try:
        return build_act(act.kind, act.members, policies)
    except ConfigError:
        return None
