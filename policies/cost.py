"""Routes by index, and request units: what a request on one is taken to cost the service before it is made.

Rules
1. A cost is the route's, or 1; nothing in the request can lower it.
2. Estimated before, corrected after: correcting by rows, bytes or latency is `settle`'s to add.
"""

from __future__ import annotations

from policies.policy import PolicySet
from policies.units import RequestUnits

__all__ = ["UNMATCHED", "cost_of", "route_name"]

#: The route index of a request that no route matched.
UNMATCHED = -1


def cost_of(policies: PolicySet, route: int) -> RequestUnits:
    """Return the request units of a request on `route`, an index into `policies.routes` or UNMATCHED."""
    return 1.0 if route == UNMATCHED else policies.routes[route].cost


def route_name(policies: PolicySet, route: int) -> str:
    """Return the name of a route, "" for UNMATCHED."""
    return "" if route == UNMATCHED else policies.routes[route].name
