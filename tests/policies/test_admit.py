"""The decision as a table: what is asked of a store for whom, and what its answer means."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from policies.admit import FOREVER, Planner, enforced_at, judge
from policies.charge import NEVER, Plan, Reading, Refusal, SeatCharge
from policies.cost import UNMATCHED
from policies.policy import Characteristic, ClassRule, Exemption, Match, Mode, Policy, PolicySet, Route, TenantRules
from policies.request import Class, Kind, Principal
from policies.units import SECOND
from tests.policies.documents import acme, anonymous, credential, job, policy_set, quota, rejected, tenants, user

__all__: list[str] = []

INTERACTIVE, BATCH = Class.INTERACTIVE, Class.BATCH
PREFLIGHT = Principal(Kind.PREFLIGHT, "anonymous", "192.0.2.1")

TENANTS = tenants(
    acme(
        credential("ci", quota(10, 20), concurrency=3),
        credential("sized"),
        quota=quota(50, 100),
        weight=3.0,
        concurrency=7,
    ),
    TenantRules("beta", sized=True),
)
ROUTES = (Route("exports", "/exports", cls=BATCH, cost=5.0), Route("login", "/login"))


def _policy(name: str, *key: Characteristic, match: Match | None = None, mode: Mode = Mode.ENFORCE) -> Policy:
    return Policy(name, match or Match(), key, quota(2, 3), mode)


POLICIES = (
    _policy("per-address", Characteristic.ADDRESS, match=Match(route="login")),
    _policy("per-project", Characteristic.PROJECT),
    _policy("tried", Characteristic.TENANT, match=Match(tenant="acme"), mode=Mode.SHADOW),
    _policy("gone", Characteristic.TENANT, mode=Mode.OFF),
    _policy("posts", Characteristic.TENANT, match=Match(method="POST", identity=Kind.USER)),
)


@pytest.fixture
def planner() -> Planner:
    """Plan with all of the tables above."""
    return Planner(policy_set(tenants=TENANTS, routes=ROUTES, policies=POLICIES))


@pytest.mark.parametrize(
    ("principal", "route", "method", "own", "shadow", "seats"),
    [
        (user(), UNMATCHED, "GET", ["key", "tenant"], ["tried"], [3, 7]),
        (user(), UNMATCHED, "POST", ["key", "tenant", "posts"], ["tried"], [3, 7]),
        (user(), 1, "GET", ["key", "tenant", "per-address"], ["tried"], [3, 7]),
        (user(name="sized"), UNMATCHED, "GET", ["tenant"], ["key", "tried"], [7]),
        (user(name="minted"), UNMATCHED, "GET", ["tenant"], ["key", "tried"], [7]),
        (job(), UNMATCHED, "GET", ["tenant", "per-project"], ["key", "tried"], [7]),
        (user(tenant="beta"), UNMATCHED, "GET", [], ["key", "tenant"], []),
        (user(tenant="minted"), UNMATCHED, "GET", [], ["key"], []),
        (anonymous(), UNMATCHED, "GET", ["key"], [], []),
        (anonymous(), 1, "POST", ["key", "per-address"], [], []),
        (PREFLIGHT, UNMATCHED, "OPTIONS", ["key"], [], []),
        (rejected(), UNMATCHED, "GET", ["key"], [], []),
    ],
)
def test_plan_lists_what_applies(
    planner: Planner,
    principal: Principal,
    route: int,
    method: str,
    own: list[str],
    shadow: list[str],
    seats: list[int],
) -> None:
    """Key, tenant, then named policies; what is not enforced yet is asked in shadow; seats of credential and tenant."""
    plan = planner.plan(principal, INTERACTIVE, route, "198.51.100.7", method)
    assert [charge.limit for charge in plan.own] == own
    assert [charge.limit for charge in plan.shadow] == shadow
    assert [seat.seats for seat in plan.seats] == seats
    assert (plan.tenant, plan.credential) == (principal.tenant, principal.credential)


def test_buckets_and_seats_are_named_one_to_one(planner: Planner) -> None:
    """Every bucket of a plan has a name of its own, made of what it holds together."""
    plan = planner.plan(user(), INTERACTIVE, 1, "198.51.100.7", "POST")
    assert [charge.bucket for charge in (*plan.own, *plan.shadow)] == [
        "limit=key,tenant=acme,credential=ci",
        "limit=tenant,tenant=acme",
        "limit=per-address,address=198.51.100.7",
        "limit=posts,tenant=acme",
        "limit=tried,tenant=acme",
    ]
    assert [charge.pinned for charge in (*plan.own, *plan.shadow)] == [True, True, False, True, True]
    assert plan.seats == (SeatCharge("tenant=acme,credential=ci", 3), SeatCharge("tenant=acme", 7, "tenant"))


def test_batch_leaves_the_reserve_of_key_and_tenant(planner: Planner) -> None:
    """Reserve and floor belong to key and tenant, not to named policies; the cost is the route's."""
    plan = planner.plan(user(), BATCH, 0, "198.51.100.7", "POST")
    assert plan.cost == 5.0
    assert [(charge.limit, charge.low, charge.reserve, charge.floor, charge.cost) for charge in plan.own] == [
        ("key", True, 5.0, 0.05, 5.0),
        ("tenant", True, 25.0, 0.05, 5.0),
        ("posts", False, 0.0, 0.0, 5.0),
    ]
    high = planner.plan(user(), INTERACTIVE, 0, "198.51.100.7", "POST").own[0]
    assert (high.low, high.reserve, high.floor) == (False, 0.0, 0.05)


