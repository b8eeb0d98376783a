"""What a loop reports of accepting when descriptors or buffers run out: one line a second at most, no traceback.

Whoever makes them run out would else fill the disk that stderr goes to. Everything else is reported as ever.
"""

from __future__ import annotations

import asyncio
import errno
import logging
from typing import Any

__all__ = ["SHORT", "Shortage"]

_LOG = logging.getLogger("evenhand")

#: Errors of accept(2) that are about us, not about who connects.
SHORT = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM})
#: Seconds between two lines.
_PAUSE = 1.0


class Shortage:
    """The exception handler of one loop."""

    def __init__(self) -> None:
        self._told_at = -_PAUSE
        self._untold = 0

    def __call__(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        """Report `context`."""
        error = context.get("exception")
        if not isinstance(error, OSError) or error.errno not in SHORT:
            loop.default_exception_handler(context)
            return
        now = loop.time()
        if now - self._told_at < _PAUSE:
            self._untold += 1
            return
        untold, self._untold, self._told_at = self._untold, 0, now
        more = f" ({untold} more since the last line)" if untold else ""
        _LOG.warning("a connection could not be accepted: %s%s", error.strerror, more)
