"""A fair backstop for tests, and ways to ask it. Rates are units a second, instants microseconds."""

from __future__ import annotations

from dataclasses import dataclass
from math import inf

from policies.kernels.fairshare import Shares
from policies.kernels.share import ShareView
from policies.policy import ClassRule
from policies.units import SECOND, Micros
from tests.clock import EPOCH

__all__ = ["CLASSES", "Ask", "drain", "press", "service", "share_of"]

CLASSES = (ClassRule(0), ClassRule(1, reserve=0.25, floor=0.05))


@dataclass(frozen=True, slots=True)
class Ask:
    tenant: str
    cost: float = 1.0
    cls: int = 0
    weight: float = 1.0
    listed: bool = True
    own_rate_us: float = inf
    own_burst: float = inf


def service(
    rate: float = 100.0, burst: float | None = None, classes: tuple[ClassRule, ...] = CLASSES, unlisted: float = 1.0,
    most: int = 10_000,
) -> Shares:  # fmt: skip
    """Return a backstop that starts full: one second's worth unless said."""
    return Shares(rate / SECOND, rate if burst is None else burst, classes, unlisted, EPOCH, most)


def drain(shares: Shares, ask: Ask, now: Micros, most: int = 10_000) -> int:
    """Ask until refused; return how often it was let through."""
    for count in range(most):
        if shares.take(ask, now) is not None:
            return count
    return most


def press(shares: Shares, asks: tuple[Ask, ...], begin: float, end: float, rate: float) -> dict[Ask, int]:
    """Let each of `asks` come `rate` times a second from `begin` to `end`; return how often each was let through."""
    taken = dict.fromkeys(asks, 0)
    for step in range(int((end - begin) * rate)):
        now = EPOCH + int((begin + step / rate) * SECOND)
        for ask in asks:
            taken[ask] += shares.take(ask, now) is None
    return taken


def share_of(shares: Shares, tenant: str, now: Micros = EPOCH) -> ShareView:
    """Return the share of a tenant that is known."""
    view = shares.share_of(tenant, now)
    assert view is not None
    return view
