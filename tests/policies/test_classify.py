"""Routes, classes, and which named policies apply."""

from __future__ import annotations

import pytest

from policies.classify import Classifier, applicable, bounded, bucket_of, lowest, path_pattern
from policies.cost import UNMATCHED
from policies.errors import PolicyError
from policies.policy import Characteristic, ClassRule, Match, Mode, Policy, Route
from policies.request import Class, Kind, Principal
from tests.policies.documents import anonymous, job, policy_set, quota, rejected, user

__all__: list[str] = []

INTERACTIVE, BATCH = Class.INTERACTIVE, Class.BATCH
ADDRESS, TENANT, CREDENTIAL, PROJECT, ROUTE, CLASS = Characteristic

ROUTES = (
    Route("login", "/login", methods=frozenset({"POST"})),
    Route("report", "/v1/reports/*/pdf", cost=5.0),
    Route("exports", "/v1/exports/**", cls=BATCH),
    Route("item", "/v1/*", methods=frozenset({"GET", "HEAD"})),
    Route("slash", "/v1/"),
    Route("dotted", "/a.b/(c)+"),
    Route("rest", "/w/*/**", methods=frozenset({"GET"})),
)


@pytest.mark.parametrize(
    ("method", "path", "name"),
    [
        ("POST", "/login", "login"),
        ("GET", "/login", None),
        ("POST", "/login/", None),
        ("POST", "/loginx", None),
        ("GET", "/v1/reports/7/pdf", "report"),
        ("PURGE", "/v1/reports/7/pdf", "report"),
        ("GET", "/v1/reports/7/8/pdf", None),
        ("GET", "/v1/reports//pdf", None),
        ("GET", "/v1/exports", "exports"),
        ("GET", "/v1/exports/", "exports"),
        ("GET", "/v1/exports/a/b/c", "exports"),
        ("GET", "/v1/exportsx", "item"),
        ("POST", "/v1/exportsx", None),
        ("GET", "/v1/", "slash"),
        ("GET", "/v1", None),
        ("GET", "/a.b/(c)+", "dotted"),
        ("GET", "/axb/(c)+", None),
        ("GET", "/w/1", "rest"),
        ("GET", "/w/1/2/3", "rest"),
        ("GET", "/w", None),
        ("GET", "/v1/exports/a\nb", "exports"),
        ("GET", "/v1/x\n", "item"),
        ("", "", None),
    ],
)
def test_first_match_wins(method: str, path: str, name: str | None) -> None:
    """`*` is one segment, `**` the rest or nothing; methods count; everything else is literal."""
    found = Classifier(policy_set(routes=ROUTES)).route(method, path)
    assert (None if found == UNMATCHED else ROUTES[found].name) == name


def test_no_routes_match_nothing() -> None:
    """Without routes every request is unmatched, the empty path included."""
    classifier = Classifier(policy_set())
    assert classifier.route("GET", "/") == classifier.route("GET", "") == UNMATCHED
    only = Classifier(policy_set(routes=(Route("login", "/login", methods=frozenset({"POST"})),)))
    assert only.route("GET", "") == UNMATCHED


def test_what_is_remembered_of_paths_is_bounded() -> None:
    """And right: after as many others as callers like a path is routed as it was, and so is a very long one."""
    classifier = Classifier(policy_set(routes=ROUTES))
    found = classifier.route("GET", "/v1/exports/all")
    assert {classifier.route("GET", f"/v1/exports/{number}") for number in range(3_000)} == {found}
    for path in ("/v1/exports/all", "/v1/exports/" + "x" * 1_000):
        assert [classifier.route("GET", path) for _ in range(2)] == [found, found]
    assert len(classifier._by_method["GET"]._known) <= 1024


@pytest.mark.parametrize("path", ["/a*", "/a/**/b", "/***", "/*.json", "**x"])
def test_misplaced_wildcard_is_an_error(path: str) -> None:
    """A wildcard inside a segment, or `**` before the end, is a wrong document."""
    with pytest.raises(PolicyError, match="whole segment"):
        path_pattern(path)


def _principal(highest: Class) -> Principal:
    return user(highest=highest)


@pytest.mark.parametrize(
    ("highest", "route", "asked", "expected", "raised"),
    [
        (INTERACTIVE, "login", None, INTERACTIVE, False),
        (INTERACTIVE, "login", "batch", BATCH, False),
        (INTERACTIVE, "login", "Batch ", BATCH, False),
        (INTERACTIVE, "login", "interactive", INTERACTIVE, False),
        (INTERACTIVE, "login", "interactive, batch", BATCH, False),
        (INTERACTIVE, "login", "urgent", INTERACTIVE, False),
        (INTERACTIVE, "login", "", INTERACTIVE, False),
        (INTERACTIVE, "exports", None, BATCH, False),
        (INTERACTIVE, "exports", "interactive", BATCH, True),
        (BATCH, "login", None, BATCH, False),
        (BATCH, "login", "interactive", BATCH, True),
        (BATCH, "login", "INTERACTIVE", BATCH, True),
        (BATCH, "login", "interactive, interactive", BATCH, True),
        (BATCH, "login", "batch, interactive", BATCH, True),
        (BATCH, "login", "batch", BATCH, False),
        (BATCH, None, "interactive", BATCH, True),
    ],
)
def test_class_is_the_lowest_and_never_raised(
    highest: Class, route: str | None, asked: str | None, expected: Class, raised: bool
) -> None:
    """A caller lowers its class and cannot raise it above route or credential; trying to is counted (case 45)."""
    classifier = Classifier(policy_set(routes=ROUTES))
    index = UNMATCHED if route is None else [entry.name for entry in ROUTES].index(route)
    assert classifier.cls(_principal(highest), index, asked) == (expected, raised)


