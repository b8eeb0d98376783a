"""What is asked of the fair backstop, and what it answers.

Rules
1. A kernel knows no document and no charge: what it needs of them is a Protocol here.
2. A refusal is a value.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple, Protocol

from policies.native import mypyc_attr
from policies.units import Micros, RequestUnits

__all__ = ["Ask", "ClassPart", "Plain", "ShareRefusal", "ShareView", "SharesView"]


class Ask(Protocol):
    """What is asked of the shares; `policies.charge.ShareCharge` is one."""

    @property
    def tenant(self) -> str:
        """Whose share."""
        ...

    @property
    def weight(self) -> float:
        """The tenant's weight; of an unlisted tenant, among unlisted ones."""
        ...

    @property
    def listed(self) -> bool:
        """False if the tenant can have been minted."""
        ...

    @property
    def cost(self) -> RequestUnits:
        """Units to take."""
        ...

    @property
    def cls(self) -> int:
        """Index of the class."""
        ...

    @property
    def own_rate_us(self) -> float:
        """Rate of the own limits; infinite without any."""
        ...

    @property
    def own_burst(self) -> RequestUnits:
        """Burst of the own limits."""
        ...


class ClassPart(Protocol):
    """What a class may have; `policies.policy.ClassRule` is one."""

    @property
    def priority(self) -> int:
        """Its place: the lowest number goes first."""
        ...

    @property
    def reserve(self) -> float:
        """Part of the share's burst left to higher classes."""
        ...

    @property
    def floor(self) -> float:
        """Part of the share's rate that higher classes leave."""
        ...

    @property
    def ceiling(self) -> float:
        """Part of the backstop that the class may use over all tenants."""
        ...


class Plain(NamedTuple):
    """A class under a ceiling: in there all asks are of one class."""

    priority: int = 0
    reserve: float = 0.0
    floor: float = 0.0
    ceiling: float = 1.0


@mypyc_attr(acyclic=True, free_list_len=1)
@dataclass(slots=True, init=False)
class ShareRefusal:
    """Why a take was refused: `limit` is `share`, `class` or `backstop`; `wait_us` is how long to stay away, or NEVER.

    `beyond_own` says that the own limits would not have let this ask through along with the others refused; `over` that
    a tenant refused by `backstop` asks for more than its share.
    """

    limit: str
    wait_us: Micros
    beyond_own: bool
    over: bool

    # Written out: the one that `dataclass` makes is interpreted even where this is compiled.
    def __init__(
        self,
        limit: str,
        wait_us: Micros,
        beyond_own: bool = False,  # noqa: FBT002 - as a dataclass has it, by place
        over: bool = False,  # noqa: FBT002 - as above
    ) -> None:
        self.limit = limit
        self.wait_us = wait_us
        self.beyond_own = beyond_own
        self.over = over


@dataclass(slots=True)
class SharesView:
    """The backstop at one instant. Rates are units per second; `debt` is in units; levels per second and weight."""

    contended: bool
    level: float
    unlisted_level: float
    tokens: float
    debt: float
    debt_bound: float
    demand: float
    used_ratio: float
    tenants: int


@dataclass(slots=True)
class ShareView:
    """One tenant: its share in units per second, what its bucket holds and can hold, and what became of it.

    `over` is whether it went over its share within the last second; `within_refused` counts the refusals of what fitted
    its share.
    """

    share: float
    tokens: float
    burst: float
    over: bool
    within_refused: int
