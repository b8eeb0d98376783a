"""The command that a parent starts a worker by: `python -m gateway.workers PIPE SOCKET`, two descriptors.

Signals are turned off before anything heavy is imported: from its first moment on a worker hears its parent alone.
"""

from __future__ import annotations

import signal
import socket
import sys

from gateway.listener.streams import fill, forgive

__all__ = ["main"]


def main() -> None:
    """Be a worker, and leave with its exit code."""
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    fill()
    forgive()
    pipe, data = (socket.socket(fileno=int(number)) for number in sys.argv[1:3])
    for end in (pipe, data):
        end.set_inheritable(False)
    from gateway.workers.child import run  # noqa: PLC0415 - see above

    sys.exit(run(pipe, data))


if __name__ == "__main__":
    main()
