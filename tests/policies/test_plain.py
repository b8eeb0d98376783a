"""The backstop as one plain bucket."""

from __future__ import annotations

from policies.charge import ShareCharge
from policies.kernels.plain import PlainBackstop
from policies.request import Class
from policies.units import SECOND
from tests.policies.documents import CLASSES

__all__: list[str] = []


def ask(tenant: str = "acme", cost: float = 1.0) -> ShareCharge:
    """Return a step on the backstop."""
    return ShareCharge(tenant, 1.0, listed=True, cost=cost, cls=Class.INTERACTIVE, own_rate_us=1.0, own_burst=1.0)


def test_first_come_first_served() -> None:
    """Whoever asks takes what is there; a refusal says `backstop`, the exact wait, and costs nothing."""
    backstop = PlainBackstop(10 / SECOND, 4.0, CLASSES, 1.0, 0)
    assert [backstop.take(ask(), 0) for _ in range(4)] == [None] * 4
    refusal = backstop.take(ask("beta"), 0)
    assert refusal is not None
    assert (refusal.limit, refusal.wait_us, refusal.beyond_own) == ("backstop", SECOND // 10, False)
    assert backstop.take(ask("beta"), SECOND // 10 - 1) is not None
    assert backstop.take(ask("beta"), SECOND // 10) is None
    backstop.tick(SECOND)


def test_given_back_is_there_again() -> None:
    """A take given back can be taken by the next; a full bucket admits any cost."""
    backstop = PlainBackstop(10 / SECOND, 4.0, CLASSES, 1.0, 0)
    assert backstop.take(ask(cost=9.0), 0) is None
    assert backstop.take(ask(), 0) is not None
    backstop.give_back(ask(cost=9.0), 0)
    assert backstop.take(ask(cost=4.0), 0) is None


def test_rebuild_refills_nothing() -> None:
    """Another capacity keeps the part that is spent."""
    backstop = PlainBackstop(10 / SECOND, 4.0, CLASSES, 1.0, 0)
    assert backstop.take(ask(cost=4.0), 0) is None
    backstop.rebuild(100 / SECOND, 40.0, CLASSES, 1.0, 0)
    refusal = backstop.take(ask(), 0)
    assert refusal is not None
    assert refusal.wait_us == SECOND // 100
