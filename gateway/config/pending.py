"""Keys of gateway.toml whose feature is not there yet: parsed and checked like the others, and warned of, never silent.

A key is warned of where a file sets it to something else than its default. With its feature, its row goes.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from gateway.config.kinds import Kind
from gateway.config.places import Finding, Place, walk
from gateway.config.settings import Settings
from gateway.config.table import follow

__all__ = ["PENDING", "pending"]

PENDING: tuple[Place, ...] = ()


def pending(tree: dict[str, Any]) -> Iterator[Finding]:
    """Yield a sentence for every key of `tree`, which is valid, that changes nothing yet."""
    for pattern in PENDING:
        for place, value in walk(tree, pattern):
            if not _is_default(place, value):
                yield place, "is accepted, and has no effect yet"


def _is_default(place: Place, value: object) -> bool:
    _, field = follow(Settings, place)
    kinds = [mark for mark in field.metadata if isinstance(mark, Kind)] if field else []
    if field is None or not kinds:
        return field is not None and list(field.get_default() or ()) == value
    return bool(kinds[0].parse(value) == kinds[0].parse(field.get_default()))
