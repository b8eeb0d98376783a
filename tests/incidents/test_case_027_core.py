"""Case 27, the decision: what its own bucket refuses does not drain the backstop."""

from __future__ import annotations

import heapq

from policies.policy import TenantRules
from policies.units import SECOND
from tests.incidents.simulated import Simulated, jittered
from tests.policies.documents import credential, policy_set, quota, tenants, user

__all__: list[str] = []

NAMES = "abcdefghi"


def test_noisy_refused_caller_starves_nobody() -> None:
    """A offers 2,000/s on 10/s while B to I send 8/s beside it, backstop 100/s: all of B to I are admitted."""
    entries = (TenantRules(name, credentials={"ci": credential("ci", quota(10, 20))}) for name in NAMES)
    gateway = Simulated(policy_set(tenants=tenants(*entries), backstop=quota(100, 100)))
    streams = [[(now, "a") for now in jittered(2000, 10)]]
    streams += [[(now, name) for now in jittered(8, 10, SECOND // 20, seed)] for seed, name in enumerate(NAMES[1:])]
    admitted = dict.fromkeys(NAMES, 0)
    for now, name in heapq.merge(*streams):
        verdict = gateway.ask(user(tenant=name), now)
        admitted[name] += verdict.admitted
        assert verdict.admitted or (verdict.refusal is not None and verdict.refusal.limit == "key")
    assert {name: count for name, count in admitted.items() if name != "a"} == dict.fromkeys(NAMES[1:], 80)
    assert 115 <= admitted["a"] <= 121
