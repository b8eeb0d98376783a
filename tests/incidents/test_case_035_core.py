"""Case 35, the decision: admission is one step, for tokens and for seats."""

from __future__ import annotations

from collections import deque

import pytest

from policies.units import SECOND
from policies.verdict import Verdict
from tests.incidents.simulated import Simulated
from tests.policies.documents import acme, credential, policy_set, quota, tenants, user

__all__: list[str] = []


@pytest.mark.untraced
def test_barrier_of_requests_gets_exactly_the_burst() -> None:
    """500 requests of the same instant on a fresh bucket of burst 20, 200 rounds: exactly 20 admitted in each."""
    gateway = Simulated(policy_set(tenants=tenants(acme(credential("ci", quota(10, 20))))))
    for round_ in range(200):
        now = round_ * 10 * SECOND
        assert sum(gateway.ask(user(), now).admitted for _ in range(500)) == 20


def test_never_an_eleventh_in_flight() -> None:
    """10 seats, 500 requests, each admitted one held for a while: never more than 10 at a time, never a seat lost."""
    entry = acme(credential("ci", quota(10**6, 10**6), concurrency=10))
    gateway = Simulated(policy_set(tenants=tenants(entry), backstop=quota(10**6, 10**6)))
    held: deque[Verdict] = deque()
    for number in range(500):
        verdict = gateway.ask(user(), number * 1000)
        assert verdict.admitted is (len(held) < 10)
        if verdict.admitted:
            held.append(verdict)
        if number % 3 == 0 and held:
            gateway.end(held.popleft())
    while held:
        gateway.end(held.popleft())
    assert gateway.store.seats_taken == 0
