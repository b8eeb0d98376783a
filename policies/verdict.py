"""The decision with its evidence. A verdict is a value: it counts nothing, logs nothing and formats nothing."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from policies.charge import Plan, Reading, Refusal
from policies.native import mypyc_attr
from policies.units import Micros

__all__ = ["OWN_LIMITS", "Outcome", "Reason", "Verdict", "reason_of"]


class Reason(StrEnum):
    """The closed list of why a request can be refused; the same word in log, metric and problem.

    A named policy shows its own name as the `limit`, and POLICY as its reason.
    """

    POLICY = "policy"
    KEY = "key"
    TENANT = "tenant"
    CONCURRENCY = "concurrency"
    PAUSED = "paused"
    CLASS = "class"
    SHARE = "share"
    BACKSTOP = "backstop"
    POSTURE = "posture"
    CONNECTIONS = "connections"


#: What a caller's own contract refuses; everything else is what others, or the service, did to it.
OWN_LIMITS = frozenset({Reason.POLICY, Reason.KEY, Reason.TENANT, Reason.CONCURRENCY, Reason.PAUSED})

_REASONS = {reason.value: reason for reason in Reason if reason is not Reason.POLICY}


def reason_of(limit: str) -> Reason:
    """Return why `limit` refuses: built-in limits by their name, any other is a named policy."""
    return _REASONS.get(limit, Reason.POLICY)


class Outcome(StrEnum):
    """How a request ended; exactly one each. `offered` is the sum of all but REJECTED (contract, section 7)."""

    SERVED = "served"
    REFUSED = "refused"
    REJECTED = "rejected"
    UPSTREAM_ERROR = "upstream_error"
    ABORTED = "aborted"


@mypyc_attr(acyclic=True, free_list_len=1)
@dataclass(slots=True, init=False)
class Verdict:
    """What was decided of one request.

    `refusal` is the limit that is named (the longest wait of those that refused; `share` before `backstop`), with its
    true wait; None when admitted. `retry_us` is the wait to tell, jitter included, 0 when admitted or never. In
    `[server] mode = "shadow"` a refusal stands here all the same, and `enforced` is false: the request is forwarded.
    """

    plan: Plan
    reading: Reading
    now: Micros
    refusal: Refusal | None
    retry_us: Micros
    enforced: bool

    # Written out: the one that `dataclass` makes is interpreted even where this is compiled.
    def __init__(
        self,
        plan: Plan,
        reading: Reading,
        now: Micros,
        refusal: Refusal | None = None,
        retry_us: Micros = 0,
        *,
        enforced: bool = True,
    ) -> None:
        self.plan = plan
        self.reading = reading
        self.now = now
        self.refusal = refusal
        self.retry_us = retry_us
        self.enforced = enforced

    @property
    def admitted(self) -> bool:
        """True if the request goes on to the upstream."""
        return self.refusal is None or not self.enforced
