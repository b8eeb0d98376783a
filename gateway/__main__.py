"""`python -m gateway`, and the command `evenhand` itself.

Nothing heavy is imported before Ctrl-C is understood: an operator who changes their mind at once gets no traceback.
Nor before SIGTERM is, for `serve`: a supervisor may change its mind as well, and exit code 0 is what it was promised.
It serves all the same where nobody hears what it says.
"""

from __future__ import annotations

import sys

from gateway.listener.early import early
from gateway.listener.streams import fill, forgive

__all__ = ["main"]


def main() -> None:
    """Run the command line and leave with its exit code."""
    fill()
    if sys.argv[1:2] == ["serve"]:
        forgive()
        early.arm()
    try:
        from gateway.cli import main as command  # noqa: PLC0415 - see above

        command()
    except KeyboardInterrupt:
        sys.exit(130)


if __name__ == "__main__":
    main()
