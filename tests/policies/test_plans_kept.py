"""A principal keeps the plan that it was asked by last. What it keeps is never used when another one is due."""

from __future__ import annotations

import pytest

from policies.admit import Planner
from policies.cost import UNMATCHED
from policies.policy import Characteristic, Exemption, Match, Policy, Route
from policies.request import Class, Principal
from policies.units import SECOND
from tests.policies.documents import acme, anonymous, credential, policy_set, quota, tenants, user

__all__: list[str] = []

INTERACTIVE, BATCH = Class.INTERACTIVE, Class.BATCH
POLICIES = policy_set(
    tenants=tenants(acme(credential("ci", quota(10, 20)))),
    routes=(Route("exports", "/exports"), Route("login", "/login")),
    policies=(Policy("posts", Match(method="POST"), (Characteristic.TENANT,), quota(2, 3)),),
)
ADDRESSED = Policy("per-address", Match(), (Characteristic.ADDRESS,), quota(2, 3))


def asked(planner: Planner, principal: Principal) -> list[float]:
    """Return the bursts of the plan that `principal` has now, which is the one that anybody of its name has."""
    plan = planner.plan(principal, INTERACTIVE, UNMATCHED, "a")
    assert plan is planner.plan(principal, INTERACTIVE, UNMATCHED, "a")
    assert plan is planner.plan(user(), INTERACTIVE, UNMATCHED, "a")
    return [charge.burst for charge in plan.own]


def test_each_class_route_and_method_has_its_plan() -> None:
    """Whatever was asked before, and whoever else of that name asks in between."""
    planner, principal = Planner(POLICIES), user()
    ways = [(cls, route, method) for cls in Class for route in (UNMATCHED, 0, 1) for method in ("GET", "POST")]
    plans = [planner.plan(user(), cls, route, "a", method) for cls, route, method in ways]
    assert len({id(plan) for plan in plans}) == len(ways)
    for _ in range(3):
        for plan, (cls, route, method) in zip(plans, ways, strict=True):
            assert planner.plan(principal, cls, route, "a", method) is plan
            assert planner.plan(principal, cls, route, "b", method) is plan
            assert principal.plan is plan


def test_other_policies_have_other_plans() -> None:
    """After a reload the new planner decides; two planners asked in turn, as a rehearsal does, never mix."""
    before, principal = Planner(POLICIES), user()
    assert asked(before, principal) == [20.0]
    after = Planner(policy_set(tenants=tenants(acme(credential("ci", quota(10, 7))))))
    for _ in range(3):
        assert asked(after, principal) == [7.0]
        assert asked(before, principal) == [20.0]
    before.retire()
    assert asked(after, principal) == [7.0]
    while before.forget(10):
        pass
    assert asked(after, principal) == [7.0]


def test_a_plan_ends_with_what_it_was_compiled_for() -> None:
    """An exemption that ended is in no plan any more, though the principal is the same."""
    launch = Exemption("launch", Match(tenant="acme"), "launch", "sre", 10 * SECOND, multiplier=4.0)
    planner, principal = Planner(policy_set(tenants=POLICIES.tenants, exemptions=(launch,))), user()
    assert asked(planner, principal) == [80.0]
    planner.renew(10 * SECOND)
    assert asked(planner, principal) == [20.0]


def test_an_address_has_a_plan_of_its_own() -> None:
    """Where a policy looks at it, what was asked from another address is no plan for this one."""
    planner, principal = Planner(policy_set(policies=(ADDRESSED,))), user()
    plans = {address: planner.plan(principal, INTERACTIVE, UNMATCHED, address) for address in "ab"}
    for address in "abab":
        plan = planner.plan(principal, INTERACTIVE, UNMATCHED, address)
        assert plan is plans[address]
        assert plan.own[-1].bucket.endswith(address)


def test_one_that_is_used_stays_and_is_looked_for_once_a_generation() -> None:
    """However many others come: it moves to each young generation, and what was forgotten is compiled anew."""
    planner, used, idle = Planner(POLICIES, max_plans=4), user(), user(name="idle")
    plans = [planner.plan(one, INTERACTIVE, UNMATCHED, "") for one in (used, idle)]
    for number in range(40):
        planner.plan(anonymous(f"192.0.2.{number}"), INTERACTIVE, UNMATCHED, "")
        assert planner.plan(used, INTERACTIVE, UNMATCHED, "") is plans[0]
    assert idle.plan is None
    assert planner.plan(idle, INTERACTIVE, UNMATCHED, "") is not plans[1]


@pytest.mark.parametrize("end", ["age", "renew", "retire"])
def test_a_forgotten_plan_is_nobodys(end: str) -> None:
    """Nothing keeps it alive that is not bounded with the plans: its owner lets go of it in the same step."""
    planner = Planner(POLICIES, max_plans=4)
    principals = [anonymous(f"192.0.2.{number}") for number in range(8)]
    for principal in principals:
        planner.plan(principal, INTERACTIVE, UNMATCHED, "")
    assert all(principal.plan for principal in principals)
    if end == "age":
        for number in range(100, 120):
            planner.plan(anonymous(f"192.0.2.{number}"), INTERACTIVE, UNMATCHED, "")
    elif end == "renew":
        planner.renew(0)
    else:
        planner.retire()
    while planner.forget(1):
        pass
    assert not any(principal.plan for principal in principals)


def test_a_plan_has_one_owner() -> None:
    """Of two tokens of one name the one that asked last; a principal that asks otherwise by now loses nothing."""
    planner, first, second = Planner(POLICIES), user(), user()
    plan = planner.plan(first, INTERACTIVE, UNMATCHED, "")
    assert planner.plan(second, INTERACTIVE, UNMATCHED, "") is plan
    assert (first.plan, second.plan) == (None, plan)
    other = planner.plan(second, BATCH, UNMATCHED, "")
    assert planner.plan(first, INTERACTIVE, UNMATCHED, "") is plan
    assert (first.plan, second.plan) == (plan, other)
    assert first == second
    assert hash(first) == hash(second)


def test_what_is_forgotten_never_grows() -> None:
    """Without anybody who calls `forget`, as fast as callers come: each new plan lets go of some old ones."""
    planner = Planner(POLICIES, max_plans=50)
    for number in range(2_000):
        planner.plan(anonymous(f"10.0.{number >> 8}.{number & 255}"), INTERACTIVE, UNMATCHED, "")
        assert planner.kept + sum(map(len, planner._gone)) <= 150


def test_a_reload_in_the_middle_leaves_nothing() -> None:
    """Plans of before are let go of though there are as many of the generation before them."""
    planner = Planner(POLICIES, max_plans=10)
    principals = [anonymous(f"192.0.2.{number}") for number in range(35)]
    for principal in principals:
        planner.plan(principal, INTERACTIVE, UNMATCHED, "")
    planner.renew(0)
    planner.renew(0)
    while planner.forget(100):
        pass
    assert not any(principal.plan for principal in principals)
