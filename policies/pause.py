"""Pauses: an operator lets nothing of some callers, or of a class, through for a while.

Rules
1. A pause is an own limit, `paused`, beside key, tenant and the named policies: whoever it refuses is told until when,
   is charged nothing, and asks nothing of the backstop.
2. It holds until its expiry, never for ever: the wait that it tells is true. Of several, the longest holds.
3. It covers what proved who it is, or anonymous callers; never an attempt to log in (rejected) or a preflight, which
   would tell a browser that the service is gone.
"""

from __future__ import annotations

from policies.charge import Hold
from policies.cost import route_name
from policies.policy import PolicySet
from policies.request import Class, Kind, Principal
from policies.units import Micros

__all__ = ["PAUSED", "holds", "next_end"]

PAUSED = "paused"
_COVERED = frozenset({Kind.USER, Kind.JOB, Kind.ANONYMOUS})


def holds(
    policies: PolicySet, principal: Principal, cls: Class, route: int, method: str, now: Micros
) -> tuple[Hold, ...]:
    """Return the hold on a request that pauses cover at `now`; there is one, or none."""
    name = route_name(policies, route)
    ends = [pause.expires_us for pause in policies.pauses if pause.match.covers(principal, cls, name, method)]
    until = max(ends, default=now)
    return (Hold(PAUSED, until),) if until > now and principal.kind in _COVERED else ()


def next_end(policies: PolicySet, now: Micros) -> Micros | None:
    """Return when the next pause ends after `now`, or None."""
    return min((pause.expires_us for pause in policies.pauses if pause.expires_us > now), default=None)
