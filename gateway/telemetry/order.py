"""Sorting thousands of rows without holding the interpreter: in pieces, merged as they are read."""

from __future__ import annotations

import heapq
from collections.abc import Iterator
from typing import Any, TypeVar

__all__ = ["in_pieces"]

#: One sort of ten thousand rows would hold the interpreter for 10 ms.
_PIECE = 256

_Place = TypeVar("_Place", bound=tuple[Any, ...])
_Row = TypeVar("_Row")


def in_pieces(placed: list[tuple[_Place, _Row]], *, backwards: bool = False) -> Iterator[tuple[_Place, _Row]]:
    """Yield rows in the order of their places, which are told apart by their last member."""
    pieces = (placed[start : start + _PIECE] for start in range(0, len(placed), _PIECE))
    ordered = [sorted(piece, key=_by_place, reverse=backwards) for piece in pieces]
    return heapq.merge(*ordered, key=_by_place, reverse=backwards)


def _by_place(entry: tuple[_Place, object]) -> _Place:
    return entry[0]
