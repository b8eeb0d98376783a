"""Every number anew: once a day and on demand, key by key, from what is written; nothing is written here.

Rules
1. Tenants come first. A key that was first seen when its tenant was already learnt starts with what that had then.
2. A number is kept when it changes; the latest one stands until then.
3. Today's number follows from those of the days before, so doing it twice in a day changes nothing.
4. What it needs of the configuration (`Basis`) and what it says (`Row`) are small values: they go to another process
   and back (`recount.py`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from fractions import Fraction
from hashlib import blake2b
from typing import NamedTuple, Protocol

from gateway.history.identity import Identity
from gateway.history.provenance import read, write
from policies.policy import PolicySet, Quota, Sizing
from policies.sizing_past import DAY_US, NANO, Day, Past, Step, size
from policies.units import Rate, RequestUnits

__all__ = ["Basis", "Known", "Pasts", "Row", "resize"]


class Basis(NamedTuple):
    """What of the configuration a number depends on; `dearest` is the highest cost of a route."""

    sizing: Sizing
    backstop: Quota
    dearest: RequestUnits

    @classmethod
    def of(cls, policies: PolicySet) -> Basis:
        """Return that of some policies."""
        return cls(policies.sizing, policies.backstop, max((route.cost for route in policies.routes), default=1.0))

    @property
    def digest(self) -> int:
        """A number that is another one where anything here is different."""
        return int.from_bytes(blake2b(repr(self).encode(), digest_size=6).digest())

    @property
    def window(self) -> int:
        """How many days count."""
        return -(-self.sizing.window_us // DAY_US)


class Known(NamedTuple):
    """What is written of one key: its number, first day, days that can count, numbers it had, and the latest's text."""

    number: int
    first_day: int
    identity: Identity
    days: Sequence[Day]
    steps: list[Step]
    latest: tuple[int, str] | None


class Pasts(Protocol):
    """Whoever can tell what is written."""

    def pasts(self, today: int, window: int) -> Iterable[Known]:
        """Yield every key, tenants first, with the days of a window of so many days before `today`."""
        ...


class Row(NamedTuple):
    """One key's number: its text (`provenance.py`), and the step to keep, None if it is as it was."""

    number: int
    identity: Identity
    text: str
    step: Step | None


def resize(pasts: Pasts, basis: Basis, today: int) -> Iterator[Row]:
    """Yield every key with its number of `today`."""
    tenants: dict[str, tuple[int, list[Step]]] = {}
    for known in pasts.pasts(today, basis.window):
        identity, start = known.identity, None
        if identity.credential:
            start = _start(basis.sizing, known.first_day, tenants.get(identity.tenant))
        else:
            tenants[identity.tenant] = (known.first_day, known.steps)
        past = Past(known.days, known.steps, known.first_day, start, start is not None)
        sized = size(basis.sizing, basis.backstop, past, today, basis.dearest)
        step = Step(sized.day, sum(term.delta for term in sized.terms), sized.next_quota.burst)
        text = write(sized)
        yield Row(known.number, identity, text, None if _same(known.latest, sized.day, text) else step)


def _start(sizing: Sizing, first_day: int, tenant: tuple[int, list[Step]] | None) -> Quota | None:
    """Return what a key inherits: its tenant's number of its first day, if the tenant was learnt by then."""
    if tenant is None or (first_day - tenant[0]) * DAY_US < max(sizing.learn_us, DAY_US):
        return None
    before = [step for step in tenant[1] if step.day <= first_day]
    if not before or before[-1].rate <= sizing.initial.rate.per_second * NANO:
        return sizing.initial
    return Quota(Rate(Fraction(before[-1].rate, NANO)), before[-1].burst)


def _same(latest: tuple[int, str] | None, day: int, text: str) -> bool:
    """Return whether an earlier day's number says the same."""
    if latest is None or latest[0] >= day:
        return False
    had, has = read(latest[1]), read(text)
    return (had.next_quota, had.quota, had.mode, had.provenance, had.starved, had.flagged) == (
        has.next_quota, has.quota, has.mode, has.provenance, has.starved, has.flagged,
    )  # fmt: skip
