"""What a tenant's keys reached day by day, beside the quota that they had then.

Rules
1. One key, or the tenant as a whole, at a time: a tenant may have thousands. The names of `KEYS` of them are told.
2. A day's peak is its highest slot, whether it could be learnt from or not; what was offered is told apart.
3. A quota holds from the day it was computed until the next; the last one is what is in force now. Numbers are kept
   longer than days, and shown as far back as these go.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from gateway.clock import Clock
from gateway.errors import GatewayError
from gateway.history.identity import TENANT, Identity
from gateway.history.keeper import History
from gateway.history.pasts import Readable
from policies.policy import PolicySet
from policies.request import Kind, Principal
from policies.sizing import effective_key, effective_tenant
from policies.sizing_past import NANO, Day
from policies.units import SECOND

__all__ = ["KEYS", "Peaks"]

KEYS = 200
_DAY_MS = 86_400_000


class Peaks:
    """Reads the history's archive. Raises GatewayError where there is nothing to read."""

    def __init__(self, history: History | None, clock: Clock) -> None:
        self._history = history
        self._clock = clock

    def of(self, policies: PolicySet, tenant: str, credential: str) -> dict[str, Any]:
        """Return the days and quotas of a credential or project, or, of "", of the tenant as a whole.

        Times are in milliseconds, rates in units a second.
        """
        with self._opened() as pasts:
            found = pasts.of_tenant(tenant)
            number, identity = next((one for one in found if _is(one[1], credential)), (None, None))
            days, steps = ([], []) if number is None else pasts.past(number)
        first = days[0].number if days else 0
        quota = [[step.day * _DAY_MS, round(step.rate / NANO, 4)] for step in steps if step.day >= first]
        quota[:0] = [[first * _DAY_MS, round(step.rate / NANO, 4)] for step in steps if step.day < first][-1:]
        principal = Principal(Kind.USER, tenant, credential) if identity is None else identity.principal()
        effective = effective_key(policies, principal) if credential else effective_tenant(policies, principal)
        if effective is not None:
            quota.append([self._clock.wall() * 1000 // SECOND, round(float(effective.quota.rate.per_second), 4)])
        return {
            "keys": [one.credential for _, one in found if one.kind != TENANT][:KEYS],
            "credential": credential,
            "days": [_day(day) for day in days],
            "quota": quota,
            "provenance": None if effective is None else effective.provenance,
        }

    @contextmanager
    def _opened(self) -> Iterator[Readable]:
        if self._history is None:
            raise GatewayError("this process keeps no history")
        with self._history.archive.pasts() as pasts:
            yield pasts


def _is(identity: Identity, credential: str) -> bool:
    return identity.credential == credential and (identity.kind == TENANT) is not bool(credential)


def _day(day: Day) -> dict[str, Any]:
    peaks = (day.sustained, day.reached, day.held, day.held_reached)
    return {
        "at": day.number * _DAY_MS,
        "peak": round(max(peak.rate for peak in peaks), 4),
        "offered": round(day.offered, 4),
        "censored": day.censored,
    }
