"""Ten thousand tenants on an admin listener of its own: counted, not called, since only reading them is asked here."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import threading
from collections.abc import Iterator
from pathlib import Path

import uvicorn

from gateway.admin import Health, build_admin
from gateway.dashboard import Dashboard
from gateway.history.keeper import History
from gateway.telemetry import Telemetry
from gateway.telemetry.codebook import Tally
from policies.kernels.fairshare import Shares
from policies.policy import PolicySet
from policies.request import Class
from tests.gateway.telemetry.made import StoppedClock, configured

__all__ = ["COUNT", "Crowd", "served"]

COUNT = 10_000


class Crowd:
    """Its telemetry and its dashboard; the worst is tenant 7777, and every tenth tenant is over its share."""

    def __init__(self, folder: Path, history: History | None = None) -> None:
        loaded = configured(folder, unlisted=2 * COUNT)
        self.clock = StoppedClock()
        self.policies: PolicySet = loaded.policies
        self.telemetry = Telemetry(loaded.settings, loaded.policies, self.clock)
        self.health = Health(loaded.settings, loaded.policies, self.telemetry, self.clock)
        shares = Shares(1e-3, 100.0, loaded.policies.classes, 1.0, self.clock.at, 2 * COUNT)
        self.dashboard = Dashboard(
            self.telemetry, lambda: self.policies, self.health.ready, dict, shares, self.clock, history=history,
        )  # fmt: skip
        self.app = build_admin(
            loaded.settings, lambda: self.policies, self.telemetry, self.health, self.clock,
            more=self.dashboard.routes(), history=history,
        )  # fmt: skip

    def fill(self) -> None:
        """Count a slot: thirty requests of each tenant."""
        now = self.clock.at
        code = self.telemetry.codebook.code
        served, within = code(Tally.SERVED, Class.INTERACTIVE), code(Tally.WITHIN, Class.BATCH, "backstop")
        over = code(Tally.OVER, Class.BATCH, "share")
        for number in range(COUNT):
            tab = self.telemetry.tenants.ledger.tab(f"tenant-{number:05}", now)
            tab.add(served, 10 if number == 7777 else 30)
            if number == 7777:
                tab.add(within, 20)
            if number % 10 == 0:
                tab.add(over, 5)

    def slots(self, count: int) -> None:
        """Count so many slots, and let time follow."""
        for _ in range(count):
            self.fill()
            self.clock.at += 10_000_000
        self.telemetry.tenants.advance(self.clock.at)
        self.fill()


@contextlib.contextmanager
def served(crowd: Crowd) -> Iterator[str]:
    """Serve its admin listener on a thread; give its address."""
    listener = socket.socket()
    listener.bind(("127.0.0.1", 0))
    server = uvicorn.Server(uvicorn.Config(crowd.app, log_config=None, lifespan="off", ws="none"))
    thread = threading.Thread(target=lambda: asyncio.run(server.serve(sockets=[listener])), daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
    finally:
        crowd.dashboard.stop()
        server.should_exit = True
        thread.join(5)
        listener.close()
