"""Bounded waiting for what another process, or another thread, does.

Rules
1. Nothing that another process does is there yet because something else is: whoever asserts it waits for it.
2. A bound is there to end a test that fails. It is as long as a machine may need that is shared and four times slower;
   what comes early costs nothing.
3. Where a case demands a time, it is written as `time + SLACK`: such a machine can let anybody wait for its turn.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

__all__ = ["SLACK", "until"]

#: Seconds in which a process may not have had its turn, on top of a time that a case demands.
SLACK = 8.0


async def until(condition: Callable[[], object], what: str, within: float = 10.0) -> None:
    """Return as soon as `condition()` is true; fail with `what` after `within` seconds."""
    deadline = time.monotonic() + within
    while not condition():
        assert time.monotonic() < deadline, f"not within {within} s: {what}"
        await asyncio.sleep(0.005)
