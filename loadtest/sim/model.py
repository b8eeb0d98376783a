"""What a scenario is made of: a service, tenants with their limits, and what their callers do. Data, no behaviour.

Times are in seconds and rates in request units per second, as a reader would say them; the world counts microseconds.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, TypeAlias

from policies.policy import ClassRule
from policies.request import Class

if TYPE_CHECKING:
    from loadtest.sim.figures import Figures

__all__ = [
    "GIVE_UP", "OBEY", "Arrivals", "Callers", "Check", "Herd", "Loop", "Mint", "Mode", "Rate", "Retry", "Scenario",
    "TenantLoad", "hammer",
]  # fmt: skip

CLASSES = (ClassRule(priority=0), ClassRule(priority=1, reserve=0.25, floor=0.05))


class Mode(StrEnum):
    """What stands between the callers and the service."""

    #: One bucket for all, drained by arrival, and no limits of anybody's own.
    SHARED_BUCKET = "shared-bucket"
    #: Own limits, and behind them one bucket for all.
    KEYS_ONLY = "keys-only"
    #: Own limits, and behind them the fair backstop.
    EVENHAND = "evenhand"


@dataclass(frozen=True, slots=True)
class Rate:
    """A quota: units per second, and how many at once (one second's worth unless said)."""

    per_second: float
    burst: float = 0.0


@dataclass(frozen=True, slots=True)
class Retry:
    """What a refused caller does: gives up (`every` 0), comes back every so often, or does as it is told."""

    every: float = 0.0
    #: Each wait is drawn evenly from every * (1 - spread) to every * (1 + spread).
    spread: float = 0.5
    obeys: bool = False


GIVE_UP = Retry()
OBEY = Retry(obeys=True)


def hammer(every: float) -> Retry:
    """Come straight back, whatever one is told."""
    return Retry(every=every)


@dataclass(frozen=True, slots=True)
class Arrivals:
    """Calls that come at a rate whatever happens to them: Poisson, or evenly, `together` at a time."""

    rate: float
    retry: Retry = GIVE_UP
    deadline: float | None = None
    even: bool = False
    together: int = 1
    cost: float = 1.0
    cls: Class = Class.INTERACTIVE
    start: float = 0.0
    stop: float | None = None


@dataclass(frozen=True, slots=True)
class Loop:
    """So many calls in flight: each is followed by the next as soon as it was served (or its deadline passed).

    A call is served for a time drawn evenly from nothing to `service`. Were it always the same, callers would be locked
    to the tokens they come back for.
    """

    callers: int
    retry: Retry
    deadline: float | None = None
    service: float = 0.02
    cost: float = 1.0
    cls: Class = Class.INTERACTIVE
    start: float = 0.0
    stop: float | None = None


@dataclass(frozen=True, slots=True)
class Herd:
    """So many callers with one call each, all in one instant."""

    callers: int
    retry: Retry = GIVE_UP
    deadline: float | None = None
    cost: float = 1.0
    cls: Class = Class.INTERACTIVE
    start: float = 0.0


@dataclass(frozen=True, slots=True)
class Mint:
    """Calls of tenants that nobody listed and that each make `calls` calls, at `rate` calls per second altogether."""

    rate: float
    calls: int = 1
    retry: Retry = GIVE_UP
    start: float = 0.0
    stop: float | None = None


Callers: TypeAlias = Arrivals | Loop | Herd | Mint


@dataclass(frozen=True, slots=True)
class TenantLoad:
    """One tenant: its limits and its callers, which take its keys in turn. `group` is its row in the report."""

    id: str
    callers: tuple[Callers, ...]
    group: str = ""
    weight: float = 1.0
    listed: bool = True
    #: Of each key; None is no limit of its own.
    quota: Rate | None = None
    #: Of all its keys together.
    tenant_quota: Rate | None = None
    keys: int = 1


@dataclass(frozen=True, slots=True)
class Check:
    """A line of the report that a mode must hold: what is measured, and the least and the most that it may be."""

    says: str
    measure: Callable[[Figures], float]
    least: float = float("-inf")
    most: float = float("inf")
    mode: Mode = Mode.EVENHAND
    unit: str = ""


@dataclass(frozen=True, slots=True)
class Scenario:
    """A service and its tenants for so many seconds; figures are taken from `measure_from` on.

    `changes` are the instants at which demand changes, for the time that the shares take to follow.
    """

    name: str
    about: str
    backstop: Rate
    tenants: tuple[TenantLoad, ...]
    seconds: float = 30.0
    measure_from: float = 5.0
    changes: tuple[float, ...] = ()
    classes: tuple[ClassRule, ...] = CLASSES
    unlisted_weight: float | None = None
    max_unlisted: int = 10_000
    checks: tuple[Check, ...] = ()
    #: The modes that say something here.
    modes: tuple[Mode, ...] = (Mode.EVENHAND,)