@pytest.mark.parametrize(
    ("principal", "weight", "listed"),
    [
        (user(), 3.0, True),
        (job(), 3.0, True),
        (user(tenant="beta"), 1.0, True),
        (user(tenant="minted", listed=False), 1.0, False),
        (anonymous(), 2.0, True),
        (PREFLIGHT, 2.0, True),
    ],
)
def test_share_is_the_tenants(principal: Principal, weight: float, listed: bool) -> None:
    """The share is asked for the tenant at its weight; anonymous callers are one tenant; minted ones are not listed."""
    planner = Planner(policy_set(tenants=TENANTS, anonymous_weight=2.0))
    share = planner.plan(principal, INTERACTIVE, UNMATCHED, "").share
    assert share is not None
    assert (share.tenant, share.weight, share.listed, share.cost) == (principal.tenant, weight, listed, 1.0)


def test_share_of_rejected_is_not_asked(planner: Planner) -> None:
    """What will not be forwarded asks nothing of the backstop."""
    assert planner.plan(rejected(), INTERACTIVE, UNMATCHED, "").share is None


def test_equal_shares_are_one_object(planner: Planner) -> None:
    """Two keys of a tenant ask for the same share, and it is the same object."""
    one = planner.plan(user(name="sized"), INTERACTIVE, UNMATCHED, "")
    two = planner.plan(user(name="minted"), INTERACTIVE, UNMATCHED, "")
    assert one.share is two.share


def test_plans_are_compiled_once_for_what_they_depend_on(planner: Planner) -> None:
    """The same principal, class, route, method and address have one plan; whatever differs has its own."""
    base = planner.plan(user(), INTERACTIVE, 1, "a", "GET")
    assert planner.plan(user(), INTERACTIVE, 1, "a", "GET") is base
    assert planner.plan(user(), INTERACTIVE, 1, "a", "PUT") is base
    others = [
        planner.plan(user(), INTERACTIVE, 1, "a", "POST"),
        planner.plan(user(), INTERACTIVE, 1, "b", "GET"),
        planner.plan(user(), INTERACTIVE, 0, "a", "GET"),
        planner.plan(user(), BATCH, 1, "a", "GET"),
        planner.plan(user(name="sized"), INTERACTIVE, 1, "a", "GET"),
    ]
    assert len({id(plan) for plan in (base, *others)}) == 6


