"""Where log lines go: a bounded buffer, and the thread that writes it away.

Rules
1. `put` never blocks and never fails. A reader that does not keep up, a full disk or a lost directory costs lines,
   which are counted, never a request.
2. Only whole lines are written, at most PIPE_BUF octets at once, so that they do not mix with what others write to the
   same pipe.
3. A file that was moved away is opened anew within a second, so log rotation needs no signal.
"""

from __future__ import annotations

import contextlib
import os
import select
import stat
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable
from pathlib import Path

from gateway.errors import ConfigError, Fault

__all__ = ["Sink"]

_STDERR = 2
_MAX_BYTES = 4 << 20
_CHUNK = 4096  # PIPE_BUF on Linux
_POLL_SECONDS = 0.1
_REOPEN_SECONDS = 1.0
_MODE = 0o640


class Sink:
    """Takes lines from one thread, writes them in another. `path` None is stderr.

    `more` is asked by the writing thread for lines of its own, about ten times a second. Raises ConfigError if the file
    cannot be opened for writing.
    """

    def __init__(self, path: Path | None, more: Callable[[], Iterable[bytes]], max_bytes: int = _MAX_BYTES) -> None:
        self._path = path
        self._more = more
        self._max_bytes = max_bytes
        self._lines: deque[bytes] = deque()
        self._put = 0  # bytes ever put, written by the putting thread
        self._taken = 0  # bytes ever taken, written by the other
        self._overflowed = 0  # lines, by the putting thread
        self._lost = 0  # lines, by the other
        self._checked = 0.0
        self._stopping = threading.Event()
        self._thread: threading.Thread | None = None
        self._fd: int | None = _STDERR if path is None else None
        #: Why lines cannot be written, empty while they can.
        self.fault = ""
        if path is not None and not _is_fifo(path):
            self._open()
            if self.fault:
                raise ConfigError((Fault("telemetry.decision_log", self.fault),))

    @property
    def dropped(self) -> int:
        """Lines lost for ever."""
        return self._overflowed + self._lost

    def put(self, line: bytes) -> None:
        """Take one line with its newline, or drop it if the buffer is full."""
        if self._put - self._taken + len(line) > self._max_bytes:
            self._overflowed += 1
            return
        self._put += len(line)
        self._lines.append(line)

    def start(self) -> None:
        """Begin writing."""
        self._thread = threading.Thread(target=self._run, name="evenhand-log", daemon=True)
        self._thread.start()

    def stop(self, timeout: float = 1.0) -> None:
        """Write what is left and end; what a stuck reader does not take within `timeout` seconds is lost."""
        self._stopping.set()
        if self._thread is not None:
            self._thread.join(timeout)
        if self._thread is None or not self._thread.is_alive():
            self.close()

    def close(self) -> None:
        """Close the file."""
        if self._fd is not None and self._path is not None:
            os.close(self._fd)
            self._fd = None

    def flush(self) -> None:
        """Write everything that is there. The writing thread's own; without one, anybody's."""
        lines: list[bytes] = []
        while self._lines:
            lines.append(self._lines.popleft())
            self._taken += len(lines[-1])
        lines.extend(self._more())
        chunk = bytearray()
        for line in lines:
            if len(chunk) + len(line) > _CHUNK:
                self._write(chunk)
                chunk = bytearray()
            chunk += line
        if chunk:
            self._write(chunk)

    def _run(self) -> None:
        self._look_after_file()
        while not self._stopping.wait(_POLL_SECONDS):
            self._look_after_file()
            self.flush()
        self.flush()

    def _write(self, chunk: bytearray) -> None:
        left = memoryview(chunk)
        while left:
            if self._fd is None:
                self._lose(chunk)
                return
            try:
                left = left[os.write(self._fd, left) :]
            except BlockingIOError:  # stderr is what the starter made of it
                select.select([], [self._fd], [], _POLL_SECONDS)
            except OSError as exc:
                self._lose(chunk, exc)
                return
        self.fault = ""

    def _lose(self, chunk: bytearray, exc: OSError | None = None) -> None:
        self._lost += chunk.count(b"\n")
        if exc is not None:
            self.fault = f"expected a log that can be written, found: {exc.strerror}"

    def _look_after_file(self) -> None:
        """Open the file anew if it is not where it was."""
        now = time.monotonic()
        if self._path is None or now - self._checked < _REOPEN_SECONDS:
            return
        self._checked = now
        if self._fd is not None:
            with contextlib.suppress(OSError):
                if os.path.samestat(os.fstat(self._fd), self._path.stat()):
                    return
            self.close()
        self._open()

    def _open(self) -> None:
        if self._path is None:
            return
        try:
            self._fd = os.open(self._path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, _MODE)
            self.fault = ""
        except OSError as exc:
            self.fault = f"expected a file that can be written, found {self._path}: {exc.strerror}"


def _is_fifo(path: Path) -> bool:
    """Return whether opening `path` would wait for a reader."""
    with contextlib.suppress(OSError):
        return stat.S_ISFIFO(path.stat().st_mode)
    return False
