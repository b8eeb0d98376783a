"""The demo's child processes: an origin and a gateway, ended whatever happens.

Rules
1. A child is in a session of its own, so Ctrl-C reaches the demo alone, and the demo ends its children in order.
2. Whatever ends the demo ends them: TERM for the gateway, the end of its pipe for the origin, and after a moment KILL.
   Both pipes end with the demo even where that is killed, and each child ends with its pipe.
3. What a child says on stderr is kept, and shown if it dies; what it writes goes with the folder.
"""

from __future__ import annotations

import contextlib
import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Self

from gateway.errors import GatewayError

__all__ = ["Children", "free_ports"]

_DRAIN_SECONDS = 3.0
#: Children run in a folder of their own, where a package that was not installed is not found.
_CHECKOUT = str(Path(__file__).parents[2])


def free_ports(count: int) -> list[int]:
    """Return `count` loopback ports that were free a moment ago."""
    with contextlib.ExitStack() as held:
        sockets = [held.enter_context(socket.socket()) for _ in range(count)]
        for each in sockets:
            each.bind(("127.0.0.1", 0))
        return [each.getsockname()[1] for each in sockets]


class Children:
    """The processes of one demo; a context manager that leaves none behind."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._started: list[tuple[str, subprocess.Popen[str]]] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def origin(self) -> tuple[int, Callable[[float], None]]:
        """Start an origin and return its port, and how to tell it its capacity in requests a second."""
        child = self._start("origin", ["-m", "gateway.demo.origin"])
        announced = child.stdout.readline() if child.stdout else ""
        if not announced.strip():
            child.wait()
            self.check()

        def tell(per_second: float) -> None:
            if child.stdin:
                child.stdin.write(f"{per_second}\n")
                child.stdin.flush()

        return int(announced), tell

    def gateway(self, module: list[str], config: Path) -> None:
        """Start a gateway: `python -m MODULE -c CONFIG`."""
        self._start("gateway", ["-m", *module, "-c", str(config)])

    @property
    def pids(self) -> dict[str, int]:
        """The process ids of the children by their names."""
        return {name: child.pid for name, child in self._started}

    def check(self) -> None:
        """Raise GatewayError with the last words of a child that has ended."""
        for name, child in self._started:
            if child.poll() is not None:
                words = self._stderr(name).read_text(errors="replace").strip().splitlines()
                raise GatewayError(
                    f"the demo's {name} ended with {child.returncode}: {words[-1] if words else 'no word'}"
                )

    def stop(self) -> None:
        """End all children, the gateway first, and wait until they are gone."""
        until = time.monotonic() + _DRAIN_SECONDS
        for name, child in reversed(self._started):
            if name == "origin" and child.stdin:
                child.stdin.close()
            else:
                child.terminate()
        for _, child in self._started:
            try:
                child.wait(max(0.0, until - time.monotonic()))
            except subprocess.TimeoutExpired:
                child.kill()
                child.wait()
            for pipe in filter(None, (child.stdin, child.stdout)):
                with contextlib.suppress(BrokenPipeError):
                    pipe.close()
        self._started.clear()

    def _stderr(self, name: str) -> Path:
        return self._folder / f"{name}.stderr"

    def _start(self, name: str, arguments: list[str]) -> subprocess.Popen[str]:
        with self._stderr(name).open("w") as stderr:
            child = subprocess.Popen(
                [sys.executable, *arguments],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=stderr,
                text=True,
                cwd=self._folder,
                env=os.environ
                | {"PYTHONPATH": os.pathsep.join(filter(None, (_CHECKOUT, os.environ.get("PYTHONPATH"))))},
                start_new_session=True,
            )
        self._started.append((name, child))
        return child
