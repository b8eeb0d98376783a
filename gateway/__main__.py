"""`python -m gateway`, and the command `evenhand` itself.

Nothing heavy is imported before Ctrl-C is understood: an operator who changes their mind at once gets no traceback.
"""

from __future__ import annotations

import sys

__all__ = ["main"]


def main() -> None:
    """Run the command line and leave with its exit code."""
    try:
        from gateway.cli import main as command  # noqa: PLC0415 - see above

        command()
    except KeyboardInterrupt:
        sys.exit(130)


if __name__ == "__main__":
    main()
