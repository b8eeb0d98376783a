"""When to stop asking, and when to ask again."""

from __future__ import annotations

import pytest

from gateway.stores.link.circuit import FAILURES, Circuit

__all__: list[str] = []


def test_it_opens_after_a_few_failures_in_a_row() -> None:
    """A success in between begins anew; it opens once."""
    circuit = Circuit(0.02, lambda: 0.0)
    for number in range(FAILURES - 1):
        assert not circuit.failed(number * 0.01)
    circuit.succeeded()
    opened = [circuit.failed(1.0 + number * 0.01) for number in range(FAILURES + 2)]
    assert opened == [False] * (FAILURES - 1) + [True, False, False]
    assert circuit.opened


def test_one_hiccup_is_one_failure() -> None:
    """However many calls it met: they must be spread over a deadline at least."""
    circuit = Circuit(0.02, lambda: 0.0)
    assert not any(circuit.failed(5.0) for _ in range(100))
    assert circuit.failed(5.03)


@pytest.mark.parametrize(("draw", "first", "longest"), ((0.0, 0.025, 0.375), (1.0, 0.05, 0.75)))
def test_attempts_back_off(draw: float, first: float, longest: float) -> None:
    """Each drawn from the upper half of a pause that doubles; what has held for a while begins anew (case 73)."""
    circuit = Circuit(0.02, lambda: draw)
    pauses = [circuit.pause() for _ in range(20)]
    assert pauses[0] == pytest.approx(first)
    assert pauses[1] == pytest.approx(2 * first)
    assert pauses[-1] == pytest.approx(longest)
    circuit.steady()
    assert circuit.pause() == pytest.approx(first)


def test_an_attempt_that_hung_has_waited_enough() -> None:
    """The next follows soon, so that a server which returns is found within 2 s; still not all at one moment."""
    assert Circuit(0.02, lambda: 1.0).pause(1.0) == pytest.approx(0.25)
    assert Circuit(0.02, lambda: 0.0).pause(1.0) == 0.0
