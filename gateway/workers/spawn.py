"""Starting a worker: this interpreter executed anew, with two descriptors and the same modules.

Nothing is forked that has threads: what is executed begins from nothing.
"""

from __future__ import annotations

import os
import socket
import subprocess
import sys

__all__ = ["spawned"]


def spawned(data: socket.socket) -> tuple[subprocess.Popen[bytes], socket.socket]:
    """Start a worker on the listening socket `data`; return it, and our end of its pipe."""
    ours, theirs = socket.socketpair()
    ours.setblocking(False)
    descriptors = (theirs.fileno(), data.fileno())
    paths = [entry or os.getcwd() for entry in sys.path]  # noqa: PTH109 - text, as the interpreter has it
    with theirs:
        process = subprocess.Popen(  # noqa: S603 - ourselves
            # -P: what lies in the working directory is no module of ours, unless it was before.
            [sys.executable, "-P", "-m", "gateway.workers", *map(str, descriptors)],
            pass_fds=descriptors,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(paths)},
            stdin=subprocess.DEVNULL,
        )
    return process, ours
