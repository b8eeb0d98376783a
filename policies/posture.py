"""The answer when a store has none: open, closed, a percentage, or safe capacity.

Rules
1. Of what an operator wrote, the nearest holds: an act on the route, the route's own posture, an act on all, `[store]
   posture`. Of several acts on the same, the latest.
2. What needs no store holds under every posture: a pause, and a quota of zero.
3. `deny:N` refuses N of a hundred requests, each by a draw of its own: no key, process or connection is special. 0 and
   100 are exact, so `open` and `closed` are the same thing by a name.
4. Safe capacity scales every limit of a plan by the part of it that is this process's, and rounds none to nothing: one
   unit at once, at the scaled rate, is always left.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import NamedTuple

from policies.charge import NEVER, Charge, Plan, Refusal, SeatCharge, ShareCharge
from policies.policy import PolicySet
from policies.units import SECOND, Micros

__all__ = [
    "LIMIT",
    "SAFE",
    "WAIT_US",
    "Posture",
    "admits_nothing",
    "certain",
    "chosen",
    "next_change",
    "read_posture",
    "scaled",
]

#: The limit that such refusals name.
LIMIT = "posture"
SAFE = "safe-capacity"
#: What is told to whoever a posture refuses. A hint: nobody knows when the store is back, and each draw is anew.
WAIT_US: Micros = 2 * SECOND

#: No limit is scaled to less at once: dividing a small one by many processes must leave something (Tyk issue 1287).
LEAST = 1.0

#: Which part of a limit is this process's, by the name of its bucket.
PartOf = Callable[[str], float]


class Posture(NamedTuple):
    """A posture as it is written, and the part of requests it refuses; None where the limits decide (safe capacity)."""

    name: str
    refused: float | None

    def refuses(self, draw: float) -> bool:
        """Return whether it refuses a request by a draw from [0, 1)."""
        return self.refused is not None and draw < self.refused


_NAMED = {"open": Posture("open", 0.0), "closed": Posture("closed", 1.0), SAFE: Posture(SAFE, None)}


def read_posture(name: str) -> Posture:
    """Return what `open`, `closed`, `safe-capacity` or `deny:N` (per cent) stands for."""
    return _NAMED.get(name) or Posture(name, int(name.removeprefix("deny:")) / 100)


def chosen(policies: PolicySet, route: int, now: Micros) -> str:
    """Return the posture of a route, an index into the routes or less than 0 for none, at `now` (wall clock)."""
    own = policies.routes[route] if route >= 0 else None
    acts = [act for act in policies.posture_acts if act.expires_us > now]
    if own is not None:
        for act in reversed(acts):
            if act.route == own.name:
                return act.posture
        if own.posture is not None:
            return own.posture
    return next((act.posture for act in reversed(acts) if act.route is None), policies.posture)


def next_change(policies: PolicySet, now: Micros) -> Micros | None:
    """Return when the next act on a posture ends after `now`, or None."""
    return min((act.expires_us for act in policies.posture_acts if act.expires_us > now), default=None)


def admits_nothing(policies: PolicySet, now: Micros) -> bool:
    """Return whether nothing at all would be admitted without a store."""
    return all(read_posture(chosen(policies, route, now)).refused == 1.0 for route in range(-1, len(policies.routes)))


def certain(plan: Plan, now: Micros) -> tuple[Refusal, ...]:
    """Return the own limits that refuse whatever a store would say."""
    none = [Refusal(charge.limit, NEVER) for charge in plan.own if charge.rate_us <= 0]
    return (*none, *(Refusal(hold.limit, hold.until_us - now) for hold in plan.holds if now < hold.until_us))


def scaled(plan: Plan, part_of: PartOf) -> Plan:
    """Return what `plan` asks of safe capacity: own limits, seats and demand at the part that is this process's.

    Its shadow charges are those of no store, so it has none; its holds are `certain`'s.
    """
    own = tuple(_scaled_charge(charge, part_of(charge.bucket)) for charge in plan.own)
    seats = tuple(_scaled_seats(seat, part_of(seat.holder)) for seat in plan.seats)
    least = min((part_of(charge.bucket) for charge in plan.own), default=1.0)
    return replace(plan, own=own, shadow=(), seats=seats, share=_scaled_share(plan.share, least), holds=())


def _scaled_charge(charge: Charge, part: float) -> Charge:
    """Scale one limit. One that is scaled up to `LEAST` keeps no reserve: it would be all there is."""
    burst = max(LEAST, charge.burst * part)
    reserve = min(charge.reserve * part, burst - LEAST)
    return replace(charge, rate_us=charge.rate_us * part, burst=burst, reserve=reserve, rate=None)


def _scaled_seats(seat: SeatCharge, part: float) -> SeatCharge:
    return replace(seat, seats=max(1, int(seat.seats * part)))


def _scaled_share(share: ShareCharge | None, part: float) -> ShareCharge | None:
    """Scale the demand that a tenant is credited with, as its own limits are. Its weight is the same."""
    if share is None:
        return None
    return replace(share, own_rate_us=share.own_rate_us * part, own_burst=max(LEAST, share.own_burst * part))
