"""A uvicorn server that leaves signals to its owner, knows TLS deadlines, and drains.

    serving --shutdown--> no new handshakes --> pending ones taken --> closed --> drained, or stopped at the end

Rules
1. What was accepted is answered: connections that the kernel had already made are taken before the socket closes.
2. Idle connections end shortly after; what is under way has `drain_us`. What is left then is ended with a reason that
   is counted, and cut two seconds later.
3. uvicorn's server is a private affair of uvicorn's: version pinned, and a test says when it moved.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, cast

import uvicorn

from gateway.config.sections import WebsocketSection
from gateway.listener.accepting import Accepting
from gateway.listener.handshakes import Handshakes
from gateway.listener.shortage import Shortage
from gateway.listener.sockets import BACKLOG, pending, refuse_new
from gateway.listener.tls import Certificate
from gateway.proxy.guard import Guard
from policies.units import SECOND, Micros

if TYPE_CHECKING:
    from starlette.types import ASGIApp

__all__ = ["Listener", "configured"]

#: Seconds in which handshakes under way come to their end.
_SETTLE_SECONDS = 0.05
#: Seconds between two looks at what is left.
_LOOK_SECONDS = 0.02
#: Seconds for last answers to be taken before they are cut: the guard's lingering, and a little.
_LAST_SECONDS = 2.5


def configured(app: ASGIApp, http: Callable[..., object], websocket: WebsocketSection | None = None) -> uvicorn.Config:
    """Return uvicorn's configuration of a listener: it writes, logs, believes and upgrades nothing of its own accord.

    Of WebSockets only what is long is bounded here: no extension is offered and no ping sent, since silence is the
    business of `[websocket] idle_timeout`. `http` makes a connection, as a class of uvicorn's own would.
    """
    return uvicorn.Config(
        app,
        http=cast("type[asyncio.Protocol]", http),
        ws="none",
        ws_max_size=websocket.max_message if websocket else 1,
        ws_ping_interval=None,
        ws_per_message_deflate=False,
        lifespan="off",
        log_config=None,
        access_log=False,
        proxy_headers=False,
        server_header=False,
        date_header=False,
        backlog=BACKLOG,
    )


class Listener(uvicorn.Server):
    """One listener. `ended` is how many requests the end of the drain cut short; `ready` is called once it serves."""

    def __init__(
        self,
        config: uvicorn.Config,
        *,
        drain_us: Micros,
        certificate: Certificate | None = None,
        handshake_us: Micros = 10 * SECOND,
        ready: Callable[[], None] | None = None,
    ) -> None:
        super().__init__(config)
        self.ended = 0
        self._drain = drain_us / SECOND
        self._certificate = certificate
        self._handshake = handshake_us / SECOND
        self._ready = ready
        self._watching: asyncio.Task[None] | None = None
        self._doors: list[Accepting] = []

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Install nothing: uvicorn would raise the signal again after the drain, and the exit code would not be 0."""
        yield

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Serve `sockets`."""
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(Shortage())
        await self.lifespan.startup()
        make = self._make()
        self.servers = []
        for sock in sockets or []:
            tls = self._certificate
            self._doors.append(Accepting(sock, make) if tls is None else self._handshakes(sock, tls))
        if self._certificate is not None:
            self._watching = loop.create_task(self._certificate.watch())
        self.started = True
        if self._ready is not None:
            self._ready()

    def _make(self) -> Callable[[], asyncio.Protocol]:
        config, state, app_state = self.config, self.server_state, self.lifespan.state

        def make() -> asyncio.Protocol:
            made: asyncio.Protocol = config.http_protocol_class(  # type: ignore[call-arg] # as uvicorn itself does
                config=config, server_state=state, app_state=app_state
            )
            return made

        return make

    def _handshakes(self, sock: socket.socket, certificate: Certificate) -> Handshakes:
        # TLS is for callers, and their protocol is a guard.
        make = cast("Callable[[], Guard]", self._make())
        return Handshakes(sock, make, certificate.context, self._handshake, _LAST_SECONDS)

    @property
    def held(self) -> int:
        """How many sockets callers hold."""
        return len(self.server_state.connections) + sum(door.busy for door in self._doors)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Drain."""
        if self._watching is not None:
            self._watching.cancel()
        await self._stop_accepting(sockets or [])
        for connection in list(self.server_state.connections):
            connection.shutdown()
        await self._empty(self._drain)
        for connection in list(self.server_state.connections):
            stop: Callable[[], bool] | None = getattr(connection, "stop", None)
            self.ended += stop is not None and stop()
        await self._empty(_LAST_SECONDS)
        for connection in list(self.server_state.connections):
            connection.transport.abort()
        await self._finish_tasks()
        await asyncio.gather(*[door.wait_closed() for door in self._doors])

    async def _stop_accepting(self, sockets: list[socket.socket]) -> None:
        spares = [sock.dup() for sock in sockets]
        for spare in spares:
            refuse_new(spare)
        await asyncio.sleep(_SETTLE_SECONDS)
        for door in self._doors:
            door.close()
        for sock in sockets:
            sock.close()
        for door, spare in zip(self._doors, spares, strict=True):
            for connection, peer in pending(spare):
                door.take(connection, peer)
            spare.close()
        if self._certificate is None:
            await asyncio.gather(*[door.wait_closed() for door in self._doors])

    async def _empty(self, seconds: float) -> None:
        """Wait until no connection is left, for `seconds` at most."""
        deadline = asyncio.get_running_loop().time() + seconds
        while self.held and not self.force_exit:
            if asyncio.get_running_loop().time() >= deadline:
                return
            await asyncio.sleep(_LOOK_SECONDS)

    async def _finish_tasks(self) -> None:
        tasks = list(self.server_state.tasks)
        if tasks:
            _, late = await asyncio.wait(tasks, timeout=0 if self.force_exit else _LAST_SECONDS)
            for task in late:
                task.cancel()
            await asyncio.gather(*late, return_exceptions=True)
