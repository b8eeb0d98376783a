"""Sizing beside the gateway: the same arithmetic in an interpreter of its own, which the data plane never waits for.

    Recount ---- pickle on stdin: where to read, Basis, day ----> main()
    Recount <---- frames on stdout: lists of Row, at last an empty one ---- main()

Rules
1. It only reads. What it finds goes back over the pipe; whoever started it writes.
2. It takes what nobody else wants of the processors: the lowest priority, and a pause for all it works.
3. It ends with whoever started it: a pipe that is closed ends it at its next frame. If it is killed, or cannot be
   started, that is one `RecountError`, and nothing has changed.
"""

from __future__ import annotations

import contextlib
import os
import pickle
import select
import struct
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from itertools import islice
from pathlib import Path
from typing import IO, BinaryIO, cast

from gateway.errors import GatewayError
from gateway.history.sizer import Basis, Pasts, Row, resize

__all__ = ["Opener", "Recount", "RecountError", "main"]

#: Opens what is read, in the other process; goes there as a pickle.
Opener = Callable[[], AbstractContextManager[Pasts]]

_FRAME = struct.Struct("<I")
_ROWS = 50
_LEAVE_SECONDS = 2.0
#: Pause, as a part of the time worked: under a quota of processor time even the lowest priority is paid for.
_PAUSE = 0.5
_PACKAGES = str(Path(__file__).resolve().parents[2])


class RecountError(GatewayError):
    """The other process ended before its work did."""


class Recount:
    """One sizing under way. Raises RecountError where none can be started."""

    def __init__(self, opener: Opener, basis: Basis, today: int) -> None:
        paths = os.pathsep.join(filter(None, (_PACKAGES, os.environ.get("PYTHONPATH"))))
        try:
            # Our own interpreter; descriptors of ours are inherited by nobody anyway (PEP 446).
            self._process = subprocess.Popen(
                [sys.executable, "-P", "-m", "gateway.history.recount"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                env=os.environ | {"PYTHONPATH": paths},
                close_fds=False,
            )
            with cast("IO[bytes]", self._process.stdin) as request:
                request.write(pickle.dumps((opener, basis, today)))  # a few hundred octets: a pipe holds them
        except OSError as error:
            raise RecountError(f"a process for sizing cannot be started: {error}") from error
        self._pipe = cast("IO[bytes]", self._process.stdout)
        self._buffer = bytearray()
        self._ended = False

    def rows(self, seconds: float) -> list[Row] | None:
        """Return what came within so many seconds, perhaps nothing; None at the end. Raises RecountError."""
        until = time.monotonic() + seconds
        while True:
            frame = self._frame()
            if frame is not None:
                rows: list[Row] = pickle.loads(frame)  # noqa: S301 - written by our own process
                self._ended = not rows
                return rows or None
            ready, _, _ = select.select([self._pipe], [], [], max(0.0, until - time.monotonic()))
            if not ready:
                return []
            data = os.read(self._pipe.fileno(), 1 << 16)
            if not data:
                raise RecountError("the process that sizes ended before its work did")
            self._buffer += data

    def _frame(self) -> bytes | None:
        if len(self._buffer) < _FRAME.size:
            return None
        end = _FRAME.size + _FRAME.unpack_from(self._buffer)[0]
        if len(self._buffer) < end:
            return None
        frame = bytes(self._buffer[_FRAME.size : end])
        del self._buffer[:end]
        return frame

    def close(self) -> None:
        """End it; one that has said all it had to say may end by itself."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(_LEAVE_SECONDS if self._ended else 0)
        self._process.kill()
        self._process.wait()
        self._pipe.close()


def main(source: BinaryIO, sink: BinaryIO) -> None:
    """Read one request and answer it."""
    _yield_to_others()
    opener, basis, today = pickle.load(source)  # noqa: S301 - written by whoever started this process
    with contextlib.suppress(BrokenPipeError), opener() as pasts:
        for rows in _paced(resize(pasts, basis, today)):
            _send(sink, rows)
        _send(sink, [])


def _paced(rows: Iterator[Row]) -> Iterator[list[Row]]:
    began = time.monotonic()
    while some := list(islice(rows, _ROWS)):
        yield some
        time.sleep((time.monotonic() - began) * _PAUSE)
        began = time.monotonic()


def _send(sink: BinaryIO, rows: list[Row]) -> None:
    frame = pickle.dumps(rows, pickle.HIGHEST_PROTOCOL)
    sink.write(_FRAME.pack(len(frame)) + frame)
    sink.flush()


def _yield_to_others() -> None:
    """Run only when nobody else on this machine wants to."""
    with contextlib.suppress(OSError):
        os.nice(19)
    with contextlib.suppress(OSError, AttributeError):  # the latter where it is no Linux
        os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))


if __name__ == "__main__":
    # Whoever started it has other plans for signals of the terminal, and kills it when it is done.
    with contextlib.suppress(KeyboardInterrupt):
        try:
            main(sys.stdin.buffer, sys.stdout.buffer)
        except GatewayError as error:
            sys.exit(f"evenhand: sizing: {error}")
