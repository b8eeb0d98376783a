"""What callers are told of a verdict (contract, section 6)."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import http_sf
import pytest
from hypothesis import given
from hypothesis import strategies as st

from policies.charge import NEVER, Charge, Plan, Reading, Refusal
from policies.problem import LONGEST_HINT, TYPES, Wording, pushback
from policies.request import Class, Kind
from policies.units import SECOND, Rate
from policies.verdict import Reason, Verdict


def charge(limit: str, per_second: Fraction | int | str, burst: float = 8.0, *, exact: bool = True) -> Charge:
    """Return a step on a bucket of `burst` units."""
    rate = Rate(Fraction(per_second))
    return Charge(limit, limit, rate.per_us, burst, 1.0, Class.BATCH, rate=rate if exact else None)


def plan(*own: Charge, tenant: str = "acme", credential: str = "ci") -> Plan:
    """Return a plan over `own` limits."""
    return Plan(tenant, credential, Class.BATCH, 1.0, own, (), (), None)


def verdict(of: Plan, tokens: tuple[float, ...], *refused: Refusal, retry_us: int = 0) -> Verdict:
    """Return the verdict on readings; the longest wait is the refusal named."""
    refusal = max(refused, key=lambda one: one.wait_us) if refused else None
    return Verdict(of, Reading(refused, tokens), 0, refusal, retry_us)


def fields(of: Verdict, form: str = "draft-11") -> dict[str, str]:
    """Return the fields of a verdict; as lines they say the same."""
    wording, lines = Wording(fields=form), list[bytes]()
    told = wording.fields(of)
    wording.lines(of, lines)
    assert b"".join(lines) == b"".join(b"\r\n%b: %b" % field for field in told)
    return {name.decode(): value.decode() for name, value in told}


def members(of: Plan, refusal: Refusal, kind: Kind = Kind.USER, status: int = 429) -> dict[str, object]:
    """Return the members of a refusal by one limit, without jitter."""
    return Wording(status).members(of, refusal, refusal.wait_us, (refusal.limit,), kind, "01JE")


def test_the_sample_of_the_contract() -> None:
    """The members of a refusal by `key` are those of the contract, in its order."""
    told = members(plan(charge("key", 4)), Refusal("key", 1_240_000))
    assert list(told.items()) == [
        ("type", "https://iana.org/assignments/http-problem-types#quota-exceeded"),
        ("title", "Quota exceeded"),
        ("status", 429),
        ("detail", "Credential ci of tenant acme may spend 4 request units per second and is asking for more."),
        ("instance", "urn:evenhand:request:01JE"),
        ("limit", "key"),
        ("violated-policies", ("key",)),
        ("tenant", "acme"),
        ("credential", "ci"),
        ("class", "batch"),
        ("retryable", True),
        ("retry_after", 2),
        ("retry_after_ms", 1240),
        ("owner_action_required", False),
    ]


@pytest.mark.parametrize(
    ("limit", "status", "operators", "kind"),
    [
        ("login", 429, 429, "quota-exceeded"),
        ("key", 429, 429, "quota-exceeded"),
        ("tenant", 429, 429, "quota-exceeded"),
        ("concurrency", 429, 429, "quota-exceeded"),
        ("paused", 429, 503, "paused"),
        ("class", 429, 503, "temporary-reduced-capacity"),
        ("share", 429, 503, "temporary-reduced-capacity"),
        ("backstop", 429, 503, "temporary-reduced-capacity"),
        ("posture", 503, 503, "temporary-reduced-capacity"),
        ("connections", 503, 503, "connections"),
    ],
)
def test_status_and_type_by_limit(limit: str, status: int, operators: int, kind: str) -> None:
    """Own limits are 429, posture and connections 503, the rest what `[backstop] status` says."""
    told = members(plan(charge("key", 4)), Refusal(limit, SECOND))
    assert told["status"] == status
    assert members(plan(), Refusal(limit, SECOND), status=503)["status"] == operators
    assert str(told["type"]).endswith(kind)
    assert str(told["type"]).startswith("https://")


def test_every_reason_has_a_type() -> None:
    """A closed list: no reason without words."""
    assert set(TYPES) == set(Reason)


def test_a_zero_quota_is_never_worth_asking_again() -> None:
    """`retryable` is false, nothing says when to come back, and the owner has to act."""
    told = members(plan(charge("key", 0)), Refusal("key", NEVER))
    assert (told["retryable"], told["owner_action_required"]) == (False, True)
    assert not {"retry_after", "retry_after_ms"} & set(told)
    assert "quota is zero" in str(told["detail"])
    assert pushback(Refusal("key", NEVER), 0) is None


@pytest.mark.parametrize(
    ("limit", "retry_us", "seconds"),
    [
        ("key", 0, 1),
        ("key", 1, 1),
        ("key", 1_000_000, 1),
        ("key", 1_000_001, 2),
        ("tenant", 3_600_000_000, 3600),
        ("login", 61_000_000, 61),
        ("paused", 7_200_000_000, 7200),
        ("share", 61_000_000, LONGEST_HINT),
        ("class", 61_000_000, LONGEST_HINT),
        ("backstop", 60_000_001, LONGEST_HINT),
        ("posture", 90_000_000, LONGEST_HINT),
        ("connections", 90_000_000, LONGEST_HINT),
        ("concurrency", 90_000_000, LONGEST_HINT),
        ("share", 59_000_001, 60),
    ],
)
def test_retry_after_is_the_wait_in_whole_seconds(limit: str, retry_us: int, seconds: int) -> None:
    """Rounded up, at least 1; at most a minute where the wait depends on what others do."""
    assert pushback(Refusal(limit, retry_us), retry_us) == seconds


def test_the_wait_itself_is_told_unclamped_and_without_jitter() -> None:
    """`retry_after` is clamped and jittered, `retry_after_ms` is neither; milliseconds are rounded up."""
    told = Wording().members(plan(), Refusal("share", 100_000_001), 110_000_000, ("share",), Kind.USER, "x")
    assert (told["retry_after"], told["retry_after_ms"]) == (60, 100_001)


def test_the_detail_agrees_with_whom_it_names() -> None:
    """Preflight requests are many, everybody else is one."""
    told = [members(plan(charge("key", 2)), Refusal("key", 1), kind)["detail"] for kind in (Kind.PREFLIGHT, Kind.USER)]
    assert str(told[0]).endswith("per second and are asking for more.")
    assert str(told[1]).endswith("per second and is asking for more.")


@pytest.mark.parametrize(
    ("whose", "detail"),
    [
        ("tenant", "Tenant acme, all its credentials together, has as many requests in flight as it may have."),
        ("credential", "Credential ci of tenant acme has as many requests in flight as it may have."),
    ],
)
def test_concurrency_says_whose(whose: str, detail: str) -> None:
    """Seats that others of the tenant took are the tenant's: a credential without a limit is not blamed."""
    of = plan()
    first = members(of, Refusal("concurrency", SECOND, "credential" if whose == "tenant" else "tenant"))
    told = members(of, Refusal("concurrency", SECOND, whose))
    assert (told["detail"], told["held_by"]) == (detail, whose)
    assert first["held_by"] != whose


