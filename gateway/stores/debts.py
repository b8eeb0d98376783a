"""What was admitted without a shared store, kept until the store can be told.

Rules
1. A debt drains as the bucket itself would have filled, at the part of its rate that is this process's: what is told
   is what the bucket would owe had the store been there, and never more than its burst.
2. Bounded: `max_keys` buckets. Beyond that the fullest debts are no better than the others, so new ones are not kept.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from policies.charge import Charge, Plan
from policies.kernels import gcra
from policies.kernels.gcra import Bucket
from policies.units import Micros, RequestUnits

__all__ = ["Debts"]


class Debts:
    """Units by bucket, in `kept`; `part` says which part of a limit is this process's."""

    __slots__ = ("_max_keys", "_part", "kept")

    def __init__(self, max_keys: int, part: Callable[[str], float]) -> None:
        self._max_keys = max_keys
        self._part = part
        self.kept: dict[str, tuple[Charge, Bucket]] = {}

    def of(self, plan: Plan, now: Micros) -> Iterator[tuple[Charge, RequestUnits]]:
        """Take out the debts of a plan's buckets, and yield those that are still owed at `now`."""
        for charge in plan.own:
            if charge.bucket in self.kept:
                yield from self._taken(charge.bucket, now)

    def __len__(self) -> int:
        return len(self.kept)

    def add(self, plan: Plan, now: Micros) -> None:
        """Note that a plan was admitted at `now`."""
        for charge in plan.own:
            kept = self.kept.get(charge.bucket)
            if kept is None:
                if len(self.kept) >= self._max_keys:
                    continue
                kept = (charge, Bucket(charge.rate_us * self._part(charge.bucket), charge.burst, now))
                self.kept[charge.bucket] = kept
            bucket = kept[1]
            bucket.level = min(bucket.burst, gcra.level_at(bucket, now) + charge.cost)
            bucket.stamp = max(bucket.stamp, now)

    def take_back(self, plan: Plan, now: Micros) -> list[Charge]:
        """Note that an admitted plan was never sent; return the charges of which nothing is kept."""
        others: list[Charge] = []
        for charge in plan.own:
            kept = self.kept.get(charge.bucket)
            if kept is not None:
                gcra.give_back(kept[1], charge, now)
            else:
                others.append(charge)
        return others

    def drain(self, most: int, now: Micros) -> Iterator[tuple[Charge, RequestUnits]]:
        """Take out at most `most` debts, and yield those that are still owed at `now`."""
        for _ in range(min(most, len(self.kept))):
            yield from self._taken(next(iter(self.kept)), now)

    def _taken(self, name: str, now: Micros) -> Iterator[tuple[Charge, RequestUnits]]:
        charge, bucket = self.kept.pop(name)
        owed = gcra.level_at(bucket, now)
        if owed > 0.0:
            yield charge, owed
