"""Case 105, the decision: state is bounded whatever keys callers make up, and idle buckets are dropped."""

from __future__ import annotations

import pytest

from policies.policy import Characteristic, Match, Policy
from policies.units import SECOND
from tests.clock import EPOCH
from tests.incidents.simulated import Simulated
from tests.policies.documents import anonymous, policy_set, quota, rejected, user

__all__: list[str] = []


@pytest.mark.untraced
def test_new_key_with_every_request_is_bounded() -> None:
    """Random addresses, paths, methods and failed tokens: neither buckets nor plans grow past their bounds."""
    narrow = Policy("per-address", Match(), (Characteristic.ADDRESS, Characteristic.TENANT), quota(1, 1))
    gateway = Simulated(policy_set(policies=(narrow,)), max_keys=2000)
    for number in range(25_000):
        who = (anonymous, rejected)[number % 2](f"203.0.{number % 251}.{number}")
        gateway.ask(who, number * 10, method=f"M{number}", path=f"/{number}")
    assert gateway.store.keys <= 2000 + 5
    assert gateway.planner.kept <= 20_000


def test_flood_does_not_touch_configured_keys() -> None:
    """While strangers share an overflow bucket, a configured key has its own, untouched."""
    gateway = Simulated(policy_set(), max_keys=100)
    for number in range(1000):
        gateway.ask(anonymous(f"203.0.113.{number}"), 0)
    assert gateway.store.overflow_requests > 0
    assert [gateway.ask(user(), 0).admitted for _ in range(20)] == [True] * 20


def test_valid_keys_seen_once_are_forgotten() -> None:
    """Many keys used once each leave nothing behind after the time they need to be full again."""
    gateway = Simulated(policy_set(backstop=quota(10**6, 10**6)), max_keys=100_000)
    for number in range(5000):
        gateway.ask(user(tenant="acme", name=f"minted-{number}"), number)
    assert gateway.store.keys > 4000
    for tick in range(40):
        gateway.store.tick(EPOCH + 10 * SECOND + tick)
    assert gateway.store.keys == 0