def test_plans_are_bounded() -> None:
    """Two generations of plans are kept: one that is used stays, one that is not is forgotten."""
    planner = Planner(policy_set(), max_plans=4)
    used = planner.plan(user(), INTERACTIVE, UNMATCHED, "")
    idle = planner.plan(user(name="idle"), INTERACTIVE, UNMATCHED, "")
    for number in range(20):
        planner.plan(anonymous(f"192.0.2.{number}"), INTERACTIVE, UNMATCHED, "")
        assert planner.plan(user(), INTERACTIVE, UNMATCHED, "") is used
    assert planner.plan(user(name="idle"), INTERACTIVE, UNMATCHED, "") is not idle
    assert planner.kept <= 8


def test_forgotten_plans_are_let_go_of_in_steps() -> None:
    """Whether a plan was forgotten by age, by an end of something, or with its planner, it goes in the end."""
    planner = Planner(policy_set(), max_plans=4)
    assert not planner.forget(10)
    for number in range(13):
        planner.plan(anonymous(f"192.0.2.{number}"), INTERACTIVE, UNMATCHED, "")
    assert planner.forget(3)
    while planner.forget(3):
        pass
    planner.renew(0)
    assert planner.forget(1)
    planner.plan(user(), INTERACTIVE, UNMATCHED, "")
    planner.retire()
    assert planner.kept == 0
    steps = 0
    while planner.forget(1):
        steps += 1
    assert 5 < steps < 40


def test_exemption_is_planned_until_it_ends() -> None:
    """An exempted key has its higher quota, in the same bucket, until the exemption ends; the plan names it."""
    launch = Exemption("launch", Match(tenant="acme"), "launch", "sre", 10 * SECOND, multiplier=4.0)
    planner = Planner(policy_set(tenants=TENANTS, exemptions=(launch,)), now=0)
    plan = planner.plan(user(), INTERACTIVE, UNMATCHED, "")
    assert [charge.burst for charge in plan.own] == [80.0, 400.0]
    assert (plan.exemption, plan.own[0].bucket) == ("launch", "limit=key,tenant=acme,credential=ci")
    assert plan.share is not None
    assert plan.share.own_rate_us == pytest.approx(200 / SECOND)
    assert planner.valid_until == 10 * SECOND
    planner.renew(10 * SECOND)
    plan = planner.plan(user(), INTERACTIVE, UNMATCHED, "")
    assert ([charge.burst for charge in plan.own], plan.exemption) == ([20.0, 100.0], "")
    assert planner.valid_until == FOREVER


def test_what_applied_is_known_until_plans_are_renewed(planner: Planner) -> None:
    """Policies that some request was asked by, in shadow too; never one that is off."""
    assert planner.applied == set()
    planner.plan(user(), INTERACTIVE, 1, "a", "GET")
    assert planner.applied == {"tried", "per-address"}
    planner.plan(job(), BATCH, UNMATCHED, "a", "GET")
    assert planner.applied == {"tried", "per-address", "per-project"}
    planner.renew(5)
    assert planner.applied == set()
    planner.plan(user(), INTERACTIVE, UNMATCHED, "a", "POST")
    assert planner.applied == {"tried", "posts"}


@given(st.integers(0, 10_000), st.floats(0, 100))
def test_percent_is_stable_and_only_grows(key: int, percent: float) -> None:
    """A key that is enforced at some percentage is enforced at every higher one, in every process."""
    bucket = f"limit=p,address={key}"
    at = [enforced_at(Policy("p", Match(), (), quota(1), percent=part), bucket) for part in (0.0, percent, 100.0)]
    assert at == sorted(at)
    assert (at[0], at[2]) == (False, True)