@pytest.mark.parametrize(
    ("kind", "opening"),
    [
        (Kind.USER, "Credential ci of tenant acme may"),
        (Kind.JOB, "Project ci of tenant acme may"),
        (Kind.ANONYMOUS, "A caller without a credential at ci may"),
        (Kind.PREFLIGHT, "Preflight requests from ci may"),
        (Kind.REJECTED, "A caller at ci whose credential was not accepted may"),
    ],
)
def test_the_detail_says_who(kind: Kind, opening: str) -> None:
    """The sentence names what was charged, by what it proved."""
    assert str(members(plan(charge("key", 4)), Refusal("key", 1), kind)["detail"]).startswith(opening)


@pytest.mark.parametrize(
    ("rate", "spoken"),
    [
        ("4", "4 request units per second"),
        ("1", "1 request unit per second"),
        ("1/6", "10 request units per minute"),
        ("1/3600", "1 request unit per hour"),
        ("1/86400", "1 request unit per day"),
        ("123456789/10000000", "12.35 request units per second"),
    ],
)
def test_rates_are_spoken_in_whole_units(rate: str, spoken: str) -> None:
    """10/min is ten a minute, however it is reduced for the header."""
    told = members(plan(charge("login", rate)), Refusal("login", 1))
    assert told["detail"] == f"Policy login allows {spoken} and is asked for more."


