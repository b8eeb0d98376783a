"""Serving: sockets, two servers, signals, and the way out.

The data plane runs on the main thread's uvloop; the admin listener on a loop and a thread of its own, so that a scrape
or a slow dashboard never stands between a caller and a decision.

Rules
1. Both sockets are bound before anything starts: an address in use is one sentence and exit code 1.
2. SIGTERM and SIGINT: readiness answers 503 at once, the listener stays open for `grace`, then closes, and what was
   accepted is answered within `drain_timeout`; what is left then is ended, counted and told of; exit code 0. A second
   SIGINT leaves at once. So it is from the start: one that comes before the loop runs is kept for it (`early`).
3. Whatever was forwarded is settled before the process ends.
4. SIGHUP, a changed file and `POST /api/reload` are one and the same act (`reload.py`). It never ends the process.
5. A supervisor that listens (`$NOTIFY_SOCKET`) hears READY=1 once callers are served, and STOPPING=1.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import signal
import socket
import sys
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING

import uvloop

from gateway.app import Gateway, compose
from gateway.listener.early import early
from gateway.listener.plain import Plain
from gateway.listener.server import Listener, configured
from gateway.listener.sockets import bind, name_of, unlink
from gateway.listener.system import log_to, notify, quiet_collector, raise_file_limit
from gateway.listener.tls import Certificate
from gateway.proxy.lane import lane
from gateway.reload import Reloader, Source
from policies.units import SECOND

if TYPE_CHECKING:
    from starlette.types import ASGIApp

    from gateway.config import Loaded
    from gateway.stores.memory import Backstop

__all__ = ["AdminThread", "Plane", "hear", "held", "say_ended", "say_ready", "serve"]

_LOG = logging.getLogger("evenhand")

#: Shares, windows and the like advance this often; each step is bounded to 0.5 ms.
TICK_SECONDS = 0.02
#: How long a thread may hold the interpreter while the data plane waits for it (CPython's default is ten times this).
SWITCH_INTERVAL_SECONDS = 0.0005

#: A second of looks at whether others have made room: measured 0.1 to 0.4 s.
_WARM_LOOKS = 50


class AdminThread(threading.Thread):
    """The admin listener on its own loop. `start` returns when it serves."""

    def __init__(self, app: ASGIApp, listener: socket.socket) -> None:
        super().__init__(name="evenhand-admin", daemon=True)
        self._server = Listener(configured(app, Plain), drain_us=SECOND)
        self._socket = listener

    def run(self) -> None:
        """Serve until it is stopped."""
        asyncio.run(self._server.serve(sockets=[self._socket]))

    def stop(self) -> None:
        """End it, and whatever it still answers."""
        self._server.should_exit = True
        self._server.force_exit = True
        self.join(timeout=5)


class Plane:
    """The data plane of a process: its loop, its ticks, and how it ends. To be filled in: who tells it what.

    `leave` lets it close its listener and answer what was accepted; `ended` is how many requests the drain cut short.
    """

    def __init__(self, gateway: Gateway, data: socket.socket, certificate: Certificate | None = None) -> None:
        self.gateway = gateway
        self._certificate = certificate
        self._socket = data
        self._server: Listener | None = None
        self._leaving = False

    async def run(self) -> None:
        """Serve until told to leave, and answer what was accepted."""
        loop = asyncio.get_running_loop()
        gateway = self.gateway
        await gateway.start()
        section = gateway.settings.server
        server = self._server = Listener(
            configured(gateway.endpoint, lane(gateway.door), gateway.settings.websocket),
            drain_us=section.drain_timeout,
            certificate=self._certificate,
            handshake_us=section.header_timeout,
            ready=self.on_ready,
        )
        # Told to stop before it served: it serves only those who have connected.
        server.should_exit = self._leaving
        gateway.callers = lambda: server.held
        self.on_started()
        ticks = loop.create_task(self._tick())
        quiet_collector()
        await self._warm()
        try:
            await server.serve(sockets=[self._socket])
        finally:
            self.on_drained()
            ticks.cancel()
            await gateway.stop()

    def on_started(self) -> None:
        """Hear of a gateway that is open, and whose listener is not yet."""

    def on_ready(self) -> None:
        """Hear that callers are served."""

    def on_drained(self) -> None:
        """Hear that the listener is closed and its connections have ended, while there still is a loop."""

    @property
    def ended(self) -> int:
        """How many requests the end of the drain cut short."""
        return 0 if self._server is None else self._server.ended

    def leave(self, *, at_once: bool = False) -> None:
        """Close the listener, and drain unless it is to be `at_once`."""
        self._leaving = True
        if self._server is not None:
            self._server.should_exit = True
            self._server.force_exit |= at_once

    async def _warm(self) -> None:
        """Wait a moment for a first lease, lest whoever begins to serve begin by refusing."""
        for _ in range(_WARM_LOOKS):
            if self.gateway.warm or self._leaving:
                return
            await asyncio.sleep(TICK_SECONDS)

    async def _tick(self) -> None:
        while True:
            self.gateway.tick()
            await asyncio.sleep(TICK_SECONDS)


class _Process(Plane):
    """One serving process that stands alone: it hears signals and reloads by itself."""

    def __init__(
        self,
        gateway: Gateway,
        data: socket.socket,
        admin: socket.socket,
        certificate: Certificate | None = None,
        source: Source | None = None,
    ) -> None:
        super().__init__(gateway, data, certificate)
        self._source = source
        self._reloader: Reloader | None = None
        section = gateway.settings.server
        self._names = name_of(data, section.listen), name_of(admin, section.admin)
        self._stopping: asyncio.Task[None] | None = None

    async def run(self) -> None:
        for number in (signal.SIGTERM, signal.SIGINT):
            hear(asyncio.get_running_loop(), number, self._on_stop)
        if early.asked:
            self._on_stop(signal.SIGTERM)
        await super().run()

    def on_started(self) -> None:
        reloader = self._reloader = Reloader(self.gateway, self._source)
        self.gateway.reload = reloader.reload
        hear(asyncio.get_running_loop(), signal.SIGHUP, lambda _: reloader.asked())
        reloader.start()
        if self._stopping is not None:
            reloader.stop()

    def on_ready(self) -> None:
        if self._stopping is None:
            say_ready(*self._names)

    def on_drained(self) -> None:
        say_ended(self.ended)
        # While there still is a loop to be heard on.
        early.over()
        if self._reloader is not None:
            self._reloader.stop()

    def _on_stop(self, number: int) -> None:
        if self._stopping is None:
            self._stopping = asyncio.get_running_loop().create_task(self._stop())
        elif number == signal.SIGINT:
            self.leave(at_once=True)

    async def _stop(self) -> None:
        notify("STOPPING=1")
        if self._reloader is not None:
            self._reloader.stop()
        self.gateway.drain()
        await asyncio.sleep(self.gateway.settings.server.grace / SECOND)
        self.leave()


def say_ready(listen: str, admin: str) -> None:
    """Tell whoever waits for it that callers are served, and where."""
    sys.stderr.write(f"evenhand: serving on {listen}, admin on {admin}\n")
    sys.stderr.flush()
    notify("READY=1")


def say_ended(requests: int) -> None:
    """Tell of requests that the drain did not wait for."""
    if requests:
        _LOG.warning("drain_timeout is over; requests that were still under way and were ended: %d", requests)


def serve(loaded: Loaded, backstop: Backstop | None = None, source: Source | None = None) -> int:
    """Serve until a signal says otherwise. Returns 0 after the drain; raises GatewayError if it cannot start.

    `backstop` replaces the fair shares, as the demo's negative control does. `source` is where a reload reads from.
    """
    log_to(sys.stderr)
    server = loaded.settings.server
    chain, key = server.tls_certificate, server.tls_key
    certificate = Certificate(chain, key) if chain and key else None
    with contextlib.ExitStack() as bound:
        data = held(bound, server.listen)
        admin = held(bound, server.admin)
        early.hold()
        sys.setswitchinterval(SWITCH_INTERVAL_SECONDS)
        files = raise_file_limit()
        bound.callback(early.over)
        gateway = compose(loaded, backstop)
        gateway.files = files
        thread = AdminThread(gateway.admin, admin)
        thread.start()
        bound.callback(thread.stop)
        # First of all when the loop is gone: it took its handlers with it.
        bound.callback(early.over)
        uvloop.run(_Process(gateway, data, admin, certificate, source).run())
    return 0


def hear(loop: asyncio.AbstractEventLoop, number: int, act: Callable[[int], None]) -> None:
    """Let `act` be done on the loop whenever a signal comes.

    Not by the loop's own handlers: it takes them away when it closes, and for a moment the system's answer would hold.
    """
    signal.signal(number, lambda number, _frame: loop.call_soon_threadsafe(act, number))


def held(bound: contextlib.ExitStack, address: str) -> socket.socket:
    """Return a socket that ends with `bound`, its file too, unless whoever served it has closed it by then."""
    listener = bind(address)

    def close() -> None:
        if listener.fileno() >= 0:
            unlink(listener)
            listener.close()

    bound.callback(close)
    return listener
