"""The ASGI endpoint under a real uvicorn, with a real pool and a real upstream; in the loop of the test."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Literal

import uvicorn

from gateway.proxy.asgi import Proxy
from gateway.proxy.upstream import Upstream
from tests.gateway.proxy.house import House, write
from tests.wire.origin import Origin

__all__ = ["Served", "served"]

Http = Literal["httptools", "h11"]


class Served(House):
    """A gateway that listens: `address` is where."""

    address = ""
    origin: Origin

    async def settled(self, count: int, within: float = 5.0) -> None:
        """Wait until `count` requests are settled."""
        async with asyncio.timeout(within):
            while len(self.books.settled) < count:
                await asyncio.sleep(0.005)


@contextlib.asynccontextmanager
async def served(
    tmp_path: Path, origin: Origin, http: Http, *, ws: Literal["none", "websockets-sansio"] = "none", **config: str
) -> AsyncIterator[Served]:
    """Serve what `config` writes (see `house.write`) in front of `origin`."""
    gateway = Served(write(tmp_path, **({"url": origin.address} | config)))
    upstream = Upstream("upstream", gateway.settings.upstream)
    gateway.behind({None: upstream})
    listener = socket.socket(proto=socket.IPPROTO_TCP)  # or asyncio leaves Nagle on
    listener.bind(("127.0.0.1", 0))
    gateway.address = f"127.0.0.1:{listener.getsockname()[1]}"
    gateway.origin = origin
    server = uvicorn.Server(
        uvicorn.Config(
            Proxy(gateway.front),
            http=http,
            ws=ws,
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
        await asyncio.sleep(0.005)
    try:
        yield gateway
    finally:
        server.should_exit = True
        await serving
        upstream.abort()
        await upstream.wait_closed()
