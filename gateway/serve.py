"""Serving: sockets, two servers, signals, and the way out.

The data plane runs on the main thread's uvloop; the admin listener on a loop and a thread of its own, so that a scrape
or a slow dashboard never stands between a caller and a decision.

Rules
1. Both sockets are bound before anything starts: an address in use is one sentence and exit code 1.
2. SIGTERM and SIGINT: readiness answers 503 at once, the listener stays open for `grace`, then closes, and what was
   accepted is answered within `drain_timeout`; exit code 0. A second SIGINT leaves at once.
3. Whatever was forwarded is settled before the process ends.
4. SIGHUP, a changed file and `POST /api/reload` are one and the same act (`reload.py`).
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import logging
import os
import signal
import socket
import stat
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import uvicorn
import uvloop
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from gateway.app import Gateway, compose
from gateway.errors import GatewayError
from gateway.proxy.lane import lane
from gateway.reload import Reloader, Source
from policies.units import SECOND

if TYPE_CHECKING:
    from starlette.types import ASGIApp

    from gateway.config import Loaded
    from gateway.stores.memory import Backstop

__all__ = ["Listener", "bind", "serve"]

_LOG = logging.getLogger("evenhand")

BACKLOG = 4096
#: Shares, windows and the like advance this often; each step is bounded to 0.5 ms.
TICK_SECONDS = 0.02
#: How long a thread may hold the interpreter while the data plane waits for it (CPython's default is ten times this).
SWITCH_INTERVAL_SECONDS = 0.0005
UNIX = "unix:"


def bind(address: str) -> socket.socket:
    """Return a listening socket for `host:port`, `[v6]:port` or `unix:/path`. Raises GatewayError, one sentence."""
    try:
        return _bind_unix(Path(address.removeprefix(UNIX))) if address.startswith(UNIX) else _bind_tcp(address)
    except OSError as exc:
        why = "it is already in use" if exc.errno == errno.EADDRINUSE else exc.strerror or str(exc)
        raise GatewayError(f"cannot listen on {address}: {why}") from exc


def _bind_tcp(address: str) -> socket.socket:
    host, _, port = address.rpartition(":")
    host = host.strip("[]")
    family, kind, proto, _, target = socket.getaddrinfo(host, int(port), type=socket.SOCK_STREAM)[0]
    listener = socket.socket(family, kind, proto)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(target)
        listener.listen(BACKLOG)
    except OSError:
        listener.close()
        raise
    listener.setblocking(False)
    return listener


def _bind_unix(path: Path) -> socket.socket:
    """Bind a unix socket; one left behind by a process that is gone is replaced, one still answering is not."""
    if path.exists() and stat.S_ISSOCK(path.stat().st_mode):
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
            if probe.connect_ex(str(path)) == 0:
                raise OSError(errno.EADDRINUSE, os.strerror(errno.EADDRINUSE))
        path.unlink()
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        listener.bind(str(path))
        listener.listen(BACKLOG)
    except OSError:
        listener.close()
        raise
    listener.setblocking(False)
    return listener


class Listener(uvicorn.Server):
    """A uvicorn server that leaves signals to its owner."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Install nothing: uvicorn would raise the signal again after the drain, and the exit code would not be 0."""
        yield


def _listener(app: ASGIApp, http: type[asyncio.Protocol], *, drain_us: int) -> Listener:
    return Listener(
        uvicorn.Config(
            app,
            http=http,
            ws="none",
            lifespan="off",
            log_config=None,
            access_log=False,
            proxy_headers=False,
            server_header=False,
            date_header=False,
            backlog=BACKLOG,
            timeout_graceful_shutdown=max(1, -(-drain_us // SECOND)),
        )
    )


class _AdminThread(threading.Thread):
    """The admin listener on its own loop. `start` returns when it serves."""

    def __init__(self, app: ASGIApp, listener: socket.socket) -> None:
        super().__init__(name="evenhand-admin", daemon=True)
        self._server = _listener(app, HttpToolsProtocol, drain_us=SECOND)
        self._socket = listener

    def run(self) -> None:
        asyncio.run(self._server.serve(sockets=[self._socket]))

    def stop(self) -> None:
        self._server.should_exit = True
        self._server.force_exit = True
        self.join(timeout=5)


class _Process:
    """One serving process: the data plane's loop, its ticks, and how it ends."""

    def __init__(self, gateway: Gateway, data: socket.socket, source: Source | None = None) -> None:
        self._gateway = gateway
        self._source = source
        self._reloader: Reloader
        self._socket = data
        self._server: Listener
        self._stopping: asyncio.Task[None] | None = None

    async def run(self) -> None:
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._on_stop, number)
        gateway = self._gateway
        await gateway.start()
        server = self._server = _listener(
            gateway.endpoint, lane(gateway.door), drain_us=gateway.settings.server.drain_timeout
        )
        gateway.callers = lambda: len(server.server_state.connections)
        reloader = self._reloader = Reloader(gateway, self._source)
        gateway.reload = reloader.reload
        loop.add_signal_handler(signal.SIGHUP, reloader.asked)
        reloader.start()
        ticks = loop.create_task(self._tick())
        try:
            await server.serve(sockets=[self._socket])
        finally:
            ticks.cancel()
            reloader.stop()
            await self._gateway.stop()

    def _on_stop(self, number: int) -> None:
        if self._stopping is not None:
            self._server.force_exit = number == signal.SIGINT
            return
        self._stopping = asyncio.get_running_loop().create_task(self._stop())

    async def _stop(self) -> None:
        self._gateway.drain()
        await asyncio.sleep(self._gateway.settings.server.grace / SECOND)
        self._server.should_exit = True

    async def _tick(self) -> None:
        while True:
            self._gateway.tick()
            await asyncio.sleep(TICK_SECONDS)


def serve(loaded: Loaded, backstop: Backstop | None = None, source: Source | None = None) -> int:
    """Serve until a signal says otherwise. Returns 0 after the drain; raises GatewayError if it cannot start.

    `backstop` replaces the fair shares, as the demo's negative control does. `source` is where a reload reads from.
    """
    logging.basicConfig(stream=sys.stderr, level=logging.WARNING, format="%(levelname)s: %(message)s")
    server = loaded.settings.server
    data = bind(server.listen)
    try:
        admin = bind(server.admin)
    except GatewayError:
        data.close()
        raise
    sys.setswitchinterval(SWITCH_INTERVAL_SECONDS)
    gateway = compose(loaded, backstop)
    thread = _AdminThread(gateway.admin, admin)
    thread.start()
    sys.stderr.write(f"evenhand: serving on {server.listen}, admin on {server.admin}\n")
    sys.stderr.flush()
    try:
        uvloop.run(_Process(gateway, data, source).run())
    finally:
        thread.stop()
    return 0
