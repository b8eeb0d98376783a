"""A pause is an own limit: it refuses what it covers, tells until when, and ends."""

from __future__ import annotations

import pytest

from policies.admit import FOREVER, Planner, judge
from policies.charge import Hold, Reading, Refusal
from policies.cost import UNMATCHED
from policies.pause import holds, next_end
from policies.policy import Match, Pause, Route
from policies.request import Class, Kind, Principal
from policies.units import SECOND, Micros
from policies.verdict import OWN_LIMITS, reason_of
from tests.policies.documents import anonymous, job, policy_set, rejected, user

__all__: list[str] = []

INTERACTIVE, BATCH = Class.INTERACTIVE, Class.BATCH
PREFLIGHT = Principal(Kind.PREFLIGHT, "anonymous", "192.0.2.1")


def pause(match: Match, until: Micros = 10 * SECOND) -> Pause:
    """Return a pause of ten seconds."""
    return Pause("pause-1", match, "incident", "sre", until)


@pytest.mark.parametrize(
    ("match", "principal", "cls", "held"),
    [
        (Match(cls=BATCH), user(), BATCH, True),
        (Match(cls=BATCH), user(), INTERACTIVE, False),
        (Match(cls=BATCH, tenant="acme"), user(), BATCH, True),
        (Match(cls=BATCH, tenant="acme"), user("beta"), BATCH, False),
        (Match(tenant="acme"), job(), BATCH, True),
        (Match(tenant="anonymous"), anonymous(), INTERACTIVE, True),
        (Match(cls=INTERACTIVE), rejected(), INTERACTIVE, False),
        (Match(cls=INTERACTIVE), PREFLIGHT, INTERACTIVE, False),
    ],
)
def test_covers(match: Match, principal: Principal, cls: Class, held: bool) -> None:
    """A pause holds what its match covers, but neither attempts to log in nor preflights."""
    policies = policy_set(pauses=(pause(match),))
    expected = (Hold("paused", 10 * SECOND),) if held else ()
    assert holds(policies, principal, cls, UNMATCHED, "GET", 0) == expected
    assert holds(policies, principal, cls, UNMATCHED, "GET", 10 * SECOND) == ()


def test_by_route_and_method() -> None:
    """A route and a method narrow a pause."""
    policies = policy_set(
        pauses=(pause(Match(route="exports", method="POST")),), routes=(Route("exports", "/exports"),)
    )
    planner = Planner(policies)
    assert planner.plan(user(), INTERACTIVE, 0, "", "POST").holds
    assert not planner.plan(user(), INTERACTIVE, 0, "", "GET").holds
    assert not planner.plan(user(), INTERACTIVE, UNMATCHED, "", "POST").holds


def test_the_longest_holds() -> None:
    """Of several pauses the longest is told; plans hold until the next one ends."""
    policies = policy_set(pauses=(pause(Match(cls=BATCH), 5 * SECOND), pause(Match(tenant="acme"), 9 * SECOND)))
    assert holds(policies, user(), BATCH, UNMATCHED, "GET", 0) == (Hold("paused", 9 * SECOND),)
    assert next_end(policies, 0) == 5 * SECOND
    assert next_end(policies, 5 * SECOND) == 9 * SECOND
    assert next_end(policies, 9 * SECOND) is None


def test_plans_end_with_a_pause() -> None:
    """A planner says when its plans are out of date, and has none with a hold after that."""
    planner = Planner(policy_set(pauses=(pause(Match(cls=BATCH)),)))
    assert planner.valid_until == 10 * SECOND
    assert planner.plan(user(), BATCH, UNMATCHED, "").holds
    planner.renew(10 * SECOND)
    assert planner.valid_until == FOREVER
    assert not planner.plan(user(), BATCH, UNMATCHED, "").holds


def test_named_with_its_true_wait() -> None:
    """`paused` is an own limit, and the one named where its wait is the longest."""
    plan = Planner(policy_set(pauses=(pause(Match(cls=BATCH)),))).plan(user(), BATCH, UNMATCHED, "")
    refused = (Refusal("key", SECOND), Refusal("paused", 10 * SECOND))
    verdict = judge(plan, Reading(refused, (0.0,)), 0, 0.0)
    assert verdict.refusal == refused[1]
    assert reason_of("paused") in OWN_LIMITS
