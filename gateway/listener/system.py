"""What a serving process asks of its system: file descriptors, its supervisor's ear, and quiet from the collector."""

from __future__ import annotations

import contextlib
import gc
import logging
import os
import resource
import socket
from typing import TextIO

__all__ = ["log_to", "notify", "quiet_collector", "raise_file_limit"]


class _Spoken(logging.Formatter):
    """Writes a record as every other message of the command is: `evenhand: warning: a sentence`."""

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802 - logging's name
        return f"evenhand: {record.levelname.lower()}: {record.message}"


def log_to(stream: TextIO) -> None:
    """Let what this process has to tell its operator go to `stream`, from warnings on, unless somebody else cares."""
    out = logging.StreamHandler(stream)
    out.setFormatter(_Spoken())
    logging.basicConfig(level=logging.WARNING, handlers=[out])


def raise_file_limit() -> int:
    """Raise the limit on file descriptors to the hard limit; return it. Each request may take two."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        # Not allowed everywhere (a hard limit above the kernel's own on some systems); then what there is must do.
        with contextlib.suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    return resource.getrlimit(resource.RLIMIT_NOFILE)[0]


def notify(state: str) -> bool:
    """Tell the supervisor (`sd_notify(3)`); return whether there is one that listens."""
    address = os.environ.get("NOTIFY_SOCKET", "")
    if not address:
        return False
    name = "\0" + address[1:] if address.startswith("@") else address
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as ear, contextlib.suppress(OSError):
        ear.sendto(state.encode("utf-8"), name)
        return True
    return False


def quiet_collector() -> None:
    """Take what lives as long as the process out of the collector's sight, and let it look less often.

    A full collection walks every container there is, and the data plane waits for it: measured here, worst pauses of
    17 to 37 ms became 2 ms; with 10,000 tenants they were hundreds of milliseconds. A request is let go of by its
    references alone, so nothing piles up in between.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000, 50, 100)
