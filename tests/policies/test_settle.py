"""What goes back when a request has ended."""

from __future__ import annotations

import pytest

from policies.admit import Planner
from policies.charge import Reading, Refusal
from policies.cost import UNMATCHED, cost_of, route_name
from policies.policy import Route
from policies.request import Class, Kind
from policies.settle import Corrections, corrections, own_outcome
from policies.verdict import Outcome, Verdict
from tests.policies.documents import policy_set, user

__all__: list[str] = []

TAKEN = Reading((), ())
REFUSED = Reading((Refusal("key", 1),), ())


@pytest.mark.parametrize(
    ("reading", "kind", "sent", "expected"),
    [
        (None, Kind.USER, False, Corrections(release=False, give_back=False)),
        (REFUSED, Kind.USER, False, Corrections(release=False, give_back=False)),
        (REFUSED, Kind.USER, True, Corrections(release=False, give_back=False)),
        (TAKEN, Kind.USER, True, Corrections(release=True, give_back=False)),
        (TAKEN, Kind.USER, False, Corrections(release=True, give_back=True)),
        (TAKEN, Kind.REJECTED, False, Corrections(release=True, give_back=False)),
        (TAKEN, Kind.ANONYMOUS, False, Corrections(release=True, give_back=True)),
    ],
)
def test_corrections(reading: Reading | None, kind: Kind, sent: bool, expected: Corrections) -> None:
    """Seats always go back; the charge does if nothing was sent; a failed authentication stays charged."""
    plan = Planner(policy_set()).plan(user(), Class.INTERACTIVE, UNMATCHED, "")
    verdict = None if reading is None else Verdict(plan, reading, 0)
    assert corrections(verdict, kind, sent=sent) == expected


@pytest.mark.parametrize("status", [500, 502, 503, 504, 508])
def test_failure_of_the_service_is_no_fault_of_the_caller(status: int) -> None:
    """Contract, section 7: these are upstream errors; what no status stands for (0) is rejected like all others."""
    assert own_outcome(status) is Outcome.UPSTREAM_ERROR
    others = {0, 400, 401, 403, 404, 405, 408, 413, 414, 417, 421, 431, 501, 505}
    assert {own_outcome(other) for other in others} == {Outcome.REJECTED}


def test_cost_is_the_routes_or_one() -> None:
    """A route has its own cost; what no route matches costs one unit."""
    policies = policy_set(routes=(Route("exports", "/exports", cost=5.0),))
    assert (cost_of(policies, 0), cost_of(policies, UNMATCHED)) == (5.0, 1.0)
    assert (route_name(policies, 0), route_name(policies, UNMATCHED)) == ("exports", "")
