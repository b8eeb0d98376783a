"""The eight stages of a request, top to bottom, synchronous. `proxy/` calls it; nothing here awaits, logs or formats.

  1 parse      (proxy/)  head -> facts;  (here) the resolver: headers -> principal
  2 classify   route, class
  3 except     the effective quotas, inside the plan
  4 rank       priority, reserve and cost, inside the plan
  5 admit      plan -> take -> judge -> verdict; before the take the store is asked, where it is not in this process
  6 forward or refuse   (proxy/)
  7 settle     seats released, charge given back unless the head was sent
  8 record     counted once

Rules
1. Whoever gets a decision settles it, exactly once, on every way out; a second time is a bug and raises.
2. The identity that was resolved is the one charged, ranked, forwarded and counted. Nobody asks again.
3. A credential that proves nothing is charged to its address. While that has quota the answer is 401, then 429.
4. Where whoever can judge a credential is silent, and its posture is to refuse, that is nobody's failed attempt: the
   answer is 503, and nothing is charged.
5. In shadow mode nothing is refused: every verdict stands as evidence and is not enforced, and a rejected credential is
   forwarded as nobody's.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import overload

from gateway.clock import Clock
from gateway.history.meter import Meter
from gateway.identity.resolver import CredentialResolver
from gateway.ports import Ask, AskStore, Decision, Recorder, Rejection, Resolver, Store
from gateway.stores.memory import MemoryStore
from gateway.telemetry.recorder import Telemetry
from policies.admit import Planner, judge
from policies.classify import Classifier
from policies.cost import UNMATCHED
from policies.policy import Mode, PolicySet, Sized
from policies.request import REJECTED, Class, Kind, Principal, RequestFacts
from policies.settle import corrections, own_outcome
from policies.units import SECOND, Micros
from policies.verdict import Outcome

__all__ = ["Pending", "Pipeline"]

_DAY: Micros = 86_400 * SECOND
#: Plans of before that are let go of in one tick; it takes about 0.1 ms.
_PLANS_PER_TICK = 200
_NO_FACTS = RequestFacts(method="", path="", address="")


class Pending:
    """A request that waits for the store, by `Pipeline.decide`; called, it takes the wish back."""

    __slots__ = ("_take_back", "cls", "now", "principal", "route")

    def __init__(
        self, take_back: Callable[[], None], principal: Principal, cls: Class, route: int, now: Micros
    ) -> None:
        self._take_back = take_back
        self.principal = principal
        self.cls = cls
        self.route = route
        self.now = now

    def __call__(self) -> None:
        """Take the wish back."""
        self._take_back()


class Pipeline:
    """One for a process. `random` draws the jitter, in [0, 1).

    Its ports may be anybody's. Those that are the usual ones are known by their class as well: compiled, a call of what
    is known so costs a tenth of one that is looked up by name.
    """

    __slots__ = (
        "_ask", "_ask_store", "_classifier", "_clock", "_credentials", "_memory", "_meter", "_planner", "_policies",
        "_random", "_recorder", "_renew_us", "_resolver", "_retired", "_shadow", "_store", "_telemetry", "asks",
        "in_flight", "overlay", "waits",
    )  # fmt: skip

    def __init__(
        self,
        policies: PolicySet,
        resolver: Resolver,
        store: Store,
        recorder: Recorder,
        clock: Clock,
        random: Callable[[], float],
        meter: Meter | None = None,
    ) -> None:
        self._resolve_by(resolver)
        self._store = store
        self._memory = store if isinstance(store, MemoryStore) else None
        self._ask_store: AskStore | None = getattr(store, "ask", None)
        #: Whether `decide` may have to wait for the store, and needs to be told whom to resume.
        self.waits = self._ask_store is not None
        self._recorder = recorder
        self._telemetry = recorder if isinstance(recorder, Telemetry) else None
        self._clock = clock
        self._random = random
        self._meter = meter
        #: Decisions not settled yet.
        self.in_flight = 0
        #: Puts what operators did meanwhile over every set of policies, instead of what it put there before.
        self.overlay: Callable[[PolicySet], PolicySet] = _as_it_is
        #: Those who planned before, until their plans are let go of.
        self._retired: list[Planner] = []
        self._planner = Planner(policies)
        self._bind(policies)

    def _resolve_by(self, resolver: Resolver) -> None:
        self._resolver = resolver
        self._credentials = resolver if isinstance(resolver, CredentialResolver) else None
        self._ask: Ask | None = getattr(resolver, "ask", None)
        #: Whether `ask` may have anybody to ask; else it need not be called.
        self.asks = self._ask is not None

    def _bind(self, policies: PolicySet) -> None:
        self._policies = policies = self.overlay(policies)
        self._classifier = Classifier(policies)
        now = self._clock.now()
        self._planner.retire()
        self._retired.append(self._planner)
        self._planner = Planner(policies, now)
        self._renew_us = now + _DAY
        self._shadow = policies.mode is not Mode.ENFORCE

    @property
    def policies(self) -> PolicySet:
        """The policies that decide now."""
        return self._policies

    def reload(self, policies: PolicySet, resolver: Resolver) -> None:
        """Decide by other policies and a resolver of theirs from now on. Decisions under way keep their plan."""
        self._bind(policies)
        self._resolve_by(resolver)
        self._store.rebuild(policies, self._clock.now())

    def refresh(self) -> None:
        """Ask the overlay again; no bucket changes by that."""
        self._bind(self._policies)

    def resize(self, sized: Mapping[str, Sized]) -> None:
        """Take over other numbers for sized quotas: as a reload, nothing is refilled and nothing forgotten."""
        self._bind(replace(self._policies, sized=sized))
        self._store.rebuild(self._policies, self._clock.now())

    @property
    def applied(self) -> set[str]:
        """The named policies that have applied to a request lately, today or yesterday; from any thread."""
        return self._planner.applied.copy()

    def tick(self, now: Micros) -> None:
        """Let go of some plans; once a day compile them anew, so that `applied` forgets what nothing meets any more."""
        self._planner.forget(_PLANS_PER_TICK)
        if self._retired and not self._retired[-1].forget(_PLANS_PER_TICK):
            self._retired.pop()
        if now >= self._renew_us:
            self._renew_us = now + _DAY
            self._planner.renew(now)

    def ask(
        self, facts: RequestFacts, headers: list[tuple[bytes, bytes]], resume: Callable[[], None]
    ) -> Callable[[], None] | None:
        """Begin to find out what `decide` must know first, and call `resume` then; None if it can decide now.

        What is returned takes the wish back. Whoever decides without asking gets what the posture says.
        """
        return None if self._ask is None else self._ask(headers, facts.address, resume)

    @overload
    def decide(self, facts: RequestFacts, headers: list[tuple[bytes, bytes]], request_id: str) -> Decision: ...

    @overload
    def decide(
        self,
        facts: RequestFacts,
        headers: list[tuple[bytes, bytes]],
        request_id: str,
        resume: Callable[[], None] | None,
    ) -> Decision | Pending: ...

    def decide(
        self,
        facts: RequestFacts,
        headers: list[tuple[bytes, bytes]],
        request_id: str,
        resume: Callable[[], None] | None = None,
    ) -> Decision | Pending:
        """Decide one request: stages 1 to 5. `headers` have lower-case names.

        Where the store has to be asked first, what is returned is `Pending`, and `resume` is called once it is time to
        decide again. Without `resume` what the store does not know is decided by its posture.
        """
        now = self._clock.now()
        if (credentials := self._credentials) is not None:
            resolution = credentials.resolve(headers, facts.address, preflight=facts.preflight)
        else:
            resolution = self._resolver.resolve(headers, facts.address, preflight=facts.preflight)
        principal, rejection = resolution.principal, resolution.rejection
        if rejection is not None:
            if rejection.status >= 500 and not self._shadow:
                return self._silent(facts, rejection, request_id, resolution.posture)
            principal = _nobody(principal, facts)
        route = self._classifier.route(facts.method, facts.path)
        cls, raised = self._classifier.cls(principal, route, facts.asked_class)
        if now >= self._planner.valid_until:
            self._planner.renew(now)
        plan = self._planner.plan(principal, cls, route, facts.address, facts.method)
        if self._ask_store is not None and resume is not None:
            take_back = self._ask_store(plan, now, resume)
            if take_back is not None:
                return Pending(take_back, principal, cls, route, now)
        decision = Decision(request_id, facts, principal, cls, route, now)
        decision.class_raise_attempt = raised
        reading = self._store.take(plan, now) if self._memory is None else self._memory.take(plan, now)
        verdict = judge(plan, reading, now, self._random() if reading.refused else 0.0)
        decision.verdict = verdict
        decision.exemption = plan.exemption
        verdict.enforced = not self._shadow
        if self._meter is not None and rejection is None:
            refusal = verdict.refusal
            limit = "" if refusal is None or self._shadow else refusal.limit
            self._meter.note(principal, plan.cost, limit, now, plan.memo)
        if rejection is None:
            decision.consumed = resolution.consumed
        elif self._shadow:
            decision.notes["rejected"] = rejection.code
        elif verdict.refusal is None:
            decision.rejection = rejection
        if reading.posture or resolution.posture:
            decision.notes["posture"] = reading.posture or resolution.posture
        decision.decided_us = decided = self._clock.now()
        decision.decide_ns = (decided - now) * 1000
        self.in_flight += 1
        return decision

    def reject(self, facts: RequestFacts | None, rejection: Rejection, request_id: str) -> Decision:
        """Count a request that never reached a verdict. The decision comes back settled."""
        decision = self.undecided(facts or _NO_FACTS, request_id)
        decision.rejection = rejection
        self.settle(decision, own_outcome(rejection.status), rejection.status)
        return decision

    def _silent(self, facts: RequestFacts, rejection: Rejection, request_id: str, posture: str) -> Decision:
        """Return the decision on a caller of whom nobody can be asked."""
        decision = self.undecided(facts, request_id)
        decision.rejection = rejection
        decision.notes["posture"] = posture
        return decision

    def undecided(self, facts: RequestFacts, request_id: str, pending: Callable[[], None] | None = None) -> Decision:
        """Return the decision, to be settled, on a request that ends before it is decided.

        Whoever sent it is known if it waits for the store, which `pending` tells.
        """
        self.in_flight += 1
        if isinstance(pending, Pending):
            return Decision(request_id, facts, pending.principal, pending.cls, pending.route, pending.now)
        principal = Principal(Kind.REJECTED, REJECTED, facts.address)
        return Decision(request_id, facts, principal, self._policies.default_class, UNMATCHED, self._clock.now())

    def settle(self, decision: Decision, outcome: Outcome, status: int, limit: str = "") -> None:
        """End a decision: stages 7 and 8. `limit` names what refused after the verdict, such as `connections`."""
        if decision.settled:
            raise RuntimeError(f"request {decision.request_id} was settled twice")
        decision.settled = True
        self.in_flight -= 1
        verdict = decision.verdict
        if verdict is not None and verdict.refusal is not None and verdict.enforced:
            # A refusal ends as soon as it is decided: that instant is near enough, and was read.
            now, limit = decision.decided_us, limit or verdict.refusal.limit
        else:
            now = self._clock.now()
        correct = corrections(verdict, decision.principal.kind, sent=decision.sent)
        if verdict is not None and correct.release:
            if verdict.plan.seats:
                if self._memory is None:
                    self._store.release(verdict.plan)
                else:
                    self._memory.release(verdict.plan)
            if correct.give_back:
                self._store.give_back(verdict.plan, now, verdict.reading)
                if self._meter is not None:
                    self._meter.take_back(decision.principal, verdict.plan.cost, decision.started_us)
        decision.outcome = outcome
        decision.status = status
        decision.limit = limit
        if self._telemetry is None:
            self._recorder.record(decision, now)
        else:
            self._telemetry.record(decision, now)


def _as_it_is(policies: PolicySet) -> PolicySet:
    return policies


def _nobody(principal: Principal, facts: RequestFacts) -> Principal:
    """Return the principal that a rejected credential is charged to: its address, whatever it claimed."""
    return principal if principal.kind is Kind.REJECTED else Principal(Kind.REJECTED, REJECTED, facts.address)
