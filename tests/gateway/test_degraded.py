"""A request decided without the store: noted as such, settled once, and in shadow mode let through."""

from __future__ import annotations

from dataclasses import replace

import pytest

from gateway.pipeline import Pipeline
from gateway.ports import Decision
from gateway.stores.guard import GuardedStore
from policies.policy import Mode, PolicySet
from policies.request import RequestFacts
from policies.verdict import Outcome
from tests.clock import EPOCH, StandingClock
from tests.gateway.test_pipeline import ANSWERS, POLICIES, Book
from tests.stores.lost import FakeLeased, FakeState

__all__: list[str] = []

#: A lost store derives from the real one here.
pytestmark = pytest.mark.interpreted


class Degraded:
    """A pipeline whose store is lost."""

    def __init__(self, policies: PolicySet) -> None:
        self.state = FakeState(up=False, cause="timeout")
        self.leased = FakeLeased(policies, self.state, EPOCH)
        self.book = Book()
        store = GuardedStore(self.leased, self.state, policies, 1000, EPOCH)
        self.pipeline = Pipeline(policies, ANSWERS, store, self.book, StandingClock(), lambda: 0.0)

    def decide(self, who: str = "ci") -> Decision:
        """Decide a request by `who`."""
        facts, headers = RequestFacts("GET", "/", "192.0.2.9"), [(b"who", who.encode())]
        assert self.pipeline.ask(facts, headers, lambda: None) is None
        return self.pipeline.decide(facts, headers, "id-1")


def test_a_posture_that_refuses_is_503_and_noted() -> None:
    """With its wait, and nothing taken that would have to go back."""
    house = Degraded(replace(POLICIES, posture="closed"))
    decision = house.decide()
    assert decision.verdict is not None
    assert decision.verdict.refusal is not None
    assert (decision.forward, decision.verdict.refusal.limit, decision.notes) == (
        False,
        "posture",
        {"posture": "closed"},
    )
    house.pipeline.settle(decision, Outcome.REFUSED, 503)
    assert (house.book.kept[0].limit, house.leased.seats_taken) == ("posture", 0)


def test_in_shadow_mode_no_posture_refuses() -> None:
    """The refusal stands as evidence, and the request goes on."""
    house = Degraded(replace(POLICIES, posture="closed", mode=Mode.SHADOW))
    decision = house.decide()
    assert decision.verdict is not None
    assert (decision.forward, decision.verdict.enforced, decision.notes) == (True, False, {"posture": "closed"})


def test_what_safe_capacity_admits_is_settled() -> None:
    """Its seat is held while it lasts, and what was never sent is neither kept nor told to the store."""
    house = Degraded(POLICIES)
    decision = house.decide()
    assert (decision.forward, house.leased.seats_taken) == (True, 1)
    house.pipeline.settle(decision, Outcome.ABORTED, 0)
    assert (house.leased.seats_taken, decision.notes) == (0, {"posture": "safe-capacity"})
    house.state.up = True
    house.pipeline._store.tick(EPOCH)  # type: ignore[attr-defined] # a guarded store has ticks
    assert house.leased.told == []


def test_a_credential_that_proves_nothing_is_still_401() -> None:
    """Its address has a safe part of its attempts."""
    decision = Degraded(POLICIES).decide("bad")
    assert decision.rejection is not None
    assert decision.rejection.status == 401
