"""Every number anew: once a day and on demand, key by key, in slices that leave the interpreter to the data plane.

Rules
1. Tenants come first. A key that was first seen when its tenant was already learnt starts with what that had then.
2. A number is written when it changes; the latest one stands until then.
3. Today's number follows from those of the days before, so doing it twice in a day changes nothing.
"""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction

from gateway.history.books import Books, Identity
from gateway.history.provenance import read, write
from policies.policy import PolicySet, Quota, Sized
from policies.sizing_past import DAY_US, NANO, Past, Step, size
from policies.units import Rate

__all__ = ["known", "resize"]


def known(books: Books) -> dict[str, Sized]:
    """Return the latest number of every key, as it was written."""
    found = {}
    for number, _, identity in books.identities():
        latest = books.latest(number)
        if latest is not None:
            found[identity.name] = read(latest[1])
    return found


def resize(books: Books, policies: PolicySet, today: int) -> Iterator[tuple[Identity, Sized]]:
    """Yield every key with its number of `today`, and keep those that changed."""
    dearest = max((route.cost for route in policies.routes), default=1.0)
    window = -(-policies.sizing.window_us // DAY_US)
    tenants: dict[str, tuple[int, list[Step]]] = {}
    for number, first_day, identity in books.identities():
        steps = books.steps(number)
        start = None
        if identity.credential:
            start = _start(policies, first_day, tenants.get(identity.tenant))
        past = Past(books.days(number, today, window), steps, first_day, start, start is not None)
        sized = size(policies.sizing, policies.backstop, past, today, dearest)
        _keep(books, number, sized)
        if not identity.credential:
            tenants[identity.tenant] = (first_day, steps)
        yield identity, sized


def _start(policies: PolicySet, first_day: int, tenant: tuple[int, list[Step]] | None) -> Quota | None:
    """Return what a key inherits: its tenant's number of its first day, if the tenant was learnt by then."""
    if tenant is None or (first_day - tenant[0]) * DAY_US < max(policies.sizing.learn_us, DAY_US):
        return None
    before = [step for step in tenant[1] if step.day <= first_day]
    initial = policies.sizing.initial
    if not before or before[-1].rate <= initial.rate.per_second * NANO:
        return initial
    return Quota(Rate(Fraction(before[-1].rate, NANO)), before[-1].burst)


def _keep(books: Books, number: int, sized: Sized) -> None:
    step = Step(sized.day, sum(term.delta for term in sized.terms), sized.next_quota.burst)
    latest = books.latest(number)
    if latest is not None and latest[0] < sized.day:
        had = read(latest[1])
        same = (had.next_quota, had.quota, had.mode, had.provenance, had.starved, had.flagged)
        if same == (sized.next_quota, sized.quota, sized.mode, sized.provenance, sized.starved, sized.flagged):
            return
    books.step(number, step, write(sized))
