"""The capacity of one backstop, divided among processes so that the level is the same in all of them."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from policies.kernels.division import Curve, Outlook, coarse, debt_bound, divide
from tests.oracle import exact_maxmin

__all__: list[str] = []


def outlook(*rows: tuple[float, float], light: float = 0.0, tokens: float = 0.0) -> Outlook:
    """Return what a process tells; `rows` are (demand per weight, weight)."""
    return Outlook(tokens, light, 0.0, sorted(rows, reverse=True))


@pytest.mark.parametrize(
    ("outlooks", "wants", "level"),
    [
        # Nobody wants anything: an even part for each.
        ((outlook(), outlook()), [50.0, 50.0], 0.0),
        # What one needs, and an even part of the rest; light ones keep a tenth of a second of their demand.
        ((outlook(light=40.0), outlook()), [44.0 + 27.75, 0.5 + 27.75], 0.0),
        # Two that want everything, one of them with three times the weight.
        ((outlook((500.0, 3.0)), outlook((500.0, 1.0))), [75.0, 25.0], 25.0),
        # The same with a debt and with tokens: what is owed is repaid within a second, what is stored is spent.
        ((outlook((500.0, 3.0), tokens=-20.0), outlook((500.0, 1.0), tokens=20.0)), [95.0, 5.0], 25.0),
        # One below the level has what it asks for, wherever it is.
        ((outlook((500.0, 1.0), (10.0, 1.0)), outlook((500.0, 1.0))), [55.0, 45.0], 45.0),
        # An idle process wants its floor while the others want everything.
        ((outlook((500.0, 1.0)), outlook()), [99.5, 0.5], 99.5),
    ],
)
def test_levels_are_one(outlooks: tuple[Outlook, ...], wants: list[float], level: float) -> None:
    """Of 100/s with a large burst, each process gets what it uses at the level that all have."""
    found = divide([Curve(each) for each in outlooks], 100.0, 1_000.0)
    assert found.wants == pytest.approx(wants, rel=1e-5)
    assert found.level == pytest.approx(level, rel=1e-5)


def test_light_ones_that_alone_want_too_much_share_the_shortage() -> None:
    """With more light demand than capacity every process gets the same part of what it wants."""
    found = divide([Curve(outlook(light=300.0)), Curve(outlook(light=100.0))], 100.0, 0.0)
    assert found.wants == pytest.approx([75.0, 25.0])


@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 2**32 - 1), processes=st.integers(1, 6))
def test_together_they_use_what_exact_max_min_gives(seed: int, processes: int) -> None:
    """However tenants are spread, the sum is the capacity, and the level that of exact max-min of the whole."""
    random = Random(seed)
    tenants = [(random.uniform(1, 400), random.choice((0.5, 1.0, 4.0))) for _ in range(random.randint(2, 12))]
    rows: list[list[tuple[float, float]]] = [[] for _ in range(processes)]
    for demand, weight in tenants:
        spread = [random.random() for _ in range(processes)]
        for row, part in zip(rows, spread, strict=True):
            row.append((demand / weight, weight * part / sum(spread)))
    found = divide([Curve(outlook(*row)) for row in rows], 500.0, 0.0)
    assert sum(found.wants) == pytest.approx(500.0)
    demands, weights = [demand for demand, _ in tenants], [weight for _, weight in tenants]
    exact = [float(part) for part in exact_maxmin(demands, weights, 500.0)]
    if sum(demands) > 505.0:
        got = [min(demand, found.level * weight) for demand, weight in tenants]
        assert got == pytest.approx(exact, rel=0.02)


def test_rows_are_merged_without_losing_demand() -> None:
    """A report has a bounded number of rows of the same weight and the same demand."""
    rows = [(float(200 - at), 1.0 + at % 3) for at in range(150)]
    merged = coarse(rows, 64)
    assert len(merged) == 50
    assert sum(weight for _, weight in merged) == pytest.approx(sum(weight for _, weight in rows))
    assert sum(a * b for a, b in merged) == pytest.approx(sum(a * b for a, b in rows))
    assert coarse(rows[:3], 64) == rows[:3]


def test_debts_of_all_are_half_a_second() -> None:
    """What processes may owe adds up to what one alone might."""
    assert sum(debt_bound(held, 1_000.0, 100.0, 4) for held in (700.0, 300.0, 0.0, 0.0)) == pytest.approx(500.0)
    assert debt_bound(0.0, 10.0, 20.0, 4) == 5.0
