"""Decisions and telemetry for tests: what the pipeline would hand over, in one line each."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from gateway.clock import Clock
from gateway.config import Loaded, load
from gateway.ports import Decision, Rejection
from gateway.telemetry import Telemetry
from policies.charge import Plan, Reading, Refusal
from policies.request import Class, Kind, Principal, RequestFacts
from policies.units import SECOND, Micros
from policies.verdict import Outcome, Verdict

__all__ = ["START", "Event", "StoppedClock", "configured", "telemetry"]

#: The first instant of a slot of five minutes.
START: Micros = 2_000_000_100 * SECOND

CONFIG = """
[upstream]
url = "http://127.0.0.1:9"
[backstop]
quota = "1000/s"
[auth]
max_unlisted_tenants = {unlisted}
[telemetry]
decision_log = "{log}"
decision_log_format = "{form}"
admit_sample = {sample}
top_tenants = {top}
"""


class StoppedClock(Clock):
    """A clock that shows what a test says."""

    def __init__(self, now: Micros = START) -> None:
        super().__init__()
        self.at = now

    def now(self) -> Micros:
        return self.at

    def wall(self) -> Micros:
        return self.at


def configured(
    folder: Path,
    more: str = "",
    *,
    log: str = "off",
    form: str = "json",
    sample: float = 1.0,
    top: int = 50,
    unlisted: int = 10_000,
) -> Loaded:
    """Load a small gateway.toml, with `more` after it."""
    path = folder / "gateway.toml"
    path.write_text(CONFIG.format(log=log, form=form, sample=sample, top=top, unlisted=unlisted) + more)
    return load(path, {})


def telemetry(folder: Path, clock: Clock | None = None, *, top: int = 50, unlisted: int = 10_000) -> Telemetry:
    """Return telemetry without a log."""
    loaded = configured(folder, top=top, unlisted=unlisted)
    return Telemetry(loaded.settings, loaded.policies, clock or StoppedClock())


@dataclass(frozen=True, slots=True)
class Event:
    """One request as a test thinks of it; `at` is seconds after START."""

    tenant: str = "acme"
    outcome: Outcome = Outcome.SERVED
    limit: str = ""
    at: float = 0.0
    cls: Class = Class.INTERACTIVE
    kind: Kind = Kind.USER
    status: int = 200
    code: str = ""
    judged: bool = True
    beyond: bool = False
    over: bool = False
    shadow: tuple[str, ...] = ()
    unenforced: str = ""
    path: str = "/v1/things"
    credential: str = "ci"
    wait_us: Micros = 1_240_000

    @property
    def now(self) -> Micros:
        return START + round(self.at * SECOND)

    def decision(self) -> Decision:
        """Return the settled decision."""
        principal = Principal(self.kind, self.tenant, self.credential)
        facts = RequestFacts("GET", self.path, "192.0.2.1")
        decision = Decision("01JE", facts, principal, self.cls, -1, self.now - 5000)
        decision.outcome, decision.status, decision.limit = self.outcome, self.status, self.limit
        decision.over_seats = self.over
        if self.judged:
            decision.verdict = self._verdict()
        if self.code:
            decision.rejection = Rejection(self.status, self.code, "Said so.")
        return decision

    def _verdict(self) -> Verdict:
        plan = Plan(self.tenant, self.credential, self.cls, 1.0, (), (), (), None)
        # `connections` refuses what the verdict had admitted.
        named = self.unenforced or (self.limit if self.limit != "connections" else "")
        refused = (Refusal(named, self.wait_us),) if named else ()
        shadow = tuple(Refusal(limit, self.wait_us) for limit in self.shadow)
        reading = Reading(refused, (), shadow, beyond_own=self.beyond, share_over=self.over)
        return Verdict(plan, reading, self.now, refused[0] if refused else None, enforced=not self.unenforced)
