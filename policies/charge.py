"""What the core asks of a store, and what a store answers.

Rules
1. A `Plan` depends only on (principal, class, route) and, where a policy keys by it, the address; it is compiled once
   and reused.
2. A store takes all enforced charges and seats of a plan, or none. A refused request costs nothing anywhere.
3. Own limits come first: if one refuses, the backstop is neither asked nor listed.
4. Shadow charges are asked apart, after the rest was taken, and change nothing but their own buckets.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from policies.kernels.cells import Cell
from policies.kernels.gcra import Bucket
from policies.kernels.member import Member
from policies.native import mypyc_attr
from policies.request import Class
from policies.units import NEVER, Micros, Rate, RequestUnits, Seats

__all__ = ["NEVER", "Charge", "Hold", "Memo", "Plan", "Reading", "Refusal", "SeatCharge", "ShareCharge"]


@dataclass(frozen=True, slots=True)
class Charge:
    """One step on one bucket.

    `limit` is the name users see (`key`, `tenant` or a policy's). `bucket` is the bucket's own name: the limit and its
    characteristics. `reserve` is the part of the burst, in units, that this class may not take while a higher class has
    demand; `floor` the part of the rate (0 to 1) that lower classes keep. `pinned` buckets come from the configuration:
    they are never evicted and never share an overflow bucket; `overflow` names the bucket that all others share once
    the store is full (the limit's name if empty). `low` says that a higher class shares the bucket. `rate` is `rate_us`
    before rounding, for the RateLimit fields; without it they are worked out from the float.
    """

    limit: str
    bucket: str
    rate_us: float
    burst: RequestUnits
    cost: RequestUnits
    cls: Class
    reserve: RequestUnits = 0.0
    floor: float = 0.0
    pinned: bool = False
    rate: Rate | None = None
    low: bool = False
    overflow: str = ""


@dataclass(frozen=True, slots=True)
class SeatCharge:
    """One seat of a concurrency limit: `holder` names who holds it, `seats` is how many there are.

    `whose` says whose limit it is, in the word a caller is told: `tenant` or `credential`.
    """

    holder: str
    seats: Seats
    whose: str = "credential"


@dataclass(frozen=True, slots=True)
class Hold:
    """A limit that admits nothing until an instant, whatever was taken before: a pause."""

    limit: str
    until_us: Micros


@dataclass(frozen=True, slots=True)
class ShareCharge:
    """The step on the fair backstop: whose share, its weight, and what is taken from it at which class.

    `own_rate_us` and `own_burst` are the tightest own limits of the tenant, which cap the demand it is credited with.
    """

    tenant: str
    weight: float
    listed: bool
    cost: RequestUnits
    cls: Class
    own_rate_us: float
    own_burst: RequestUnits


class Memo:
    """What others work out once for a plan, or find by it: each in a place of its own, which is nobody else's.

    A plan is at hand wherever a request is. What is found by it needs no look-up by name, and with ten thousand tenants
    no other line of the processor's cache for each step of that look-up.

    `store` is the number of the store of this process that was asked last, and the next five are what that found: the
    buckets of the own charges, the cells of the seats, the member of the share. They are good while `changed` of each
    is no later than `as_of`; a member is while it has the plan's share as its `ask`. `even` says that every own charge
    costs what the plan does and is of the highest class, so that none of them need be looked at.
    """

    __slots__ = (
        "account", "as_of", "buckets", "cells", "counted", "even", "mark", "member", "metered", "owner", "ready",
        "store", "told",
    )  # fmt: skip

    def __init__(self) -> None:
        self.store = self.as_of = 0
        self.even = False
        self.buckets: tuple[Bucket, ...] = ()
        self.cells: tuple[Cell, ...] = ()
        self.member: Member | None = None
        #: Of what the plan is, for whoever finds it with `owner`, who keeps it.
        self.mark = 0
        #: How its limits are told, and its refusals; where requests are counted by tenant, and by key; and where the
        #: seats of an upstream are.
        self.told: object = None
        self.counted: object = None
        self.metered: object = None
        self.account: object = None
        self.ready: dict[tuple[object, ...], object] = {}
        self.owner: object = None


@dataclass(frozen=True, slots=True)
class Plan:
    """All the steps of one decision. `own` is in the order of RateLimit fields: key, tenant, then named policies."""

    #: No part of the plan. First, for it is looked at first and lies beside the rest.
    memo: Memo = field(init=False, default_factory=Memo, compare=False, repr=False)
    tenant: str
    credential: str
    cls: Class
    cost: RequestUnits
    own: tuple[Charge, ...]
    shadow: tuple[Charge, ...]
    seats: tuple[SeatCharge, ...]
    share: ShareCharge | None
    exemption: str = ""
    #: Own limits like `own`, asked with them; nearly always none.
    holds: tuple[Hold, ...] = ()
    #: What to answer where no store does (`policies/posture.py`).
    posture: str = "safe-capacity"


@mypyc_attr(acyclic=True, free_list_len=1)
@dataclass(slots=True, init=False)
class Refusal:
    """One limit that said no. `wait_us` is when it could admit this cost at this class, or NEVER.

    `whose` tells two limits of one name apart: whose seats are taken (`SeatCharge.whose`).
    """

    limit: str
    wait_us: Micros
    whose: str

    # Written out: the one that `dataclass` makes is interpreted even where this is compiled.
    def __init__(self, limit: str, wait_us: Micros, whose: str = "") -> None:
        self.limit = limit
        self.wait_us = wait_us
        self.whose = whose


@mypyc_attr(acyclic=True, free_list_len=1)
@dataclass(slots=True, init=False)
class Reading:
    """A store's answer: nothing in `refused` means that everything was taken.

    `tokens` is what this class could take now of each own bucket, after this take (before, when refused), in the
    plan's order. `beyond_own` says that a share or backstop refusal exceeded what the caller's own limits would have
    let through, so it counts as own in every figure. `share_over` marks a take over the tenant's fair share,
    and a backstop refusal of a tenant whose arrivals exceed it. `posture` is what decided where no store did, else
    empty; there are no tokens then but those of safe capacity.
    """

    refused: tuple[Refusal, ...]
    tokens: tuple[float, ...]
    shadow_refused: tuple[Refusal, ...]
    beyond_own: bool
    share_over: bool
    posture: str

    # Written out: the one that `dataclass` makes is interpreted even where this is compiled.
    def __init__(
        self,
        refused: tuple[Refusal, ...],
        tokens: tuple[float, ...],
        shadow_refused: tuple[Refusal, ...] = (),
        beyond_own: bool = False,  # noqa: FBT002 - as a dataclass has it, by place
        share_over: bool = False,  # noqa: FBT002 - as above
        posture: str = "",
    ) -> None:
        self.refused = refused
        self.tokens = tokens
        self.shadow_refused = shadow_refused
        self.beyond_own = beyond_own
        self.share_over = share_over
        self.posture = posture
