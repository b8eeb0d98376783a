"""What a process and its children used, from /proc."""

from __future__ import annotations

import os
from pathlib import Path

__all__ = ["cpu_us", "descendants", "resident"]

_PROC = Path("/proc")
_PAGE = os.sysconf("SC_PAGE_SIZE")


def descendants(pid: int) -> list[int]:
    """Return `pid` and everything it started that still runs."""
    found = [pid]
    for task in (_PROC / str(pid) / "task").iterdir():
        for child in (task / "children").read_text().split():
            found += descendants(int(child))
    return found


def cpu_us(pids: list[int]) -> float:
    """Return the processor time of these processes so far, in microseconds, by the scheduler's own count."""
    total = 0
    for pid in pids:
        for task in (_PROC / str(pid) / "task").iterdir():
            total += int((task / "schedstat").read_text().split()[0])
    return total / 1000


def resident(pids: list[int]) -> int:
    """Return the octets that these processes hold resident, pages that they share counted for each."""
    return sum(int((_PROC / str(pid) / "statm").read_text().split()[1]) * _PAGE for pid in pids)
