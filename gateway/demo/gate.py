"""The negative control, `python -m gateway.demo.shared -c FILE`: the same gateway with one plain bucket for everybody.

Rules
1. Nothing else differs: same listeners, same identity, same store, same figures.
2. It is no option of the product. A bucket that is drained by whoever asks most is what Evenhand exists to replace.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from gateway.clock import Clock
from gateway.config import load
from gateway.errors import GatewayError
from gateway.serve import serve
from policies.kernels.plain import PlainBackstop

__all__ = ["main"]


def main(arguments: Sequence[str]) -> int:
    """Serve FILE with a plain backstop until a signal says otherwise, and return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m gateway.demo.shared")
    parser.add_argument("-c", "--config", type=Path, required=True)
    try:
        loaded = load(parser.parse_args(arguments).config, os.environ)
        policies = loaded.policies
        bucket = PlainBackstop(
            policies.backstop.rate.per_us,
            policies.backstop.burst,
            policies.classes,
            policies.unlisted_weight,
            Clock().now(),
        )
        return serve(loaded, bucket)
    except GatewayError as error:
        print(error, file=sys.stderr)
        return 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
