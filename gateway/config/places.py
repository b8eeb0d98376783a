"""Places in the tree of gateway.toml, and how to write them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, TypeAlias

from gateway.config.values import quoted

__all__ = ["Finding", "Place", "dotted", "header", "lone_arrays", "walk"]

#: Keys of tables and indices of arrays, from the root.
Place: TypeAlias = tuple[str | int, ...]
#: What is wrong in the joined tree, not yet traced back to a file.
Finding: TypeAlias = tuple[Place, str]

_BARE = re.compile(r"[A-Za-z0-9_-]+", re.ASCII)


def dotted(place: Place) -> str:
    """Write a place as TOML would: `tenants[0].credentials[1].quota`."""
    parts = (
        f"[{step}]" if isinstance(step, int) else f".{step if _BARE.fullmatch(step) else quoted(step)}"
        for step in place
    )
    return "".join(parts).removeprefix(".")


def header(place: Place) -> str:
    """Write the header of one more table in the array at `place`: `[[tenants.credentials]]`."""
    return f"[[{dotted(tuple(step for step in place if isinstance(step, str)))}]]"


def lone_arrays(value: object, place: Place) -> str:
    """Say what to do about `[[tenants.credentials]]` that stands in its file without a `[[tenants]]` above; else ""."""
    if not isinstance(value, dict) or not value or not all(isinstance(held, list) for held in value.values()):
        return ""
    below = header((*place, *list(value)[:1]))
    return f"expected {header(place)} above {below} in the same file, found none"


def walk(tree: Any, pattern: Place, at: Place = ()) -> Iterator[tuple[Place, Any]]:
    """Yield (place, value) of all that `pattern` names in `tree`; `*` is every entry of an array, or of a table."""
    if not pattern:
        yield at, tree
        return
    step, rest = pattern[0], pattern[1:]
    if step == "*" and isinstance(tree, list):
        entries: Any = enumerate(tree)
    elif isinstance(tree, dict):
        entries = tree.items() if step == "*" else [(step, tree[step])] if step in tree else []
    else:
        entries = []
    for key, value in entries:
        yield from walk(value, rest, (*at, key))
