"""The ASGI endpoint under a stock uvicorn, with a real pool and a real upstream; in the loop of the test."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Literal

import uvicorn

from gateway.clock import Clock
from gateway.proxy.asgi import Proxy
from gateway.proxy.upstream import Upstream
from gateway.proxy.websocket import Sockets
from tests.gateway.proxy.house import House, write
from tests.wire.origin import Origin

__all__ = ["Http", "Prompt", "Served", "served"]

Http = Literal["httptools", "h11"]


class Prompt(uvicorn.Server):
    """A server that stops soon after it is told: uvicorn looks ten times a second, which adds up over a suite."""

    async def main_loop(self) -> None:
        """Serve until told to stop."""
        while not self.should_exit:
            await asyncio.sleep(0.01)


class Served(House):
    """A gateway that listens: `address` is where, `server` what has its connections."""

    address = ""
    server: Prompt
    sockets: Sockets

    async def settled(self, count: int, within: float = 20.0) -> None:
        """Wait until `count` requests are settled."""
        async with asyncio.timeout(within):
            while len(self.books.settled) < count:
                await asyncio.sleep(0.002)


@contextlib.asynccontextmanager
async def served(
    tmp_path: Path,
    origin: Origin | str,
    http: Http,
    *,
    ws: Literal["none", "websockets-sansio"] = "websockets-sansio",
    takes_sockets: bool = True,
    clock: Clock | None = None,
    **config: str,
) -> AsyncIterator[Served]:
    """Serve what `config` writes (see `house.write`) in front of `origin`, as an operator would under uvicorn."""
    url = origin if isinstance(origin, str) else origin.address
    gateway = Served(write(tmp_path, **({"url": url} | config)), clock)
    upstream = Upstream("upstream", gateway.settings.upstream)
    gateway.behind({None: upstream})
    gateway.sockets = Sockets(gateway.settings.websocket)
    listener = socket.socket(proto=socket.IPPROTO_TCP)  # or asyncio leaves Nagle on
    listener.bind(("127.0.0.1", 0))
    gateway.address = f"127.0.0.1:{listener.getsockname()[1]}"
    gateway.server = server = Prompt(
        uvicorn.Config(
            Proxy(gateway.front, gateway.sockets if takes_sockets else None),
            http=http,
            ws=ws,
            ws_max_size=gateway.settings.websocket.max_message,
            ws_ping_interval=None,
            ws_per_message_deflate=False,
            lifespan="on",
            log_config=None,
            access_log=False,
            proxy_headers=False,
            server_header=False,
            date_header=False,
            timeout_graceful_shutdown=1,
        )
    )
    serving = asyncio.create_task(server.serve(sockets=[listener]))
    while not server.started:
        await asyncio.sleep(0.002)
    try:
        yield gateway
    finally:
        server.should_exit = True
        await serving
        upstream.abort()
        await upstream.wait_closed()
        assert gateway.pipeline.in_flight == 0
        assert gateway.sockets.open == 0
