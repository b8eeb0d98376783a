"""The recorded night, scaled to this machine: `evenhand demo`.

Reading order: `tenants.py` (who calls), `origin.py` (what they call), `drive.py` (how they call), `table.py` (what they
got), `show.py` (all of it together).
"""

from __future__ import annotations

__all__ = ["run"]


def run(seconds: int | None, mode: str) -> int:
    """Run the demo for `seconds` (None: half a minute), `mode` evenhand or shared-bucket, and return its exit code.

    Raises GatewayError if the gateway or the origin cannot be started.
    """
    from gateway.demo.show import show  # noqa: PLC0415 - the demo's child processes import this package too

    return show(seconds, mode)
