"""What other parts of the house say about themselves, and how long things took.

Rules
1. A gauge is asked at a scrape, from the admin listener's thread: it reads a number or copies a small dict, and never
   blocks. One that nobody sets has no sample, its HELP and TYPE stand all the same.
2. A histogram is written by the data plane's thread alone. A reader may see an observation in its bucket and not yet in
   the sum; the next scrape has both.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Final, NamedTuple

__all__ = ["DECISION_BOUNDS_NS", "STORE_BOUNDS_US", "UPSTREAM_BOUNDS_US", "Bucket", "Gauges", "Histogram", "KeyQuota"]

#: (tenant, credential, request units per second), one per configured credential.
KeyQuota = tuple[str, str, float]

#: From a cached decision to one that waited for a store.
DECISION_BOUNDS_NS = (
    1_000,
    2_000,
    3_000,
    5_000,
    10_000,
    20_000,
    50_000,
    100_000,
    500_000,
    1_000_000,
    10_000_000,
    100_000_000,
)
#: One call of a store nearby takes 0.2 ms; beyond its deadline nobody waits.
STORE_BOUNDS_US = (200, 500, 1_000, 2_000, 5_000, 10_000, 20_000, 50_000, 100_000, 500_000)
#: 1 ms to a minute, the default time-out of a first byte.
UPSTREAM_BOUNDS_US = (
    *(1_000, 2_500, 5_000, 10_000, 25_000, 50_000, 100_000, 250_000, 500_000),
    *(1_000_000, 2_500_000, 5_000_000, 10_000_000, 30_000_000, 60_000_000),
)


class Bucket(NamedTuple):
    """Observations up to an upper bound in seconds, and the last that fell between it and the bound below.

    That is (request id, seconds), None without one.
    """

    bound: str
    observed: float
    last: tuple[str, float] | None = None


#: Less than any observation, and more.
_LEAST: Final = -(1 << 61)
_MOST: Final = 1 << 61


class _Range:
    """What was observed above `low`, up to `high`, and the last of it.

    Each attribute is one step to write: a reader may see the id of one observation and the value of another, but both
    are of this range.
    """

    __slots__ = ("count", "high", "low", "request_id", "value")

    def __init__(self, low: int, high: int) -> None:
        self.low = low
        self.high = high
        self.count = 0
        self.request_id = ""
        self.value = 0


class Histogram:
    """Classic buckets over integers; `per_second` is how many of the unit make a second."""

    __slots__ = ("_at", "_bounds", "_per_second", "_ranges", "_total")

    def __init__(self, bounds: tuple[int, ...], per_second: int) -> None:
        self._bounds = bounds
        self._per_second = per_second
        self._ranges = [_Range(low, high) for low, high in pairwise((_LEAST, *bounds, _MOST))]
        #: Where the last observation fell, for the next is likely to fall there too.
        self._at = self._ranges[0]
        self._total = 0

    def observe(self, value: int, request_id: str = "") -> None:
        """Count one; an observation equal to a bound is within it."""
        at = self._at
        if value > at.high or value <= at.low:
            at = self._at = self._ranges[bisect_left(self._bounds, value)]
        at.count += 1
        at.request_id = request_id
        at.value = value
        self._total += value

    def state(self) -> dict[str, list[int] | int]:
        """Return the counts of the buckets, each by itself, and the sum in the unit of the bounds."""
        return {"counts": [one.count for one in self._ranges], "total": self._total}

    def last(self) -> list[tuple[str, int]]:
        """Return the last observation of each bucket."""
        return [(one.request_id, one.value) for one in self._ranges]

    def add(self, counts: Iterable[int], total: int, last: Iterable[tuple[str, int]] = ()) -> None:
        """Count what another process has observed by the same bounds."""
        for one, more in zip(self._ranges, counts, strict=False):
            one.count += more
        self._total += total
        for one, (request_id, value) in zip(self._ranges, last, strict=False):
            if request_id:
                one.request_id, one.value = request_id, value

    def buckets(self) -> tuple[list[Bucket], float]:
        """Return the buckets, cumulatively and `+Inf` last, and the sum in seconds."""
        total = self._total / self._per_second
        running = 0
        rows: list[Bucket] = []
        labels = [*(repr(bound / self._per_second) for bound in self._bounds), "+Inf"]
        counts = [one.count for one in self._ranges]
        for label, count, one in zip(labels, counts, self._ranges, strict=True):
            running += count
            request_id, value = one.request_id, one.value / self._per_second
            rows.append(Bucket(label, running, (request_id, value) if request_id else None))
        return rows, total


@dataclass(slots=True)
class Gauges:
    """Set by whoever composes the house; each is the metric of that name (contract, section 8)."""

    backstop_contended: Callable[[], bool] | None = None
    backstop_used_ratio: Callable[[], float | None] | None = None
    #: Asked for those tenants that have a label.
    key_quota: Callable[[Collection[str]], Iterable[KeyQuota]] | None = None
    store_up: Callable[[], bool] | None = None
    store_errors: Callable[[], Mapping[str, int]] | None = None
    connections: Callable[[], Mapping[str, int]] | None = None
    in_flight: Callable[[], int] | None = None
    keys: Callable[[], int] | None = None
    overflow_requests: Callable[[], int] | None = None
    starved_keys: Callable[[], int] | None = None
    jwks_age_seconds: Callable[[], Mapping[str, float]] | None = None
    canary_ok: Callable[[], Mapping[str, bool]] | None = None
    #: Workers that serve, and how often one was replaced; nothing where a process serves alone.
    workers: Callable[[], int] | None = None
    worker_restarts: Callable[[], int] | None = None
    #: Instances of the fleet that live, this one included; nothing without a shared store.
    instances: Callable[[], int] | None = None
    #: None before the first reload.
    config_last_reload_ok: Callable[[], bool | None] | None = None
