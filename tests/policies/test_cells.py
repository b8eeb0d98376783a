"""The seats of a process: counted by holder, found by reference, bounded."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from policies.kernels.cells import Cells, free
from policies.kernels.gcra import GONE

__all__: list[str] = []


def test_a_holder_has_one_cell() -> None:
    """Whoever asks for a holder's cell finds the same, and a seat given back by name is given back there."""
    cells = Cells()
    cell = cells.find("ci", 2, 1)
    cell.held += 2
    assert cells.find("ci", 2, 5) is cell
    assert (cell.changed, cells.taken, free((cell,))) == (1, 2, False)
    cells.give("ci")
    assert (cells.taken, free((cell, cells.find("acme", 1, 6)))) == (1, True)


def test_another_number_of_seats_is_a_change() -> None:
    """The seats of a holder are as many as whoever asks says, and others notice."""
    cells = Cells()
    cell = cells.find("ci", 2, 1)
    assert cells.find("ci", 3, 4) is cell
    assert (cell.seats, cell.changed) == (3, 4)


def test_one_that_is_forgotten_says_so() -> None:
    """Whoever has kept a cell that was dropped sees that it is gone; the holder's next one is another."""
    cells = Cells(idle=1)
    first = cells.find("a", 1, 1)
    cells.find("b", 1, 2)
    cells.trim()
    assert (first.changed, len(cells)) == (GONE, 1)
    assert cells.find("a", 1, 3) is not first


def test_no_cell_in_use_is_forgotten() -> None:
    """Neither one in which a seat is taken is dropped, nor one that is about to be; the hand goes on to the next."""
    cells = Cells(idle=1)
    held, wanted, rest = (cells.find(holder, 1, 1) for holder in "abc")
    held.held += 1
    cells.trim((wanted,))
    cells.trim((wanted,))
    assert [cell.changed for cell in (held, wanted, rest)] == [1, 1, GONE]
    held.held -= 1
    cells.trim((wanted,))
    assert (held.changed, len(cells)) == (GONE, 1)


@given(st.lists(st.tuples(st.integers(0, 20), st.booleans()), max_size=200))
def test_flood_of_holders_is_bounded(asks: list[tuple[int, bool]]) -> None:
    """However many come and go there are few more cells than seats taken, and none of those is lost."""
    cells, held = Cells(idle=3), dict.fromkeys(map(str, range(21)), 0)
    for change, (number, take) in enumerate(asks, 1):
        holder = str(number)
        cell = cells.find(holder, 9, change)
        cells.trim((cell,))
        if take:
            cell.held += 1
            held[holder] += 1
        elif held[holder]:
            cells.give(holder)
            held[holder] -= 1
        assert cells.taken == sum(held.values())
        assert cells.find(holder, 9, change).held == held[holder]
        assert len(cells) <= 4 + sum(map(bool, held.values()))