@pytest.mark.parametrize("limit", ["share", "class", "backstop", "posture"])
def test_capacity_is_never_disclosed(limit: str) -> None:
    """What others did is told without one number of theirs, and is in no RateLimit field."""
    of = plan(charge("key", 4))
    told = Wording().members(of, Refusal(limit, SECOND), SECOND, (limit,), Kind.USER, "x")
    assert not any(letter.isdigit() for letter in str(told["detail"]))
    said = fields(verdict(of, (3.0,), Refusal(limit, SECOND), retry_us=SECOND))
    assert said == {"ratelimit-policy": '"key";q=4;w=1', "ratelimit": '"key";r=3;t=2'}


@pytest.mark.parametrize(
    ("tokens", "refused", "expected"),
    [
        ((8.0,), (), '"key";r=4;t=0'),
        ((7.0,), (), '"key";r=4;t=1'),
        ((3.9999999,), (), '"key";r=4;t=1'),
        ((3.9,), (), '"key";r=3;t=2'),
        ((0.0,), (), '"key";r=0;t=2'),
        ((-4.0,), (), '"key";r=0;t=3'),
        ((0.2,), (Refusal("key", 1_200_000),), '"key";r=0;t=2'),
        ((0.2,), (Refusal("key", NEVER),), '"key";r=0'),
        ((5.0,), (Refusal("concurrency", SECOND),), '"key";r=4;t=1'),
    ],
)
def test_what_is_left_and_when(tokens: tuple[float, ...], refused: tuple[Refusal, ...], expected: str) -> None:
    """`r` is what this class could take now, q at most; t the wait when refused, else seconds to a full bucket."""
    assert fields(verdict(plan(charge("key", 4)), tokens, *refused))["ratelimit"] == expected


def test_limits_are_told_in_the_order_of_the_plan() -> None:
    """Key, tenant, then named policies; rates reduced to integers; names percent-encoded."""
    of = plan(charge("key", 4), charge("tenant", "1/2"), charge("login per é", "1/6", exact=False))
    said = fields(verdict(of, (1.0, 2.0, 0.5)))
    assert said["ratelimit-policy"] == '"key";q=4;w=1, "tenant";q=1;w=2, "login%20per%20%C3%A9";q=1;w=6'
    assert said["ratelimit"] == '"key";r=1;t=2, "tenant";r=1;t=12, "login%20per%20%C3%A9";r=0;t=45'


def test_a_zero_rate_never_refills() -> None:
    """Where nothing comes back there is no t, unless the bucket is full as it is."""
    of = plan(charge("key", 0, 1.0))
    assert fields(verdict(of, (0.0,)))["ratelimit"] == '"key";r=0'
    assert fields(verdict(of, (1.0,)))["ratelimit"] == '"key";r=0;t=0'


@pytest.mark.parametrize("form", ["draft-11", "legacy", "off"])
def test_nothing_is_told_where_nothing_applies(form: str) -> None:
    """No own limit, or no reading (a store that is gone): no field at all."""
    assert fields(verdict(plan(), ()), form) == {}
    assert fields(verdict(plan(charge("key", 4)), ()), form) == {}


@pytest.mark.parametrize(
    ("tokens", "refused", "expected"),
    [
        ((3.0, 2.0), (), ("100", "2", "1")),
        ((1.0, 2.0), (), ("4", "1", "2")),
        ((1.0, 2.0), (Refusal("tenant", 5_000_001),), ("100", "2", "6")),
        ((8.0, 200.0), (), ("4", "4", "0")),
    ],
)
def test_legacy_tells_of_the_tightest(
    tokens: tuple[float, ...], refused: tuple[Refusal, ...], expected: tuple[str, str, str]
) -> None:
    """X-RateLimit-* speak of the limit that refused, else of the one with the least left; Reset is seconds left."""
    said = fields(verdict(plan(charge("key", 4), charge("tenant", 100)), tokens, *refused), "legacy")
    assert tuple(said.values()) == expected
    assert list(said) == ["x-ratelimit-limit", "x-ratelimit-remaining", "x-ratelimit-reset"]


def test_legacy_without_a_reset() -> None:
    """A zero quota has no Reset."""
    said = fields(verdict(plan(charge("key", 0)), (0.0,), Refusal("key", NEVER)), "legacy")
    assert said == {"x-ratelimit-limit": "0", "x-ratelimit-remaining": "0"}


def test_telling_twice_tells_the_same() -> None:
    """What is remembered of a plan is what was worked out."""
    wording, of = Wording(), plan(charge("key", 4))
    told = [wording.members(of, Refusal("key", 1), 1, ("key",), Kind.USER, "x") for _ in range(2)]
    assert told[0] == told[1]


