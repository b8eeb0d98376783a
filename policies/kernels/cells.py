"""Who holds how many seats in this process.

Rules
1. A seat is counted from when it is taken until it is given back, in one cell for each holder.
2. A cell is looked up by its holder's name once and kept by reference from then on: with ten thousand tenants a look by
   name is mostly waiting for memory. `changed` tells whoever keeps it whether it still holds (as a bucket's does).
3. Cells of those who hold nothing are kept for when they come back, up to a bound. Beyond that a hand going round drops
   a few for each that is made; one in which a seat is taken is never dropped.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from policies.kernels.gcra import GONE
from policies.units import Seats

__all__ = ["Cell", "Cells", "free"]

#: Cells kept whether a seat is taken in them or not: at most about 4 MB.
IDLE: Final = 16_384
#: Cells looked at for each that is made beyond that.
SWEEP: Final = 4


class Cell:
    """The seats of one holder: how many are taken, of how many as whoever asked last has it."""

    __slots__ = ("changed", "held", "seats")

    # Three numbers make an object that is one line of the processor's cache.
    def __init__(self, seats: Seats, changed: int) -> None:
        self.changed = changed
        self.held: Seats = 0
        self.seats = seats


class Cells:
    """Cells by the name of their holder."""

    __slots__ = ("_by_holder", "_hand", "_idle", "_ring")

    def __init__(self, idle: int = IDLE) -> None:
        self._by_holder: dict[str, Cell] = {}
        #: The names, in no order; `_hand` is where the sweep goes on.
        self._ring: list[str] = []
        self._hand = 0
        self._idle = idle

    def __len__(self) -> int:
        """How many cells are kept."""
        return len(self._by_holder)

    @property
    def taken(self) -> Seats:
        """Seats taken now, of all holders."""
        return sum([cell.held for cell in self._by_holder.values()])

    def find(self, holder: str, seats: Seats, change: int) -> Cell:
        """Return the cell of a holder with that many seats; if it is made, or has had others, its `changed` is that."""
        cell = self._by_holder.get(holder)
        if cell is None:
            cell = self._by_holder[holder] = Cell(seats, change)
            self._ring.append(holder)
        elif cell.seats != seats:
            cell.seats = seats
            cell.changed = change
        return cell

    def give(self, holder: str) -> None:
        """Take a seat of a holder back."""
        self._by_holder[holder].held -= 1

    def trim(self, keep: Sequence[Cell] = ()) -> None:
        """Drop some cells in which no seat is taken if there are too many, but none of `keep`."""
        ring, cells, hand = self._ring, self._by_holder, self._hand
        for _ in range(SWEEP):
            if len(ring) <= self._idle:
                break
            if hand >= len(ring):
                hand = 0
            cell = cells[ring[hand]]
            if cell.held or cell in keep:
                hand += 1
                continue
            cell.changed = GONE
            del cells[ring[hand]]
            last = ring.pop()
            if hand < len(ring):
                ring[hand] = last
        self._hand = hand


def free(cells: tuple[Cell, ...]) -> bool:
    """Return whether there is a seat in each."""
    for cell in cells:  # noqa: SIM110 - any() would make a generator
        if cell.held >= cell.seats:
            return False
    return True
