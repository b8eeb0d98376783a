"""The lane under a real uvicorn server, with a real pool and a real upstream; in the loop of the test."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import cast

from gateway.app import limits_of
from gateway.clock import Clock
from gateway.listener.server import Listener, configured
from gateway.listener.tls import Certificate
from gateway.proxy.asgi import Proxy
from gateway.proxy.guard import Guard
from gateway.proxy.lane import Door, lane
from gateway.proxy.upstream import Upstream
from gateway.proxy.websocket import Sockets
from policies.units import SECOND, Micros
from tests.gateway.proxy.house import write
from tests.gateway.proxy.served import Prompt, Served
from tests.wire.origin import Origin

__all__ = ["Wired", "connections", "wired"]


class _Listener(Prompt, Listener):
    """The gateway's own, that stops soon after it is told."""


class Wired(Served):
    """A gateway that listens with its own protocol: `address` is where, `door` what its connections share."""

    door: Door
    server: _Listener

    @property
    def rejections(self) -> list[tuple[int, str]]:
        """Status and short name of what was rejected, in the order in which it was counted."""
        return [(one.status, one.rejection.code) for one in self.books.settled if one.rejection is not None]


@contextlib.asynccontextmanager
async def wired(
    tmp_path: Path,
    origin: Origin | str,
    *,
    limits: dict[str, Micros] | None = None,
    certificate: Certificate | None = None,
    handshake_us: Micros = 10 * SECOND,
    drain_us: Micros = SECOND,
    clock: Clock | None = None,
    **config: str,
) -> AsyncIterator[Wired]:
    """Serve what `config` writes (see `house.write`) in front of `origin`; `limits` replace those of the file."""
    url = origin if isinstance(origin, str) else origin.address
    gateway = Wired(write(tmp_path, **({"url": url} | config)), clock)
    upstream = Upstream("upstream", gateway.settings.upstream)
    gateway.behind({None: upstream})
    gateway.door = Door(gateway.front, replace(limits_of(gateway.settings.server), **(limits or {})))
    listener = socket.socket(proto=socket.IPPROTO_TCP)  # or asyncio leaves Nagle on
    listener.bind(("127.0.0.1", 0))
    gateway.address = f"127.0.0.1:{listener.getsockname()[1]}"

    gateway.sockets = Sockets(gateway.settings.websocket)
    app = Proxy(gateway.front, gateway.sockets)
    served_by = configured(app, lane(gateway.door), gateway.settings.websocket)
    gateway.server = server = _Listener(
        served_by, drain_us=drain_us, certificate=certificate, handshake_us=handshake_us
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


def connections(gateway: Wired) -> list[Guard]:
    """Return what stands now."""
    return [cast("Guard", one) for one in gateway.server.server_state.connections]
