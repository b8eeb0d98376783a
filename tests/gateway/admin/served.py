"""The admin app as a client sees it, over the ASGI transport."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import httpx

from gateway.admin import Health, build_admin
from gateway.config import Loaded
from gateway.telemetry import Telemetry
from tests.gateway.telemetry.made import Event, StoppedClock, configured

__all__ = ["TOKEN", "Served"]

TOKEN = "correct-horse-battery-staple"


class Served:
    """One admin listener. `more` is TOML that follows the usual sections; `token` sets admin_token."""

    def __init__(self, folder: Path, more: str = "", *, token: str = "", admin: str = "127.0.0.1:8081") -> None:
        server = f'[server]\nadmin = "{admin}"\nadmin_token = "{token}"\n'
        self.loaded: Loaded = configured(folder, server + more)
        self.clock = StoppedClock()
        settings, self.policies = self.loaded.settings, self.loaded.policies
        self.telemetry = Telemetry(settings, self.policies, self.clock)
        self.health = Health(settings, self.policies, self.telemetry, self.clock, ("tenants[0].weight: not ready",))
        self.health.started = True
        self.app = build_admin(settings, lambda: self.policies, self.telemetry, self.health, self.clock)

    def record(self, *events: Event) -> None:
        """Record, and let time follow."""
        for event in events:
            self.clock.at = max(self.clock.at, event.now)
            self.telemetry.record(event.decision(), event.now)

    async def ask(
        self,
        path: str,
        method: str = "GET",
        headers: Mapping[str, str] | list[tuple[str, str]] | None = None,
        body: str = "",
        scheme: str = "http",
    ) -> httpx.Response:
        """Ask once. Host is `localhost` unless `headers` have another; an empty one is left out."""
        transport = httpx.ASGITransport(self.app, raise_app_exceptions=False)
        async with httpx.AsyncClient(transport=transport, base_url=f"{scheme}://localhost") as client:
            request = client.build_request(method, path, headers=headers, content=body.encode())
            return await client.send(request)
