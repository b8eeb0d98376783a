"""Units are counted in a number and in a table; whoever reads sees every one of them, once."""

from __future__ import annotations

import sys
from types import FrameType
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.history.meter import SLOT, SLOT_SECONDS, Cell, Meter
from policies.charge import Memo
from policies.units import SECOND
from tests.policies.documents import user

__all__: list[str] = []

ADDS = st.lists(st.tuples(st.integers(0, SLOT_SECONDS - 1), st.sampled_from([0.5, 1.0, 4.0, -1.0])), max_size=40)


def spread(adds: list[tuple[int, float]]) -> list[float]:
    """Return the units of each second."""
    return [sum(units for second, units in adds if second == each) for each in range(SLOT_SECONDS)]


@given(ADDS)
def test_each_second_has_its_units(adds: list[tuple[int, float]]) -> None:
    """In whatever order seconds come, and though one comes again."""
    cell = Cell(user())
    for number, (second, units) in enumerate(adds, 1):
        cell.add(second, units)
        assert cell.units() == spread(adds[:number])


@given(ADDS)
def test_a_reader_may_come_between_any_two_steps(adds: list[tuple[int, float]]) -> None:
    """It sees what was counted before or after the step; compiled, nobody comes between."""
    cell = Cell(user())
    seen: list[list[float]] = []

    def look(frame: FrameType, _event: str, _arg: object) -> Any:
        if frame.f_code.co_filename.endswith("meter.py"):
            seen.append(cell.units())
            return look
        return None

    for number, (second, units) in enumerate(adds, 1):
        seen.clear()
        before = sys.gettrace()
        sys.settrace(look)
        try:
            cell.add(second, units)
        finally:
            sys.settrace(before)
        assert all(each in (spread(adds[: number - 1]), spread(adds[:number])) for each in seen)


def test_what_is_read_is_the_readers() -> None:
    """Writing to it changes nothing here; and what was counted elsewhere is added."""
    cell = Cell(user())
    cell.add(3, 2.0)
    cell.units()[3] = 9.0
    cell.fold([1.0] * SLOT_SECONDS)
    assert cell.units() == [1.0, 1.0, 1.0, 3.0, *[1.0] * 6]
    with pytest.raises(ValueError, match="9 seconds"):
        cell.fold([1.0] * 9)


def test_a_closed_slot_has_everything() -> None:
    """The last second too; what a plan remembers is of the slot under way, and what was never sent is taken out."""
    meter, memo, who = Meter(10), Memo(), user()
    for at in (0, 1, 1, 9):
        meter.note(who, 2.0, "", at * SECOND, memo)
    meter.note(who, 2.0, "key", 9 * SECOND, memo)
    meter.take_back(who, 2.0, 1 * SECOND)
    meter.note(who, 5.0, "", SLOT, memo)
    (closed,) = meter.take_closed()
    (cell,) = closed.cells.values()
    assert cell.units() == [2.0, 2.0, *[0.0] * 7, 2.0]
    assert (cell.admitted, cell.refused_units, cell.refused) == (3, 2.0, {"key": 1})
    (cell,) = meter.slot.cells.values()
    assert cell.units() == [5.0, *[0.0] * 9]
