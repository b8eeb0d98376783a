"""The straight line: what is decided, charged, given back and counted, on the real store."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from gateway.pipeline import Pending, Pipeline
from gateway.ports import Decision, Headers, Rejection, Resolution
from gateway.stores.memory import MemoryStore
from policies.charge import Plan
from policies.policy import Characteristic, Exemption, Match, Mode, Policy, PolicySet, Route
from policies.request import Class, Kind, Principal, RequestFacts
from policies.units import SECOND, Micros
from policies.verdict import Outcome
from tests.clock import EPOCH, StandingClock
from tests.policies.documents import acme, anonymous, credential, policy_set, quota, rejected, tenants, user

__all__: list[str] = []

INVALID = Rejection(401, "invalid-credential", "The credential is not valid.")
AMBIGUOUS = Rejection(400, "ambiguous-credentials", "Send one credential.")

POLICIES = policy_set(
    tenants=tenants(acme(credential("ci", quota(10, 3), concurrency=2), credential("bulk", quota(10, 100)))),
    routes=(Route("exports", "/exports/**", cls=Class.BATCH, cost=2.0),),
)


class Answers:
    """A resolver that answers by the one header it is given."""

    def __init__(self, **answers: Resolution) -> None:
        self.answers = answers

    def resolve(self, headers: Headers, address: str, *, preflight: bool) -> Resolution:
        """Return the answer that the header names; without a header nobody is known."""
        if preflight:
            return Resolution(Principal(Kind.PREFLIGHT, "anonymous", address))
        return self.answers[headers[0][1].decode()] if headers else Resolution(anonymous(address))


ANSWERS = Answers(
    ci=Resolution(user(), consumed=True),
    batch=Resolution(user(name="bulk", highest=Class.BATCH), consumed=True),
    bad=Resolution(rejected("192.0.2.9"), INVALID),
    two=Resolution(user(), AMBIGUOUS),
)


class Book:
    """A recorder that keeps what it was told, as it was then."""

    def __init__(self) -> None:
        self.kept: list[Any] = []

    def record(self, decision: Decision, now: Micros) -> None:
        """Keep what it says now, so that a later change would show; compiled, it cannot be copied."""
        names = [name for name in dir(decision) if not name.startswith("_")]
        self.kept.append(SimpleNamespace(**{name: getattr(decision, name) for name in names}))


class House:
    """A pipeline with everything that it stands on."""

    def __init__(self, policies: PolicySet = POLICIES, random: Callable[[], float] = lambda: 0.0) -> None:
        self.clock = StandingClock()
        self.store = MemoryStore(policies, 1000, EPOCH)
        self.book = Book()
        self.pipeline = Pipeline(policies, ANSWERS, self.store, self.book, self.clock, random)

    def decide(self, who: str = "ci", path: str = "/", **facts: Any) -> Decision:
        """Decide a GET by `who`, "" being nobody."""
        observed = RequestFacts("GET", path, "192.0.2.9", **facts)
        return self.pipeline.decide(observed, [(b"who", who.encode())] if who else [], "id-1")

    def serve(self, who: str = "ci", path: str = "/") -> Decision:
        """Decide and end a request as the exchange would: sent and served if admitted, else refused or rejected."""
        decision = self.decide(who, path)
        if decision.forward:
            decision.sent = True
            self.pipeline.settle(decision, Outcome.SERVED, 200)
        elif decision.rejection is not None:
            self.pipeline.settle(decision, Outcome.REJECTED, decision.rejection.status)
        else:
            self.pipeline.settle(decision, Outcome.REFUSED, 429)
        return decision


@pytest.fixture
def house() -> House:
    """Return a house in enforce mode."""
    return House()


def test_admitted_request_is_forwarded_with_what_was_proved(house: House) -> None:
    """The identity that was resolved is the one charged, classed and forwarded."""
    decision = house.decide()
    assert decision.forward
    assert (decision.principal, decision.cls, decision.route, decision.consumed) == (
        user(),
        Class.INTERACTIVE,
        -1,
        True,
    )
    assert decision.verdict is not None
    assert [charge.bucket for charge in decision.verdict.plan.own] == ["limit=key,tenant=acme,credential=ci"]
    assert (decision.request_id, decision.started_us, decision.rejection) == ("id-1", EPOCH, None)


def test_route_and_class_are_decided_here(house: House) -> None:
    """A route's class and cost hold; asking for more is marked."""
    decision = house.decide("batch", "/exports/7", asked_class="interactive")
    assert (decision.route, decision.cls, decision.class_raise_attempt) == (0, Class.BATCH, True)
    assert decision.verdict is not None
    assert decision.verdict.plan.cost == 2.0


