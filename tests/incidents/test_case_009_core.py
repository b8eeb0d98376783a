"""Case 9, the decision: a key's bucket is one bucket over all routes and methods."""

from __future__ import annotations

from policies.policy import Route
from tests.incidents.simulated import Simulated
from tests.policies.documents import acme, credential, policy_set, quota, tenants, user

__all__: list[str] = []


def test_bucket_is_one_over_routes_and_methods() -> None:
    """40 at once over 8 routes and 3 methods: exactly the burst of 20 is admitted."""
    routes = tuple(Route(f"r{number}", f"/r{number}") for number in range(7))
    gateway = Simulated(policy_set(routes=routes, tenants=tenants(acme(credential("ci", quota(10, 20))))))
    methods = ("GET", "POST", "DELETE")
    verdicts = [gateway.ask(user(), 0, method=methods[n % 3], path=f"/r{n % 8}") for n in range(40)]
    assert [verdict.admitted for verdict in verdicts] == [True] * 20 + [False] * 20
