"""Loops over all tenants, beside a data plane that needs the same interpreter.

Rules
1. Nobody holds the interpreter for more than a fraction of a millisecond; compiled code would hold it to its end, for
   it is never asked to let go.
2. In between the data plane has it for longer than it was held, or ten thousand tenants would be served by halves.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Final, TypeVar

__all__ = ["AT_ONCE", "breathe", "breathing"]

#: Tenants looked at in one go.
AT_ONCE: Final = 256
#: A sleep of 0 would take the interpreter back before who waits for it has woken up.
_SECONDS: Final = 0.0005

_T = TypeVar("_T")


def breathe() -> None:
    """Let other threads run."""
    time.sleep(_SECONDS)


def breathing(items: Iterator[_T]) -> Iterator[_T]:
    """Pass `items` on, letting other threads run every so often."""
    left = AT_ONCE
    for item in items:
        yield item
        left -= 1
        if not left:
            time.sleep(_SECONDS)
            left = AT_ONCE