def test_over_quota_is_refused_with_its_wait() -> None:
    """The fourth request of burst 3 is refused by its key, with the wait and the jitter that was drawn."""
    house = House(random=lambda: 0.5)
    for _ in range(3):
        assert house.serve().forward
    decision = house.serve()
    assert not decision.forward
    assert decision.verdict is not None
    assert decision.verdict.refusal is not None
    assert (decision.verdict.refusal.limit, decision.verdict.refusal.wait_us) == ("key", SECOND // 10)
    assert decision.verdict.retry_us == SECOND // 10 + SECOND // 80
    assert [kept.limit for kept in house.book.kept] == ["", "", "", "key"]
    house.clock.at += SECOND // 10
    assert house.serve().forward


@pytest.mark.parametrize(
    ("sent", "outcome", "left"),
    [
        (True, Outcome.SERVED, 2.0),
        (True, Outcome.UPSTREAM_ERROR, 2.0),
        (True, Outcome.ABORTED, 2.0),
        (False, Outcome.ABORTED, 3.0),
        (False, Outcome.UPSTREAM_ERROR, 3.0),
        (False, Outcome.REFUSED, 3.0),
    ],
)
def test_charge_is_kept_once_the_head_was_sent(house: House, sent: bool, outcome: Outcome, left: float) -> None:
    """The charge goes back in full if nothing reached the upstream; the seat goes back in any case."""
    decision = house.decide()
    decision.sent = sent
    assert house.store.seats_taken == 1
    house.pipeline.settle(decision, outcome, 503)
    assert house.store.seats_taken == 0
    verdict = house.decide().verdict
    assert verdict is not None
    assert verdict.reading.tokens == (left - 1.0,)


def test_seats_bound_what_is_in_flight(house: House) -> None:
    """Two in flight, and no third, which costs nothing; whoever ends makes room (cases 35 and 81, core part)."""
    first, second = house.decide(), house.decide()
    third = house.serve()
    assert (first.forward, second.forward, third.forward) == (True, True, False)
    assert third.verdict is not None
    assert third.verdict.refusal is not None
    assert third.verdict.refusal.limit == "concurrency"
    first.sent = True
    house.pipeline.settle(first, Outcome.SERVED, 200)
    assert house.decide().forward
    assert house.pipeline.in_flight == 2


def test_settling_twice_is_a_bug(house: House) -> None:
    """A second settlement raises, and changes nothing."""
    decision = house.serve()
    with pytest.raises(RuntimeError, match="id-1 was settled twice"):
        house.pipeline.settle(decision, Outcome.ABORTED, 0)
    assert len(house.book.kept) == 1
    assert decision.outcome is Outcome.SERVED


def test_what_refuses_after_the_verdict_is_named(house: House) -> None:
    """A limit met after the verdict is recorded by its name."""
    decision = house.decide()
    house.pipeline.settle(decision, Outcome.REFUSED, 503, "connections")
    assert [(kept.limit, kept.outcome, kept.status) for kept in house.book.kept] == [
        ("connections", Outcome.REFUSED, 503)
    ]


@pytest.mark.parametrize(("who", "rejection"), [("bad", INVALID), ("two", AMBIGUOUS)])
def test_rejected_credential_is_charged_to_its_address(who: str, rejection: Rejection) -> None:
    """While its address has quota the answer is the rejection, then 429; the tenant it names pays nothing."""
    house = House(replace(POLICIES, rejected=quota(1, 2)))
    for _ in range(2):
        decision = house.serve(who)
        assert decision.rejection is rejection
        assert not decision.forward
        assert (decision.principal.kind, decision.principal.name) == (Kind.REJECTED, "rejected=192.0.2.9")
        assert decision.consumed is False
    decision = house.serve(who)
    assert (decision.rejection, decision.forward) == (None, False)
    assert decision.verdict is not None
    assert decision.verdict.refusal is not None
    assert (decision.verdict.refusal.limit, decision.verdict.plan.tenant) == ("key", "rejected")
    assert house.serve("ci").verdict.reading.tokens == (2.0,)  # type: ignore[union-attr] # a verdict there is


def test_preflights_are_charged_to_their_own_bucket() -> None:
    """Preflights have a bucket of their own per address, so they take nothing from who comes without a credential."""
    house = House(replace(POLICIES, preflight=quota(1, 2), anonymous=quota(1, 1)))
    admitted = [house.decide("", preflight=True).forward for _ in range(4)]
    assert admitted == [True, True, False, False]
    assert house.decide("").forward


def test_shadow_mode_refuses_nothing() -> None:
    """In shadow mode every verdict stands as evidence, nothing is refused, and identities are used as ever."""
    house = House(replace(POLICIES, mode=Mode.SHADOW, rejected=quota(0, 1)))
    decisions = [house.serve() for _ in range(5)]
    assert all(decision.forward for decision in decisions)
    assert [decision.verdict is not None and decision.verdict.refusal is not None for decision in decisions] == [
        False, False, False, True, True,
    ]  # fmt: skip
    assert all(decision.consumed for decision in decisions)
    assert [(kept.outcome, kept.limit) for kept in house.book.kept] == [(Outcome.SERVED, "")] * 5


def test_shadow_mode_forwards_a_rejected_credential_as_nobodys() -> None:
    """A rejected credential is forwarded, untouched and unnamed; why it would have been rejected is noted."""
    house = House(replace(POLICIES, mode=Mode.SHADOW))
    decision = house.serve("bad")
    assert decision.forward
    assert (decision.rejection, decision.consumed, decision.principal.kind) == (None, False, Kind.REJECTED)
    assert decision.notes == {"rejected": "invalid-credential"}


@pytest.mark.parametrize("facts", [None, RequestFacts("GET", "/x", "192.0.2.9")])
def test_request_that_never_was_decided_is_counted_at_once(house: House, facts: RequestFacts | None) -> None:
    """A fault before the verdict is counted under `rejected` and comes back settled."""
    fault = Rejection(413, "too-large", "The body is too large.")
    decision = house.pipeline.reject(facts, fault, "id-2")
    assert [(kept.outcome, kept.status, kept.rejection) for kept in house.book.kept] == [(Outcome.REJECTED, 413, fault)]
    assert (decision.settled, decision.principal.tenant, decision.verdict) == (True, "rejected", None)
    assert decision.principal.credential == ("192.0.2.9" if facts else "")
    assert house.pipeline.in_flight == 0
    with pytest.raises(RuntimeError):
        house.pipeline.settle(decision, Outcome.REJECTED, 413)


def test_failure_of_our_own_before_the_verdict_is_an_upstream_error(house: House) -> None:
    """A 500 is not what the caller did wrong."""
    house.pipeline.reject(None, Rejection(500, "internal-error", ""), "id-3")
    assert [(kept.outcome, kept.status) for kept in house.book.kept] == [(Outcome.UPSTREAM_ERROR, 500)]


def test_exemption_ends_on_time() -> None:
    """An exempted request is marked until its exemption ends, and pays its ordinary quota from then on."""
    launch = Exemption("launch", Match(tenant="acme"), "launch", "sre", EPOCH + SECOND, multiplier=2.0)
    house = House(replace(POLICIES, exemptions=(launch,)))
    assert [house.serve().exemption for _ in range(6)] == ["launch"] * 6
    assert not house.serve().forward
    house.clock.at += SECOND
    decision = house.serve()
    assert (decision.exemption, decision.forward) == ("", True)


def test_what_applies_is_forgotten_after_a_day(house: House) -> None:
    """So that a policy nothing meets any more is seen; plans are compiled anew and buckets keep what was spent."""
    house.pipeline.reload(
        replace(POLICIES, policies=(Policy("named", Match(), (Characteristic.TENANT,), quota(1, 9)),)), ANSWERS
    )
    house.serve()
    house.pipeline.tick(house.clock.at)
    assert house.pipeline.applied == {"named"}
    house.clock.at += 86_400 * SECOND
    house.pipeline.tick(house.clock.at)
    assert house.pipeline.applied == set()
    house.pipeline.tick(house.clock.at)
    house.serve()
    assert house.pipeline.applied == {"named"}


def test_reload_keeps_what_was_spent(house: House) -> None:
    """New policies hold at once, buckets keep what was spent, and a decision under way ends by its own plan."""
    decision = house.decide()
    assert house.serve().forward
    changed = replace(POLICIES, tenants=tenants(acme(credential("ci", quota(10, 30)))))
    house.pipeline.reload(changed, ANSWERS)
    assert house.pipeline.policies is changed
    assert house.serve().verdict.reading.tokens == (9.0,)  # type: ignore[union-attr] # a verdict there is
    house.pipeline.settle(decision, Outcome.ABORTED, 0)
    assert house.store.seats_taken == 0
    assert house.serve().verdict.reading.tokens == (9.0,)  # type: ignore[union-attr] # a verdict there is


def test_duration_of_the_decision_is_known() -> None:
    """A decision says how long it took."""
    house = House()

    def slow() -> float:
        house.clock.at += 3
        return 0.0

    house.pipeline = Pipeline(POLICIES, ANSWERS, house.store, house.book, house.clock, slow)
    for _ in range(3):
        assert house.serve().decide_ns == 0
    assert house.serve().decide_ns == 3000


@pytest.mark.interpreted
def test_request_that_has_to_wait_for_the_store_is_not_decided(house: House) -> None:
    """Nothing is taken or counted meanwhile; who leaves is known by then, who does not is decided anew."""
    taken_back: list[str] = []

    class Asked(MemoryStore):
        waits = True

        def ask(self, plan: Plan, now: Micros, resume: Callable[[], None]) -> Callable[[], None] | None:
            return (lambda: taken_back.append(plan.credential)) if self.waits else None

    store = Asked(POLICIES, 1000, EPOCH)
    pipeline = Pipeline(POLICIES, ANSWERS, store, house.book, house.clock, lambda: 0.0)
    facts = RequestFacts("GET", "/exports/x", "192.0.2.9")
    pending = pipeline.decide(facts, [(b"who", b"batch")], "id-1", lambda: None)
    assert isinstance(pending, Pending)
    pending()
    assert (store.keys, taken_back, pipeline.in_flight) == (0, ["bulk"], 0)
    gone = pipeline.undecided(facts, "id-1", pending)
    pipeline.settle(gone, Outcome.ABORTED, 0)
    assert [(kept.principal.tenant, kept.cls) for kept in house.book.kept] == [("acme", Class.BATCH)]
    # Whoever cannot wait, or need not, is decided.
    assert pipeline.decide(facts, [(b"who", b"batch")], "id-2").forward
    store.waits = False
    decision = pipeline.decide(facts, [(b"who", b"batch")], "id-3", lambda: None)
    assert isinstance(decision, Decision)
    assert decision.forward
