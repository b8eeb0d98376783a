"""Several gateways on one bucket of record, in simulated time: what processes do with leases, in its simplest form.

A process spends what it holds, asks when a request finds nothing, believes what it is told of waiting, and at every
tick asks for two ticks of demand ahead. What it did not use for a second it gives back.
"""

from __future__ import annotations

from collections.abc import Sequence
from heapq import heapify, heappop, heappush
from random import Random

from policies.kernels.lease import TICK, Grant, Record, Want, lease, prepare
from policies.units import SECOND
from tests.clock import EPOCH

__all__ = ["Bank", "Member", "run"]


class Bank:
    """The bucket of record, and how many asks were made of it."""

    def __init__(self, rate: float, burst: float, dearest: float = 1.0) -> None:
        self.rate_us, self.burst, self.dearest = rate / SECOND, burst, dearest
        self.record: Record | None = None
        self.asks = 0

    def ask(self, process: int, want: Want, now: int) -> Grant:
        """Do one step."""
        self.asks += 1
        self.record = prepare(self.record, self.rate_us, self.burst, want, self.dearest, now)
        return lease(self.record, process, want, now)


class Member:
    """One process, to which `offered` requests come a second, each of one unit."""

    def __init__(self, bank: Bank, number: int, offered: float) -> None:
        self.bank, self.number, self.offered = bank, number, offered
        self.units = self.asked = self.pace = 0.0
        self.dry_until = self.patient_until = self.used_at = EPOCH
        self.admitted = self.refused = 0

    def request(self, now: int) -> bool:
        """Serve one request, or refuse it."""
        self.asked += 1.0
        self.used_at = now
        if self.units < 1.0 and now >= max(self.dry_until, self.patient_until):
            self._lease(1.0 - self.units, now)
        if self.units < 1.0:
            self.refused += 1
            return False
        self.units -= 1.0
        self.admitted += 1
        return True

    def tick(self, now: int) -> None:
        """Ask ahead, or give back."""
        asked, self.asked = self.asked, 0.0
        self.pace = max(asked, (self.pace + asked) / 2)
        if now - self.used_at > SECOND:
            if self.units > 0.0:
                self.bank.ask(self.number, Want(back=self.units), now)
                self.units = self.pace = 0.0
        elif self.units < self._ahead():
            self._lease(0.0, now)

    def _ahead(self) -> float:
        """Return how much to hold: two ticks of demand, in whole requests, and never much of a small bucket."""
        bank = self.bank
        return float(int(min(2 * max(self.pace, self.asked), max(bank.rate_us * 2 * TICK, bank.burst / 16))))

    def _lease(self, cost: float, now: int) -> None:
        units = cost + max(0.0, self._ahead() - self.units)
        grant = self.bank.ask(self.number, Want(high=units, high_cost=cost), now)
        self.units += grant.high
        self.dry_until = now + grant.high_wait_us
        # What flows in within a tick is worth a call; single units as they come are not.
        if grant.high < units and self.bank.rate_us * TICK >= 2.0:
            self.patient_until = now + min(TICK, int(self.bank.burst / self.bank.rate_us / 2))


def run(members: Sequence[Member], seconds: float, random: Random, jitter: int = TICK // 2) -> None:
    """Let `members` work: requests as they happen to come, ticks late by up to `jitter`."""
    end = EPOCH + int(seconds * SECOND)
    events: list[tuple[int, int, int]] = []
    for index, member in enumerate(members):
        events.append((EPOCH + random.randrange(TICK), 1, index))
        if member.offered > 0:
            events.append((EPOCH + int(random.expovariate(member.offered) * SECOND), 0, index))
    heapify(events)
    while events[0][0] < end:
        now, kind, index = heappop(events)
        member = members[index]
        if kind:
            member.tick(now)
            heappush(events, (now + TICK + random.randint(0, jitter), 1, index))
        else:
            member.request(now)
            heappush(events, (now + max(1, int(random.expovariate(member.offered) * SECOND)), 0, index))
