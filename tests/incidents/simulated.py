"""The whole decision in simulated time: planner, memory store and judge, without a socket."""

from __future__ import annotations

import random

from gateway.stores.memory import MemoryStore
from policies.admit import Planner, judge
from policies.charge import Plan
from policies.classify import Classifier
from policies.policy import PolicySet
from policies.request import Class, Principal
from policies.units import SECOND, Micros
from policies.verdict import Verdict
from tests.clock import EPOCH

__all__ = ["Simulated", "jittered"]


class Simulated:
    """A gateway's decisions over `policies`. Seats of admitted requests are kept until `end`."""

    def __init__(self, policies: PolicySet, max_keys: int = 10_000) -> None:
        self.policies = policies
        self.planner, self.classifier = Planner(policies), Classifier(policies)
        self.store = MemoryStore(policies, max_keys, EPOCH)

    def plan(self, principal: Principal, asked: str | None = None, method: str = "GET", path: str = "/") -> Plan:
        """Return what a request asks of the store."""
        route = self.classifier.route(method, path)
        cls: Class = self.classifier.cls(principal, route, asked)[0]
        return self.planner.plan(principal, cls, route, "192.0.2.1", method)

    def ask(
        self, principal: Principal, now: Micros, asked: str | None = None, method: str = "GET", path: str = "/"
    ) -> Verdict:
        """Decide one request `now` microseconds after the start."""
        plan = self.plan(principal, asked, method, path)
        return judge(plan, self.store.take(plan, EPOCH + now), EPOCH + now, 0.0)

    def end(self, verdict: Verdict) -> None:
        """End an admitted request: its seats are free again."""
        self.store.release(verdict.plan)


def jittered(rate: float, seconds: float, jitter: Micros = 0, seed: int = 1) -> list[Micros]:
    """Return the instants of `rate` arrivals a second, each late by up to `jitter` as an event loop is."""
    draw = random.Random(seed)
    gap = SECOND / rate
    return sorted(int(number * gap) + draw.randint(0, jitter) for number in range(int(rate * seconds)))