def test_default_class_holds_where_a_route_has_none() -> None:
    """A route without a class, and no route at all, have the default class."""
    classifier = Classifier(policy_set(routes=ROUTES, default_class=BATCH))
    assert classifier.cls(user(), 0, None) == classifier.cls(user(), UNMATCHED, None) == (BATCH, False)


def _policy(match: Match, *key: Characteristic, mode: Mode = Mode.ENFORCE) -> Policy:
    return Policy("p", match, key, quota(1), mode)


@pytest.mark.parametrize(
    ("policy", "principal", "applies"),
    [
        (_policy(Match(), TENANT), user(), True),
        (_policy(Match(), TENANT, mode=Mode.SHADOW), user(), True),
        (_policy(Match(), TENANT, mode=Mode.OFF), user(), False),
        (_policy(Match(identity=Kind.ANONYMOUS), ADDRESS), anonymous(), True),
        (_policy(Match(identity=Kind.ANONYMOUS), ADDRESS), rejected(), False),
        (_policy(Match(tenant="acme"), TENANT), user(), True),
        (_policy(Match(tenant="beta"), TENANT), user(), False),
        (_policy(Match(credential="ci"), TENANT), user(), True),
        (_policy(Match(credential="ci"), TENANT), user(name="other"), False),
        (_policy(Match(credential="web"), TENANT), job(project="web"), False),
        (_policy(Match(route="login"), TENANT), user(), True),
        (_policy(Match(route="exports"), TENANT), user(), False),
        (_policy(Match(cls=INTERACTIVE), TENANT), user(), True),
        (_policy(Match(cls=BATCH), TENANT), user(), False),
        (_policy(Match(method="POST"), TENANT), user(), True),
        (_policy(Match(method="GET"), TENANT), user(), False),
        (_policy(Match(), PROJECT), job(), True),
        (_policy(Match(), PROJECT), user(), False),
        (_policy(Match(), CREDENTIAL), user(), True),
        (_policy(Match(), CREDENTIAL), job(), False),
        (_policy(Match(), CREDENTIAL), anonymous(), False),
    ],
)
def test_policy_applies(policy: Policy, principal: Principal, applies: bool) -> None:
    """A policy applies if it is not off, covers the request, and the principal has what it keys by."""
    policies = policy_set(routes=ROUTES, policies=(policy,))
    assert applicable(policies, principal, INTERACTIVE, 0, "POST") == ((policy,) if applies else ())


@pytest.mark.parametrize(
    ("key", "principal", "route", "name"),
    [
        ((), user(), 0, "limit=p"),
        ((ADDRESS,), user(), 0, "limit=p,address=2001%3Adb8%3A%3A"),
        ((TENANT,), user(), 0, "limit=p,tenant=acme"),
        ((CREDENTIAL,), user(), 0, "limit=p,tenant=acme,credential=ci"),
        ((PROJECT,), job(), 0, "limit=p,tenant=acme,project=web"),
        ((CLASS, ROUTE), user(), 0, "limit=p,route=login,class=batch"),
        ((ROUTE,), user(), UNMATCHED, "limit=p,route="),
        ((TENANT,), user(tenant="a,b=c"), 0, "limit=p,tenant=a%2Cb%3Dc"),
    ],
)
def test_bucket_is_named_by_its_characteristics(
    key: tuple[Characteristic, ...], principal: Principal, route: int, name: str
) -> None:
    """Buckets are named in one order whatever the key's; nothing a caller chose can imitate a separator."""
    policies = policy_set(routes=ROUTES)
    assert bucket_of(policies, _policy(Match(), *key), principal, BATCH, route, "2001:db8::") == name


@pytest.mark.parametrize(
    ("key", "principal", "expected"),
    [
        ((ROUTE, CLASS), anonymous(), True),
        ((ADDRESS,), user(), False),
        ((TENANT,), user(), True),
        ((TENANT,), user(tenant="minted"), False),
        ((CREDENTIAL,), user(), True),
        ((CREDENTIAL,), user(name="minted"), False),
        ((TENANT, PROJECT), job(), False),
    ],
)
def test_buckets_are_bounded_by_the_configuration(
    key: tuple[Characteristic, ...], principal: Principal, expected: bool
) -> None:
    """Only addresses, projects and what a token alone vouches for can be multiplied by callers."""
    assert bounded(policy_set(), _policy(Match(), *key), principal) is expected


USUAL = (ClassRule(0), ClassRule(1, reserve=0.25, floor=0.05))
EQUAL = (ClassRule(0), ClassRule(0, reserve=0.25, floor=0.05))
UPSIDE_DOWN = (ClassRule(1, reserve=0.5, floor=0.1), ClassRule(0))


@pytest.mark.parametrize(
    ("classes", "among", "expected"),
    [
        (USUAL, (INTERACTIVE, BATCH), BATCH),
        (USUAL, (INTERACTIVE,), INTERACTIVE),
        (EQUAL, (BATCH, INTERACTIVE), BATCH),
        (UPSIDE_DOWN, (BATCH, INTERACTIVE), INTERACTIVE),
    ],
)
def test_lowest(classes: tuple[ClassRule, ...], among: tuple[Class, ...], expected: Class) -> None:
    """The lowest class has the greatest priority number; of equals it is the later one."""
    assert lowest(classes, among) is expected
