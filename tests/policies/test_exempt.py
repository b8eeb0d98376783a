"""Exemptions raise, count, and end."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import pytest

from policies.cost import UNMATCHED
from policies.exempt import bucket_suffix, in_force, next_expiry, raised, standing
from policies.policy import Exemption, Match, Route
from policies.request import Class, Kind
from policies.units import SECOND
from tests.policies.documents import acme, credential, policy_set, quota, tenants, user

__all__: list[str] = []


def exemption(name: str = "launch", match: Match | None = None, **changes: Any) -> Exemption:
    """Return an exemption that ends after ten seconds."""
    return Exemption(name, match or Match(tenant="acme"), "launch week", "sre", 10 * SECOND, **changes)


@pytest.mark.parametrize(
    ("match", "now", "covered"),
    [
        (Match(tenant="acme"), 0, True),
        (Match(tenant="acme"), 10 * SECOND - 1, True),
        (Match(tenant="acme"), 10 * SECOND, False),
        (Match(tenant="beta"), 0, False),
        (Match(route="login"), 0, True),
        (Match(route="other"), 0, False),
    ],
)
def test_in_force_until_it_ends(match: Match, now: int, covered: bool) -> None:
    """An exemption covers what its match says, up to its expiry."""
    policies = policy_set(exemptions=(exemption(match=match, multiplier=2.0),), routes=(Route("login", "/login"),))
    assert bool(in_force(policies, user(), Class.INTERACTIVE, 0, "GET", now)) is covered
    assert in_force(policies, user(), Class.INTERACTIVE, UNMATCHED, "GET", now) == (
        () if match.route or not covered else policies.exemptions
    )


_TENANTS = tenants(acme(credential("ci", quota(10, 20)), quota=quota(50, 100)))


@pytest.mark.parametrize(
    ("match", "change", "key", "tenant"),
    [
        (Match(tenant="acme"), {"multiplier": 4.0}, (40, "whole"), (200, "whole")),
        (Match(tenant="acme"), {"quota": quota(300, 300)}, (10, ""), (300, "whole")),
        (Match(tenant="acme", credential="ci"), {"quota": quota(300, 300)}, (300, "whole"), (50, "")),
        (Match(tenant="acme", credential="ci"), {"multiplier": 4.0}, (40, "whole"), (50, "part")),
        (Match(credential="ci"), {"multiplier": 4.0}, (40, "whole"), (50, "part")),
        (Match(credential="other"), {"multiplier": 4.0}, (10, ""), (50, "")),
        (Match(tenant="acme", identity=Kind.JOB), {"multiplier": 4.0}, (10, ""), (50, "part")),
        (Match(tenant="acme", route="login"), {"multiplier": 4.0}, (10, "part"), (50, "part")),
        (Match(tenant="acme", cls=Class.BATCH), {"multiplier": 4.0}, (10, "part"), (50, "part")),
        (Match(tenant="acme", method="POST"), {"multiplier": 1.0}, (10, ""), (50, "")),
        (Match(tenant="beta"), {"multiplier": 4.0}, (10, ""), (50, "")),
    ],
)
def test_how_a_bucket_stands(
    match: Match, change: dict[str, Any], key: tuple[int, str], tenant: tuple[int, str]
) -> None:
    """What raises all requests of a bucket is its quota; what raises some of them is named beside it; till it ends."""
    policies = policy_set(exemptions=(exemption(match=match, **change),), tenants=_TENANTS)
    for limit, ordinary, (rate, how) in (("key", quota(10, 20), key), ("tenant", quota(50, 100), tenant)):
        stands = standing(policies, limit, ordinary, user(), 0)
        assert stands.quota.rate.per_second == rate
        assert (stands.exemption is not None, bool(stands.in_part)) == (how == "whole", how == "part")
        assert standing(policies, limit, ordinary, user(), 10 * SECOND) == (ordinary, None, ())


def test_next_expiry() -> None:
    """Plans hold until the next exemption ends."""
    policies = policy_set(exemptions=(exemption(multiplier=2.0),))
    assert next_expiry(policies, 0) == 10 * SECOND
    assert next_expiry(policies, 10 * SECOND) is None
    assert next_expiry(policy_set(), 0) is None


@pytest.mark.parametrize(
    ("limit", "offer", "expected"),
    [
        ("key", exemption(multiplier=4.0), (40, 80.0)),
        ("tenant", exemption(multiplier=4.0), (40, 80.0)),
        ("key", exemption(multiplier=1.1), (11, 22.0)),
        ("key", exemption(multiplier=0.5), None),  # it raises or does nothing
        ("login", exemption(multiplier=4.0), None),
        ("login", exemption(multiplier=4.0, policies=("login",)), (40, 80.0)),
        ("tenant", exemption(quota=quota(50, 60)), (50, 60.0)),
        ("key", exemption(quota=quota(50, 60)), None),
        ("key", exemption(match=Match(tenant="acme", credential="ci"), quota=quota(50, 60)), (50, 60.0)),
        ("tenant", exemption(match=Match(tenant="acme", credential="ci"), quota=quota(50, 60)), None),
        ("key", exemption(match=Match(), quota=quota(50, 60)), None),
        ("key", exemption(), None),
    ],
)
def test_raised(limit: str, offer: Exemption, expected: tuple[int, float] | None) -> None:
    """A multiplier raises key, tenant and the policies it lists; a quota replaces the one that its match names."""
    found, by = raised(limit, quota(10, 20), (offer,))
    if expected is None:
        assert (found, by) == (quota(10, 20), None)
    else:
        assert found.rate.per_second == Fraction(expected[0])
        assert found.burst == pytest.approx(expected[1])
        assert by is offer


def test_highest_of_several_holds() -> None:
    """Exemptions do not add up: the highest holds."""
    offers = (exemption("a", multiplier=2.0), exemption("b", multiplier=3.0), exemption("c", multiplier=2.5))
    found, by = raised("key", quota(10, 20), offers)
    assert found.rate.per_second == Fraction(30)
    assert by is offers[1]


@pytest.mark.parametrize(
    ("limit", "match", "own_bucket"),
    [
        ("key", Match(), False),
        ("key", Match(tenant="acme", credential="ci", identity=Kind.USER), False),
        ("key", Match(route="login"), True),
        ("key", Match(cls=Class.INTERACTIVE), True),
        ("key", Match(method="GET"), True),
        ("tenant", Match(tenant="acme"), False),
        ("tenant", Match(credential="ci"), True),
        ("tenant", Match(identity=Kind.JOB), True),
        ("login", Match(), True),
    ],
)
def test_partial_exemption_counts_in_its_own_bucket(limit: str, match: Match, own_bucket: bool) -> None:
    """One that covers only some of a bucket's requests leaves that bucket alone."""
    assert bucket_suffix(limit, exemption(match=match)) == (",exemption=launch" if own_bucket else "")
    assert bucket_suffix(limit, None) == ""
