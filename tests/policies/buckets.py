"""Asking one bucket, for the kernel's tests."""

from __future__ import annotations

from fractions import Fraction

from policies.kernels import gcra
from policies.kernels.gcra import Bucket
from policies.units import SECOND
from tests.clock import EPOCH
from tests.policies.documents import Step

__all__ = ["EPOCH", "ask", "per_us"]


def ask(bucket: Bucket, step: Step, now: int) -> int:
    """Ask a bucket as a store does; return 0 if admitted, else the told wait."""
    gcra.demand(bucket, step, now)
    if gcra.admits(bucket, step, now):
        gcra.take(bucket, step, now)
        return 0
    return gcra.refuse(bucket, step, now)


def per_us(rate: Fraction) -> float:
    """Return a rate in units per microsecond."""
    return float(rate) / SECOND
