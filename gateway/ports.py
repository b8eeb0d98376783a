"""The seams of the shell: what a stage needs of another, as Protocols.

Rules
1. A port names behaviour, never a library.
2. Everything here is called on the data-plane loop and returns within 0.5 ms.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol

from policies.charge import Plan, Reading
from policies.native import mypyc_attr
from policies.policy import PolicySet
from policies.request import Class, Principal, RequestFacts
from policies.units import Micros
from policies.verdict import Outcome, Verdict

__all__ = ["Ask", "AskStore", "Decision", "Recorder", "Rejection", "Resolution", "Resolver", "Store", "Ticker"]

Headers = list[tuple[bytes, bytes]]


@dataclass(frozen=True, slots=True)
class Rejection:
    """An answer of our own before, or instead of, a verdict: 400, 401 and the like.

    `status` picks the problem; `code` is its short name in `gateway/proxy/refuse.py`; `detail` is one sentence that
    quotes nothing secret.
    """

    status: int
    code: str
    detail: str


@dataclass(frozen=True, slots=True)
class Resolution:
    """The resolver's one answer: exactly one principal, and why it was rejected if it was.

    `consumed` is true when a credential was used up by us, so it must not travel upstream; with `unknown = "anonymous"`
    a foreign credential is not consumed. `rejection` goes with a principal of kind REJECTED (or with a 400). `posture`
    is what decided where whoever could judge the credential does not answer, else empty. `until` is the wall-clock
    instant at which whoever remembers it forgets it; no part of the answer.
    """

    principal: Principal
    rejection: Rejection | None = None
    consumed: bool = False
    posture: str = ""
    until: Micros = field(default=0, compare=False, repr=False)


class Resolver(Protocol):
    """Turns what was presented into who it proves."""

    def resolve(self, headers: Headers, address: str, *, preflight: bool) -> Resolution:
        """Return who sent `headers` (names lower case); `address` is the caller's, after the trusted proxies."""
        ...


Ask = Callable[[Headers, str, Callable[[], None]], Callable[[], None] | None]
"""How a resolver finds out what only somebody else knows: called with the headers, the address and what to call then.

It returns None where `resolve` has an answer at once, and else, having begun to find out, what takes the wish back. A
resolver that ever has to ask has one of these as its attribute `ask`; whoever does not call it gets the answer that the
posture gives."""

AskStore = Callable[[Plan, Micros, Callable[[], None]], Callable[[], None] | None]
"""The same of a store that is not this process's: called with the plan, the instant, and what to call then.

It returns None where `take` can decide that plan at that instant, or will not be able to. A store that ever has to ask
has one of these as its attribute `ask`."""


class Store(Protocol):
    """Keeps buckets and seats; takes all of a plan or none."""

    def take(self, plan: Plan, now: Micros) -> Reading:
        """Take every enforced charge and seat of `plan` at `now`, or nothing; then ask the shadow charges."""
        ...

    def give_back(self, plan: Plan, now: Micros, reading: Reading | None = None) -> None:
        """Return the charges of a taken plan whose request never reached the upstream (seats are `release`'s).

        With the reading of the take, the shadow charges that it took go back as well.
        """
        ...

    def release(self, plan: Plan) -> None:
        """Return the seats of a taken plan. Exactly once per take."""
        ...

    def rebuild(self, policies: PolicySet, now: Micros) -> None:
        """Go on under new policies: refills nothing, forgets nothing."""
        ...


@mypyc_attr(acyclic=True, free_list_len=1)
@dataclass(slots=True, init=False)
class Decision:
    """One request on its way through the house; made by `Pipeline.decide`, ended by `Pipeline.settle`, once.

    `verdict` is None when the request was rejected before it could be judged. `sent` is set by the exchange as soon as
    the request head was written to an upstream: from there on the charge is kept. `status` is what the caller was told,
    0 if nothing was. `settled` guards against a second settlement. `decided_us` is when stages 1b to 5 were done and
    `decide_ns` how long they took, both 0 if they never were. `over_seats` says of a refusal by `connections` that the
    tenant held its part of the upstream's seats: it waited for its own requests.
    """

    request_id: str
    facts: RequestFacts
    principal: Principal
    cls: Class
    route: int
    started_us: Micros
    verdict: Verdict | None
    rejection: Rejection | None
    consumed: bool
    sent: bool
    settled: bool
    status: int
    limit: str
    outcome: Outcome | None
    upstream_us: Micros
    exemption: str
    class_raise_attempt: bool
    decided_us: Micros
    decide_ns: int
    over_seats: bool
    notes: dict[str, str]

    # Written out: the one that `dataclass` makes is interpreted even where this is compiled.
    def __init__(
        self,
        request_id: str,
        facts: RequestFacts,
        principal: Principal,
        cls: Class,
        route: int,
        started_us: Micros,
        verdict: Verdict | None = None,
    ) -> None:
        self.request_id = request_id
        self.facts = facts
        self.principal = principal
        self.cls = cls
        self.route = route
        self.started_us = started_us
        self.verdict = verdict
        self.rejection = None
        self.consumed = self.sent = self.settled = False
        self.status = 0
        self.limit = ""
        self.outcome = None
        self.upstream_us = 0
        self.exemption = ""
        self.class_raise_attempt = False
        self.decided_us = self.decide_ns = 0
        self.over_seats = False
        self.notes = {}

    @property
    def forward(self) -> bool:
        """True if the request goes on to the upstream."""
        return self.verdict is not None and self.verdict.admitted and self.rejection is None


class Recorder(Protocol):
    """Counts a settled decision, once; the only reader of outcomes."""

    def record(self, decision: Decision, now: Micros) -> None:
        """Count `decision`, whose `outcome`, `status` and `limit` are final."""
        ...


class Ticker(Protocol):
    """Background work in slices: called from the loop's timer, each call bounded to 0.5 ms."""

    def tick(self, now: Micros) -> None:
        """Do the next slice."""
        ...
