"""Callers in a process of their own, at an open loop: what to send is their argument, what came of it their output.

Rules
1. When a request is due is drawn beforehand and does not move, whatever becomes of those before it. How long it took is
   counted from that instant, so that waiting for a free connection, or for this process, is no less a wait (Tene, "How
   NOT to Measure Latency": coordinated omission).
2. One thread and one selector, with waits of microseconds: the timers of event loops come in milliseconds.
3. `idle` callers run only when nobody else on their processor wants to, so that sending a flood delays no measurement;
   among real-time processes (`chrt -r 10`, for a machine that has other work) at the lowest priority.
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import json
import os
import random
import re
import select
import socket
import sys
import time
from collections import Counter, deque
from dataclasses import asdict, dataclass, field
from typing import Final

__all__ = ["Asked", "Seen", "main"]

_LENGTH: Final = re.compile(rb"\r\ncontent-length: *(\d+)", re.IGNORECASE)
_SET_TIMER_SLACK: Final = 29
#: Seconds after the last request in which answers may still come.
_PATIENCE: Final = 20.0


@dataclass(frozen=True, slots=True)
class Asked:
    """What to send: each of `tokens` asks `rate` times a second, at random, over `lines` connections of its own.

    `burst` requests are due at once, up to `depth` of them on a connection. It begins at `start` of the monotonic clock
    and lasts `seconds`; latencies are those of what is due after `skip`.
    """

    port: int
    path: str
    tokens: list[str]
    rate: float
    lines: int
    start: float
    seconds: float
    skip: float
    seed: int
    depth: int = 1
    burst: int = 1
    idle: bool = False


@dataclass(slots=True)
class Seen:
    """What came of it: all answers by status, 0 standing for none, and the seconds that each took that is not early."""

    statuses: dict[str, int]
    took: list[float]
    seconds: float
    #: How late requests were sent, at the 99th percentile: this process and its processor, not the gateway.
    late: float


@dataclass(slots=True)
class _Who:
    """One tenant: its connections that are free, and requests that wait for one."""

    octets: bytes
    free: deque[_Line] = field(default_factory=deque)
    waiting: deque[float] = field(default_factory=deque)


class _Line:
    """One connection; `due` are the instants of what it was asked, `room` how many more it may be."""

    __slots__ = ("_rest", "due", "room", "sock", "who")

    def __init__(self, who: _Who, port: int, depth: int) -> None:
        self.who = who
        self.room = depth
        self.due: deque[float] = deque()
        self._rest = b""
        self.sock = socket.create_connection(("127.0.0.1", port))
        self.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        who.free.extend([self] * depth)

    def read(self) -> list[int] | None:
        """Return the statuses of the answers that are complete; None at the end of the connection."""
        data = b""
        with contextlib.suppress(ConnectionError):
            data = self.sock.recv(262_144)
        if not data:
            return None
        data = self._rest + data
        found, at = [], 0
        while (end := data.find(b"\r\n\r\n", at)) >= 0:
            length = _LENGTH.search(data, at, end)
            end += 4 + (int(length[1]) if length else 0)
            if end > len(data):
                break
            found.append(int(data[at + 9 : at + 12]))
            at = end
        self._rest = data[at:]
        return found


class _Load:
    """All callers of this process."""

    def __init__(self, asked: Asked) -> None:
        self._asked = asked
        dice = random.Random(asked.seed)
        self._plan: list[tuple[float, _Who]] = []
        self._lines: dict[int, _Line] = {}
        self._poll = select.epoll()
        for token in asked.tokens:
            head = f"GET {asked.path} HTTP/1.1\r\nHost: api.example.com\r\nAccept: application/json\r\n"
            who = _Who(f"{head}Authorization: {token}\r\n\r\n".encode())
            for _ in range(asked.lines):
                self._connect(who)
            at, often = 0.0, asked.rate / asked.burst
            while (at := at + dice.expovariate(often)) < asked.seconds:
                self._plan += [(asked.start + at, who)] * asked.burst
        self._plan.sort(key=lambda one: one[0])
        self._owed = len(self._plan)
        self.statuses: Counter[int] = Counter()
        self.took: list[float] = []
        self.late: list[float] = []

    def run(self) -> None:
        """Send what is due when it is due, and read what comes."""
        at, plan = 0, self._plan
        end = self._asked.start + self._asked.seconds + _PATIENCE
        while self._owed:
            now = time.monotonic()
            while at < len(plan) and plan[at][0] <= now:
                self._send(*plan[at])
                at += 1
                now = time.monotonic()
            until = plan[at][0] if at < len(plan) else end
            if now >= end:
                break
            # epoll itself waits for whole milliseconds.
            if select.select([self._poll], [], [], until - now)[0]:
                for number, _ in self._poll.poll(0):
                    self._read(self._lines[number])
        self.statuses[0] += self._owed

    def _connect(self, who: _Who) -> None:
        line = _Line(who, self._asked.port, self._asked.depth)
        self._lines[line.sock.fileno()] = line
        self._poll.register(line.sock, select.EPOLLIN)

    def _send(self, due: float, who: _Who) -> None:
        if not who.free:
            who.waiting.append(due)
            return
        line = who.free.popleft()
        line.due.append(due)
        self.late.append(time.monotonic() - due)
        with contextlib.suppress(ConnectionError):
            line.sock.send(who.octets)

    def _read(self, line: _Line) -> None:
        found = line.read()
        now = time.monotonic()
        if found is None:
            self._lost(line)
            return
        asked, who = self._asked, line.who
        for status in found:
            due = line.due.popleft()
            self._owed -= 1
            self.statuses[status] += 1
            if due >= asked.start + asked.skip:
                self.took.append(now - due)
            who.free.append(line)
            if who.waiting:
                self._send(who.waiting.popleft(), who)

    def _lost(self, line: _Line) -> None:
        """Count what is not answered any more, and connect anew."""
        self._poll.unregister(line.sock)
        del self._lines[line.sock.fileno()]
        line.sock.close()
        self._owed -= len(line.due)
        self.statuses[0] += len(line.due)
        who = line.who
        who.free = deque(one for one in who.free if one is not line)
        self._connect(who)
        while who.waiting and who.free:
            self._send(who.waiting.popleft(), who)


def _quiet(asked: Asked) -> None:
    """Keep what this process does by itself out of what it measures."""
    gc.disable()
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_SET_TIMER_SLACK, 1, 0, 0, 0)
        if asked.idle:
            first = os.sched_getscheduler(0) == os.SCHED_RR
            kind, priority = (os.SCHED_RR, 1) if first else (os.SCHED_IDLE, 0)
            os.sched_setscheduler(0, kind, os.sched_param(priority))


def main() -> None:
    """Read what to send, send it, print what came of it."""
    asked = Asked(**json.loads(sys.argv[1]))
    load = _Load(asked)
    _quiet(asked)
    load.run()
    late = sorted(load.late) or [0.0]
    seconds = max(asked.seconds, time.monotonic() - asked.start)
    statuses = {str(status): count for status, count in load.statuses.items() if count}
    print(json.dumps(asdict(Seen(statuses, load.took, seconds, late[int(len(late) * 0.99)]))))


if __name__ == "__main__":
    main()
