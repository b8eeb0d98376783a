"""The backstop as one plain bucket: first come, first served.

It protects the service and shares nothing out: whoever asks most gets most. It stands where `fairshare.Shares` stands,
so that the two can be compared; it is what a shared bucket does to everybody, and the negative control of every
fairness test.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol

from policies.kernels import gcra
from policies.units import Micros, RequestUnits

__all__ = ["PlainBackstop", "PlainRefusal"]


class PlainRefusal(NamedTuple):
    """Why nothing was taken: the backstop is empty for `wait_us` more."""

    limit: str
    wait_us: Micros
    beyond_own: bool
    over: bool = False


class Costed(Protocol):
    """What the bucket needs to know of a request."""

    @property
    def cost(self) -> RequestUnits:
        """Units to take."""
        ...


class _Step(NamedTuple):
    """A step without classes: the backstop has no reserve."""

    cost: RequestUnits
    low: bool = False
    reserve: RequestUnits = 0.0
    floor: float = 0.0


class PlainBackstop:
    """One bucket for all tenants; made and called as `fairshare.Shares` is, ignoring classes and weights."""

    __slots__ = ("_bucket", "over")

    def __init__(
        self, rate_us: float, burst: RequestUnits, classes: Sequence[object], unlisted_weight: float, now: Micros,
        max_unlisted: int = 0,
    ) -> None:  # fmt: skip
        self._bucket = gcra.Bucket(rate_us, burst, now)
        #: Whether the last take was over the tenant's share. Without shares nothing is.
        self.over = False

    def take(self, ask: Costed, now: Micros) -> PlainRefusal | None:
        """Take the cost and return None, or take nothing and say when it could be taken."""
        bucket = self._bucket
        cost = ask.cost
        level = gcra.level_at(bucket, now)
        if level > bucket.burst - cost and level > 0.0:
            return PlainRefusal("backstop", gcra.wait(bucket, _Step(cost), now), beyond_own=False)
        bucket.level = level + cost
        bucket.stamp = max(bucket.stamp, now)
        return None

    def give_back(self, ask: Costed, now: Micros, *, over: bool = False) -> None:
        """Undo a take."""
        gcra.give_back(self._bucket, _Step(ask.cost), now)

    def tick(self, now: Micros) -> None:
        """Nothing is shared out, so nothing has to be worked out."""

    def rebuild(
        self, rate_us: float, burst: RequestUnits, classes: Sequence[object], unlisted_weight: float, now: Micros,
        max_unlisted: int = 0,
    ) -> None:  # fmt: skip
        """Go on under a new configuration; refills nothing and forgets nothing."""
        gcra.resize(self._bucket, rate_us, burst, now)
