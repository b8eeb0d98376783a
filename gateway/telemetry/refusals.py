"""The last refusals of each tenant: what an operator asks for first when a customer calls with a request id.

Rules
1. At most `KEPT` of a tenant, `PER_SECOND` of them in one second, so that a flood leaves some of what came before it;
   at most `MAX_TENANTS` tenants, the one refused longest ago forgotten first.
2. Written by the data plane's thread alone; a reader copies.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from typing import NamedTuple

from gateway.ports import Decision
from policies.units import SECOND, Micros

__all__ = ["KEPT", "MAX_TENANTS", "PER_SECOND", "LastRefusals", "Refused"]

KEPT = 20
PER_SECOND = 4
MAX_TENANTS = 2_000


class Refused(NamedTuple):
    """One refusal. `wait_us` is the wait itself, NEVER for what cannot be admitted, None where no limit has one."""

    at_us: Micros
    request_id: str
    credential: str
    cls: str
    limit: str
    wait_us: Micros | None
    status: int


class LastRefusals:
    """By tenant."""

    __slots__ = ("_by_tenant", "_full", "_full_until", "heard")

    def __init__(self) -> None:
        self._by_tenant: OrderedDict[str, deque[Refused]] = OrderedDict()
        #: The last tenant whose second had enough, and until when it has: most of a flood is looked at no further.
        self._full = ""
        self._full_until: Micros = 0
        #: Also given what is noted, if somebody wants it: whoever shows several processes as one.
        self.heard: deque[tuple[str, Refused]] | None = None

    def note(self, decision: Decision, now: Micros) -> None:
        """Note a refusal, unless its second has enough of them."""
        tenant = decision.principal.tenant
        if tenant is self._full and now < self._full_until:
            return
        kept = self._room(tenant, now)
        if kept is None:
            return
        refusal = None if decision.verdict is None else decision.verdict.refusal
        refused = Refused(
            now,
            decision.request_id,
            decision.principal.credential,
            decision.cls.label,
            decision.limit,
            None if refusal is None else refusal.wait_us,
            decision.status,
        )
        kept.append(refused)
        if self.heard is not None:
            self.heard.append((tenant, refused))

    def keep(self, tenant: str, refused: Refused) -> None:
        """Note a refusal of another process, which comes a little later than it was."""
        kept = self._room(tenant, refused.at_us)
        if kept is not None:
            kept.append(refused)

    def _room(self, tenant: str, now: Micros) -> deque[Refused] | None:
        """Return where a refusal of a tenant is kept, None if its second has enough of them."""
        kept = self._by_tenant.get(tenant)
        if kept is None:
            kept = self._by_tenant[tenant] = deque(maxlen=KEPT)
            if len(self._by_tenant) > MAX_TENANTS:
                self._by_tenant.popitem(last=False)
        elif len(kept) >= PER_SECOND and now - kept[-PER_SECOND].at_us < SECOND:
            self._full, self._full_until = tenant, kept[-PER_SECOND].at_us + SECOND
            return None
        else:
            self._by_tenant.move_to_end(tenant)
        return kept

    def of(self, tenant: str) -> list[Refused]:
        """Return the last refusals of a tenant, the newest first; from any thread."""
        kept = self._by_tenant.get(tenant)
        return [] if kept is None else list(reversed(kept.copy()))
