"""A shared store put together: link, leases, and the guard that always answers.

    SharedStore --start()--> connecting, leasing --tick()...--> stop() --> given back, closed

Rules
1. Opening and starting never wait for the store: until it answers, postures decide.
2. A process is named by a number drawn when it starts, so one that died is never taken for its successor.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Callable

from gateway.config.sections import StoreSection
from gateway.stores.guard import GuardedStore
from gateway.stores.leased.ledger import LinkLedger
from gateway.stores.leased.shares import LeasedBackstop
from gateway.stores.leased.store import LeasedStore
from gateway.stores.leased.waiting import LoopTurns
from gateway.stores.link import Link, open_link
from gateway.stores.memory import Backstop
from gateway.stores.names import Names
from policies.policy import PolicySet
from policies.units import Micros

__all__ = ["SharedStore"]

_PROCESSES = 2**53


class SharedStore(GuardedStore):
    """One process's part of a shared store; `backstop` replaces the fair shares."""

    def __init__(
        self, section: StoreSection, policies: PolicySet, now: Callable[[], Micros], backstop: Backstop | None = None
    ) -> None:
        names = Names(section.namespace)
        #: Names this process in the store.
        self.process = 1 + secrets.randbelow(_PROCESSES - 1)
        self.link: Link = open_link(section, names)
        self._turns = LoopTurns()
        self.leases = LeasedStore(
            policies,
            LinkLedger(self.link, self.process, section.deadline),
            names,
            backstop or LeasedBackstop(policies, self.link, names.key("backstop", "shares"), self.process, now),
            self._turns,
            now,
            max_keys=section.max_keys,
            deadline=section.deadline,
            phase=self.process / _PROCESSES,
        )
        super().__init__(self.leases, self.link, policies, section.max_keys, now())

    async def start(self) -> None:
        """Begin to connect; on the data plane's loop."""
        self._turns.loop = asyncio.get_running_loop()
        await self.link.start()

    async def stop(self) -> None:
        """Give back what is held, as far as the store hears it, and close every connection."""
        self.leases.close()
        await self.link.stop()
        self._turns.loop = None
