"""A history that lives through days in a moment: decisions noted by hand, time moved by hand."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from gateway.history.filed import FileHistory
from policies.policy import PolicySet, Sized
from policies.request import Kind, Principal
from policies.units import SECOND
from tests.clock import StandingClock
from tests.policies.documents import acme, credential, policy_set, tenants

__all__ = ["BEGIN", "DAY", "POLICIES", "Kept"]

DAY = 86_400
#: 2026-03-01, midnight, in seconds.
BEGIN = 20_513 * DAY

POLICIES = policy_set(tenants=tenants(acme(credential("ci"), sized=True)))


class Kept:
    """One history over one file; `at` is the time in seconds."""

    def __init__(self, path: Path | None, policies: PolicySet = POLICIES, at: int = BEGIN, max_keys: int = 100) -> None:
        self.at = at
        self.clock = StandingClock(at * SECOND)
        self.policies = policies
        self.applied: list[Mapping[str, Sized]] = []
        self.history = FileHistory(path, max_keys, self.clock, lambda: self.policies, self.applied.append)
        self.opened = self.history.open()

    def to(self, at: int) -> None:
        """Let time pass, the data plane ticking and the writer taking its turn."""
        self.at = at
        self.clock.at = at * SECOND
        self.history.meter.turn(at * SECOND)
        self.history.turn(at)

    def use(self, units: int, *, limit: str = "", who: Principal | None = None, each: float = 1.0) -> None:
        """Note so many decisions now, spread over the slot's seconds, and let the slot end."""
        principal = who or Principal(Kind.USER, "acme", "ci")
        for number in range(units):
            second = number * 10 // units
            self.history.meter.note(principal, each, limit, (self.at + second) * SECOND)
        self.to(self.at + 10)

    def days(self, number: int, units: int, refused: str = "", **how: Any) -> None:
        """Live through days of which an hour has traffic, `units` in each of seven slots, then a refusal."""
        for _ in range(number):
            midnight = self.at // DAY * DAY
            self.to(midnight + 10 * 3600)
            for _ in range(7):
                self.use(units, **how)
            if refused:
                self.use(1, limit=refused)
            for after in (11 * 3600 + 1800, DAY + 1805, DAY + 1815):
                self.to(midnight + after)

    def stop(self) -> None:
        """End well."""
        self.history.stop()
