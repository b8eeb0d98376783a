"""The gateway as an application for any ASGI server: `uvicorn --factory gateway.asgi:application`.

docs/asgi.md says which server settings it wants, and what is the server's business then.

Rules
1. It starts and stops with its server's lifespan; a server that does not speak that serves nothing.
2. The process is its own: its collector is quieted as under `evenhand serve`.
"""

from __future__ import annotations

import asyncio
import logging
import os
from functools import partial
from pathlib import Path

from starlette.types import Receive, Send

from gateway.app import Gateway, compose
from gateway.config import load
from gateway.listener.system import quiet_collector
from gateway.proxy.asgi import Proxy

__all__ = ["CONFIG", "application", "live"]

_LOG = logging.getLogger("evenhand")

#: Names the file where a factory is given no arguments.
CONFIG = "EVENHAND_CONFIG"
#: As under `evenhand serve`.
_TICK_SECONDS = 0.02
_WARM_LOOKS = 50


def application(config: Path | None = None) -> Proxy:
    """Return the application that `config` describes, or the file that $EVENHAND_CONFIG names, or gateway.toml.

    Raises ConfigError. `[server]` `listen` and `admin` are not listened on.
    """
    gateway = compose(load(config or Path(os.environ.get(CONFIG, "gateway.toml")), os.environ))
    gateway.endpoint.live = partial(live, gateway)
    return gateway.endpoint


async def live(gateway: Gateway, receive: Receive, send: Send) -> None:
    """Start `gateway` with its server, and stop it when the last request is answered."""
    await receive()
    try:
        await gateway.start()
    except Exception as error:  # noqa: BLE001 - whatever it is, uvicorn would take it for an app without a lifespan
        _LOG.exception("the gateway did not start")
        await send({"type": "lifespan.startup.failed", "message": str(error)})
        return
    ticks = asyncio.get_running_loop().create_task(_tick(gateway))
    try:
        await _warm(gateway)
        quiet_collector()
        await send({"type": "lifespan.startup.complete"})
        await receive()
    finally:
        ticks.cancel()
        await gateway.stop()
    await send({"type": "lifespan.shutdown.complete"})


async def _warm(gateway: Gateway) -> None:
    """Wait a moment for a first lease, lest whoever begins to serve begin by refusing."""
    for _ in range(_WARM_LOOKS):
        if gateway.warm:
            return
        await asyncio.sleep(_TICK_SECONDS)


async def _tick(gateway: Gateway) -> None:
    while True:
        gateway.tick()
        await asyncio.sleep(_TICK_SECONDS)