def test_plans_of_the_same_quotas_are_told_the_same_and_each_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """However many kinds there are; what is shared names nobody."""
    monkeypatch.setattr("policies.problem._KINDS", 2)
    wording = Wording()
    for per_second in (4, 5, 6, 4):
        plans = [plan(charge("key", per_second), tenant=tenant) for tenant in ("acme", "beta")]
        told = [dict(wording.fields(verdict(of, (8.0,)))) for of in plans]
        assert told[0] == told[1]
        assert told[0][b"ratelimit-policy"] == b'"key";q=%d;w=1' % per_second
        refused = [wording.members(of, Refusal("key", 1), 1, ("key",), Kind.USER, "x") for of in plans]
        assert [members["tenant"] for members in refused] == ["acme", "beta"]


def test_an_unchanged_standing_is_told_as_before() -> None:
    """A refusal between two admitted requests, and a standing that changed, are told as they are."""
    wording, of = Wording(), plan(charge("key", 4))
    asked = [((7.0,), ()), ((7.0,), ()), ((7.0,), (Refusal("key", 2 * SECOND),)), ((7.0,), ()), ((3.9,), ())]
    told = [dict(wording.fields(verdict(of, tokens, *refused)))[b"ratelimit"] for tokens, refused in asked]
    full, waiting, less = b'"key";r=4;t=1', b'"key";r=4;t=2', b'"key";r=3;t=2'
    assert told == [full, full, waiting, full, less]


def test_off_tells_nothing() -> None:
    """`[refusal] headers = "off"`."""
    assert fields(verdict(plan(charge("key", 4)), (1.0,)), "off") == {}


@pytest.mark.parametrize(("form", "others"), [("draft-11", 2), ("legacy", 3), ("off", 0)])
def test_what_no_store_decided_is_marked(form: str, others: int) -> None:
    """In every form, admitted or refused; by which posture is not told."""
    wording, asked = Wording(fields=form), plan(charge("key", 4))
    for reading in (
        Reading((), (1.0,), posture="open"),
        Reading((Refusal("posture", SECOND),), (1.0,), posture="deny:5"),
    ):
        fields = wording.fields(Verdict(asked, reading, 0))
        assert fields[-1] == (b"evenhand-degraded", b"store")
        assert len(fields) == others + 1
        assert b"open" not in b"".join(value for _, value in fields)


def test_each_configuration_has_its_own_words() -> None:
    """A plan that outlives a reload is told as whoever tells it would, not as somebody did before."""
    of = plan(charge("key", 4))
    before, after = Wording(429), Wording(503, "legacy")
    for wording, status, name in ((before, 429, b"ratelimit-policy"), (after, 503, b"x-ratelimit-limit")):
        told = wording.members(of, Refusal("share", 1), 1, ("share",), Kind.USER, "x")
        assert told["status"] == status
        assert wording.fields(verdict(of, (1.0,)))[0][0] == name
    assert of == plan(charge("key", 4))


names = st.text(st.characters(exclude_categories=("Cs", "Cc")), min_size=1, max_size=40)
rates = st.one_of(
    st.fractions(Fraction(1, 86_400), 1_000_000), st.just(Fraction(0)), st.floats(1e-5, 1e6).map(Fraction)
)


@given(
    st.lists(st.tuples(names, rates, st.floats(-1e6, 1e6), st.none() | st.integers(-1, 10**10)), min_size=1, max_size=5)
)
def test_fields_parse_as_structured_fields(limits: list[tuple[str, Fraction, float, int | None]]) -> None:
    """An independent RFC 9651 parser reads every field, whatever policies are called, and r never exceeds q."""
    of = plan(*(charge(name, rate, 20.0) for name, rate, _, _ in limits))
    refused = [Refusal(name, wait) for name, _, _, wait in limits if wait is not None]
    said = fields(verdict(of, tuple(tokens for _, _, tokens, _ in limits), *refused))
    policies: Any = http_sf.parse(said["ratelimit-policy"].encode(), tltype="list")
    left: Any = http_sf.parse(said["ratelimit"].encode(), tltype="list")
    for (policy, quota), (member, now) in zip(policies, left, strict=True):
        assert policy == member
        assert 0 <= now["r"] <= quota["q"]
        assert quota["w"] >= 1
        assert now.get("t", 0) >= 0
