"""Several leased backstops in one test: the record is the kernel's, calls are answered when the test says so."""

from __future__ import annotations

import struct
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

from gateway.stores.leased.shares import LeasedBackstop
from gateway.stores.link import Answer, Script
from policies.kernels.rates import Claim, Table, renew
from policies.policy import PolicySet
from policies.units import SECOND, Micros
from tests.clock import StandingClock

__all__ = ["Fleet", "Wire"]


class Wire:
    """What a process sends, and who waits for the answer."""

    def __init__(self) -> None:
        self.sent: deque[tuple[Sequence[bytes], Answer]] = deque()
        self.calls = 0

    def run(
        self, _script: Script, _keys: Sequence[bytes], args: Sequence[bytes], answer: Answer, _within_us: Micros,
        _late: Callable[[object], None] | None = None,
    ) -> None:  # fmt: skip
        """Keep a call."""
        self.calls += 1
        self.sent.append((args, answer))


class Fleet:
    """Backstops on one record."""

    def __init__(self, policies: PolicySet, processes: int, clock: StandingClock) -> None:
        self.clock = clock
        self.policies = policies
        self.table: Table = {}
        self.wires: list[Wire] = []
        self.backstops: list[LeasedBackstop] = []
        for _ in range(processes):
            self.join()

    def join(self) -> LeasedBackstop:
        """Start one more process."""
        self.wires.append(Wire())
        number = len(self.wires)
        self.backstops.append(LeasedBackstop(self.policies, self.wires[-1], b"record", number, self.clock.now))
        return self.backstops[-1]

    def tick(self, *, answer: bool = True) -> None:
        """Let a timer of 20 ms go off in every process."""
        self.clock.at += SECOND // 50
        for wire, backstop in zip(self.wires, self.backstops, strict=True):
            backstop.tick(self.clock.at)
            while answer and wire.sent:
                self.answer(wire)

    def answer(self, wire: Wire) -> None:
        """Answer the oldest call of a process."""
        args, heard = wire.sent.popleft()
        heard(self.reply(args))

    def reply(self, args: Sequence[bytes]) -> Any:
        """Return what the script answers."""
        process, ttl_us, _, _ = struct.unpack("<4d", args[0])
        claims = [Claim(int(pool), *rest) for pool, *rest in struct.iter_unpack("<4d", args[1])]
        fresh, count, granted, reports = renew(self.table, int(process), int(ttl_us), claims, args[2], self.clock.at)
        return [struct.pack(f"<{2 + len(granted)}d", fresh, count, *granted), *reports]

    def settle(self, seconds: float = 1.0) -> None:
        """Let that much time pass."""
        for _ in range(int(seconds * 50)):
            self.tick()

    @property
    def held(self) -> list[float]:
        """Return the part of the backstop that each process has."""
        return [round(backstop.lease_share, 3) for backstop in self.backstops]
