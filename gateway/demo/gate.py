"""The demo's gateway, `python -m gateway.demo.gate MODE -c FILE`: the one of `evenhand serve`, or its negative control.

Rules
1. It lives no longer than the pipe from its parent, whatever happens to that: a demo that is killed leaves nothing.
2. `shared-bucket` is the same gateway with one plain bucket for everybody; nothing else differs. It is no option of the
   product: a bucket that is drained by whoever asks most is what Evenhand exists to replace.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
import threading
from collections.abc import Sequence
from pathlib import Path

from gateway.clock import Clock
from gateway.config import load
from gateway.errors import GatewayError
from gateway.serve import serve
from policies.kernels.plain import PlainBackstop
from policies.policy import PolicySet

__all__ = ["main"]

#: After the pipe's end it may drain for so long.
_DRAIN_SECONDS = 3.0


def main(arguments: Sequence[str]) -> int:
    """Serve FILE until a signal, or the end of stdin, says otherwise, and return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m gateway.demo.gate")
    parser.add_argument("mode", choices=("evenhand", "shared-bucket"))
    parser.add_argument("-c", "--config", type=Path, required=True)
    asked = parser.parse_args(arguments)
    threading.Thread(target=_outlive_nobody, daemon=True).start()
    try:
        loaded = load(asked.config, os.environ)
        return serve(loaded, _one_bucket(loaded.policies) if asked.mode == "shared-bucket" else None)
    except GatewayError as error:
        print(error, file=sys.stderr)
        return 1


def _one_bucket(policies: PolicySet) -> PlainBackstop:
    capacity = policies.backstop
    return PlainBackstop(
        capacity.rate.per_us, capacity.burst, policies.classes, policies.unlisted_weight, Clock().now()
    )


def _outlive_nobody() -> None:
    """End this process when the other end of stdin is gone."""
    sys.stdin.buffer.read()
    os.kill(os.getpid(), signal.SIGTERM)
    threading.Event().wait(_DRAIN_SECONDS)
    os._exit(1)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