@pytest.mark.parametrize("percent", [1.0, 25.0, 50.0, 99.0])
def test_percent_of_keys_is_enforced(percent: float) -> None:
    """About `percent` of a policy's keys are enforced, the rest run in shadow; another policy has another cohort."""
    policies = [Policy(name, Match(), (Characteristic.ADDRESS,), quota(1), percent=percent) for name in ("p", "q")]
    planner = Planner(policy_set(policies=tuple(policies)))
    cohorts: list[set[int]] = [set(), set()]
    for number in range(2000):
        plan = planner.plan(user(), INTERACTIVE, UNMATCHED, f"address{number}")
        for cohort, name in zip(cohorts, ("p", "q"), strict=True):
            if name in [charge.limit for charge in plan.own]:
                cohort.add(number)
            else:
                assert name in [charge.limit for charge in plan.shadow]
    for cohort in cohorts:
        assert len(cohort) == pytest.approx(20 * percent, abs=4 * (20 * percent * (1 - percent / 100)) ** 0.5)
    assert cohorts[0] != cohorts[1]


def _plan() -> Plan:
    return Planner(policy_set()).plan(user(), INTERACTIVE, UNMATCHED, "")


@pytest.mark.parametrize(
    ("refused", "named"),
    [
        ([("key", 10)], "key"),
        ([("key", 10), ("tenant", 20)], "tenant"),
        ([("key", 30), ("tenant", 20)], "key"),
        ([("tenant", 20), ("login-per-address", NEVER), ("key", 10**12)], "login-per-address"),
        ([("key", 10), ("concurrency", SECOND)], "concurrency"),
        ([("backstop", 99), ("share", 5)], "share"),
        ([("backstop", 99), ("class", 5)], "class"),
        ([("class", 5), ("share", 1)], "share"),
        ([("backstop", 99), ("key", 5)], "key"),
        ([("posture", 7)], "posture"),
    ],
)
def test_longest_own_wait_is_named(refused: list[tuple[str, int]], named: str) -> None:
    """Own limits come first, the longest wait of them; never is the longest. `share` outranks `class` and the rest."""
    reading = Reading(tuple(Refusal(limit, wait) for limit, wait in refused), ())
    verdict = judge(_plan(), reading, 0, 0.0)
    assert verdict.refusal is not None
    assert (verdict.refusal.limit, verdict.admitted) == (named, False)
    assert verdict.refusal.wait_us == dict(refused)[named]


@pytest.mark.parametrize(
    ("wait", "jitter", "told"),
    [
        (0, 0.999, 0),
        (8 * SECOND, 0.0, 8 * SECOND),
        (8 * SECOND, 0.5, 9 * SECOND),
        (400 * SECOND, 0.5, 415 * SECOND),
        (NEVER, 0.5, 0),
    ],
)
def test_told_wait_is_jittered(wait: int, jitter: float, told: int) -> None:
    """Jitter adds up to a quarter of the wait, at most 30 s; what can never be admitted is told nothing."""
    assert judge(_plan(), Reading((Refusal("key", wait),), ()), 0, jitter).retry_us == told


def test_nothing_refused_is_admitted() -> None:
    """A reading without a refusal is an admission."""
    plan, reading = _plan(), Reading((), (1.0,))
    verdict = judge(plan, reading, 5, 0.9)
    assert (verdict.plan, verdict.reading, verdict.now, verdict.refusal, verdict.retry_us) == (
        plan,
        reading,
        5,
        None,
        0,
    )
    assert verdict.admitted


def test_classes_of_equal_priority_leave_each_other_nothing() -> None:
    """Without an order there is no reserve."""
    policies: PolicySet = policy_set(classes=(ClassRule(0), ClassRule(0, reserve=0.25, floor=0.05)))
    charge = Planner(policies).plan(user(), BATCH, UNMATCHED, "").own[0]
    assert (charge.low, charge.reserve, charge.floor) == (False, 0.0, 0.0)
