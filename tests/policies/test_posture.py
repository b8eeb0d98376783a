"""Without a store the posture answers: chosen by the nearest word of an operator, drawn by request, scaled by part."""

from __future__ import annotations

import random
from math import sqrt

import pytest

from policies.admit import FOREVER, Planner
from policies.charge import NEVER, Charge, Hold, Plan, Refusal, SeatCharge, ShareCharge
from policies.kernels import gcra
from policies.kernels.gcra import Bucket
from policies.policy import PostureAct, Route
from policies.posture import LEAST, admits_nothing, certain, chosen, next_change, read_posture, scaled
from policies.request import Class
from policies.units import SECOND, Micros
from tests.policies.documents import policy_set, user

__all__: list[str] = []

ROUTES = (Route("plain", "/plain"), Route("exports", "/exports", posture="closed"))
KEY = Charge("key", "limit=key", 100 / SECOND, 200.0, 1.0, Class.BATCH, reserve=50.0, floor=0.05, low=True)


def act(posture: str, route: str | None = None, until: Micros = 10 * SECOND) -> PostureAct:
    """Return an act of ten seconds."""
    return PostureAct(f"{posture} {route}", posture, route, "incident", "sre", until)


@pytest.mark.parametrize(
    ("acts", "now", "expected"),
    [
        ((), 0, ("open", "open", "closed")),
        ((act("deny:5"),), 0, ("deny:5", "deny:5", "closed")),
        ((act("deny:5"),), 10 * SECOND, ("open", "open", "closed")),
        ((act("deny:5"), act("deny:6")), 0, ("deny:6", "deny:6", "closed")),
        ((act("open", "exports"), act("closed")), 0, ("closed", "closed", "open")),
        ((act("open", "exports"), act("deny:7", "exports"), act("deny:8", "plain")), 0, ("open", "deny:8", "deny:7")),
        ((act("open", "exports", 5 * SECOND),), 5 * SECOND, ("open", "open", "closed")),
    ],
)
def test_the_nearest_word_holds(acts: tuple[PostureAct, ...], now: Micros, expected: tuple[str, ...]) -> None:
    """An act on the route, its own posture, an act on all, then the configured one; the latest of several."""
    policies = policy_set(routes=ROUTES, posture="open", posture_acts=acts)
    assert tuple(chosen(policies, route, now) for route in (-1, 0, 1)) == expected


def test_plans_carry_it_until_an_act_ends() -> None:
    """A plan knows its posture, and is out of date when an act on one ends."""
    planner = Planner(policy_set(routes=ROUTES, posture_acts=(act("open", "exports"), act("closed", None, SECOND))))
    assert [planner.plan(user(), Class.BATCH, route, "").posture for route in (-1, 0, 1)] == [
        "closed", "closed", "open",
    ]  # fmt: skip
    assert planner.valid_until == SECOND
    planner.renew(SECOND)
    assert planner.plan(user(), Class.BATCH, -1, "").posture == "safe-capacity"
    assert planner.valid_until == 10 * SECOND
    planner.renew(10 * SECOND)
    assert planner.valid_until == FOREVER
    assert next_change(policy_set(), 0) is None


@pytest.mark.parametrize(
    ("posture", "acts", "nothing"),
    [
        ("closed", (), True),
        ("deny:100", (), True),
        ("deny:99", (), False),
        ("safe-capacity", (), False),
        ("closed", (act("open", "plain"),), False),
        ("open", (act("closed"),), True),
    ],
)
def test_what_admits_nothing(posture: str, acts: tuple[PostureAct, ...], nothing: bool) -> None:
    """A gateway is of no use without a store only if no route and no act lets anything through."""
    routes = (Route("plain", "/plain"), Route("exports", "/exports", posture="closed"))
    assert admits_nothing(policy_set(routes=routes, posture=posture, posture_acts=acts), 0) is nothing


@pytest.mark.parametrize(
    ("name", "part"), [("open", 0.0), ("deny:0", 0.0), ("deny:1", 0.01), ("deny:30", 0.3), ("deny:99", 0.99),
                       ("deny:100", 1.0), ("closed", 1.0)],
)  # fmt: skip
def test_the_percentage_is_the_percentage(name: str, part: float) -> None:
    """Each request is drawn for: within 3 standard deviations overall and per key; 0 and 100 are exact (case 71)."""
    posture = read_posture(name)
    draw = random.Random(71).random
    per_key = [sum(posture.refuses(draw()) for _ in range(1000)) for _ in range(20)]
    assert abs(sum(per_key) - part * 20_000) <= 3 * sqrt(20_000 * part * (1 - part))
    # Of twenty keys, one in nineteen such tables has one beyond 3; none is beyond 4.
    assert all(abs(refused - part * 1000) <= 4 * sqrt(1000 * part * (1 - part)) for refused in per_key)


def test_safe_capacity_draws_for_nobody() -> None:
    """Under safe capacity the limits decide."""
    assert not read_posture("safe-capacity").refuses(0.0)


def test_what_needs_no_store() -> None:
    """A pause that is on, and a quota of zero, refuse whatever a store would say."""
    zero = Charge("key", "limit=key", 0.0, 1.0, 1.0, Class.BATCH)
    plan = Plan("t", "c", Class.BATCH, 1.0, (zero, KEY), (), (), None, holds=(Hold("paused", SECOND),))
    assert certain(plan, 0) == (Refusal("key", NEVER), Refusal("paused", SECOND))
    assert certain(plan, SECOND) == (Refusal("key", NEVER),)


def test_every_limit_is_scaled_by_its_part() -> None:
    """Rate, burst, reserve, seats and demand by the part; cost, class, floor and weight as they were."""
    share = ShareCharge("t", 2.0, True, 1.0, Class.BATCH, 100 / SECOND, 200.0)
    plan = Plan("t", "c", Class.BATCH, 1.0, (KEY,), (KEY,), (SeatCharge("t", 9),), share, holds=(Hold("paused", 9),))
    small = scaled(plan, {"limit=key": 0.25, "t": 0.5}.__getitem__)
    key = small.own[0]
    assert (key.rate_us * SECOND, key.burst, key.reserve, key.floor, key.cost) == (25.0, 50.0, 12.5, 0.05, 1.0)
    assert (small.seats[0].seats, small.shadow, small.holds) == (4, (), ())
    assert small.share is not None
    assert (small.share.own_rate_us * SECOND, small.share.own_burst, small.share.weight) == (25.0, 50.0, 2.0)
    assert scaled(Plan("t", "c", Class.BATCH, 1.0, (), (), (), None), lambda _: 0.1).share is None


@pytest.mark.parametrize("part", [0.2, 0.01, 1 / 64])
def test_nothing_is_rounded_to_nothing(part: float) -> None:
    """A scaled bucket admits one unit each 1/(its rate), for either class, and one seat is left (case 39)."""
    plan = Plan("t", "c", Class.BATCH, 1.0, (KEY,), (), (SeatCharge("t", 3),), None)
    small = scaled(plan, lambda _: part * 0.003)
    charge = small.own[0]
    assert (charge.burst, small.seats[0].seats) == (LEAST, 1)
    bucket = Bucket(charge.rate_us, charge.burst, 0)
    step = 1 / charge.rate_us
    admitted = 0
    for turn in range(20):
        now = int(turn * step) + turn
        if gcra.admits(bucket, charge, now):
            gcra.take(bucket, charge, now)
            admitted += 1
    assert admitted == 20
