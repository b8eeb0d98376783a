"""The standard streams of a process whose starter may have left: what is said to nobody stops nothing.

Rules
1. A descriptor of the three that is closed is opened on the null device, before anything else is opened: a socket that
   got its number would be given what is meant for a terminal.
2. What cannot be written to stderr, because its reader has gone or its disk is full, is lost. It never fails whoever
   says it, nor the end of the process.
3. Nothing heavy is imported here.
"""

from __future__ import annotations

import contextlib
import io
import os
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer

__all__ = ["fill", "forgive"]

_STDERR = 2


class _Forgiving(io.FileIO):
    """A file that takes whatever it is given."""

    def write(self, octets: ReadableBuffer, /) -> int:
        """Write what can be written; the rest is lost."""
        left = memoryview(octets)
        size = left.nbytes
        with contextlib.suppress(OSError):
            while left:
                left = left[super().write(left) or len(left) :]
        return size


def fill() -> None:
    """Open every standard descriptor that is closed (rule 1)."""
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            # The lowest free number is the one that is closed, as those below it are open by now.
            os.open(os.devnull, os.O_RDWR)
            os.set_inheritable(number, True)
    # The interpreter has none where it found a descriptor closed.
    names = {1: "stdout", _STDERR: "stderr"}
    for number, name in names.items():
        if getattr(sys, name) is None:
            setattr(sys, name, io.TextIOWrapper(_Forgiving(number, "w", closefd=False), "utf-8", write_through=True))


def forgive() -> None:
    """Let `sys.stderr` be one that never fails (rule 2)."""
    raw = _Forgiving(_STDERR, "w", closefd=False)
    sys.stderr = io.TextIOWrapper(raw, "utf-8", "backslashreplace", write_through=True)
