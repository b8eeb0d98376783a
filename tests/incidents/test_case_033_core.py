"""Case 33, the decision: no record locks a key for ever; each is gone once it says nothing any more."""

from __future__ import annotations

import random

import pytest

from policies.policy import Characteristic, Match, Policy, Route
from policies.units import SECOND
from tests.clock import EPOCH
from tests.incidents.simulated import Simulated
from tests.policies.documents import acme, anonymous, credential, policy_set, quota, rejected, tenants, user

__all__: list[str] = []


@pytest.mark.parametrize("seed", range(20))
def test_every_record_expires(seed: int) -> None:
    """Whatever was asked, by whom, at what cost and class, and however often refused: later nothing is left of it."""
    dice = random.Random(seed)
    named = Policy("per-address", Match(), (Characteristic.ADDRESS,), quota(2, 4))
    routes = (Route("dear", "/dear", cost=50.0),)
    entry = acme(credential("ci", quota(10, 20), concurrency=5), quota=quota(15, 30))
    gateway = Simulated(policy_set(tenants=tenants(entry), policies=(named,), routes=routes))
    held = []
    for number in range(500):
        who = dice.choice((user(), user(name=f"n{dice.randrange(50)}"), anonymous("192.0.2.8"), rejected("192.0.2.9")))
        verdict = gateway.ask(who, number * 20_000, dice.choice((None, "batch")), path=dice.choice(("/", "/dear")))
        held += [verdict] * verdict.admitted
    for verdict in held:
        gateway.end(verdict)
    assert gateway.store.seats_taken == 0
    # The deepest debt is one dear request on a full bucket of the slowest quota: 50 units at 2/s, and then its burst.
    for tick in range(60):
        gateway.store.tick(EPOCH + 600 * SECOND + tick)
    fixed = gateway.store.keys
    assert fixed <= 3, "only what is configured may stay"
    assert sum(gateway.ask(user(), 600 * SECOND).admitted for _ in range(4)) == 4
