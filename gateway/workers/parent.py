"""The parent: one instance of several processes, as its operator and its callers see it.

    sockets bound -> workers started -> all serve: READY=1 -> ... -> readiness 503, `grace` -> no new handshakes
      -> workers drain -> the last of them has told what it counted -> exit 0

Rules
1. The parent binds both sockets and answers on the admin one; callers it serves none. What the workers count is counted
   here as if one process had (`telemetry/frames.py`, `telemetry/merged.py`), so whatever reads telemetry reads all.
2. It reads and checks a changed configuration first, and goes over to it itself. If it is bad nobody changes; if it is
   good every worker goes over to the very document that was read. Nobody restarts, and connections stay.
3. It ends as one process does: signals, `grace`, `drain_timeout`, exit codes are those of `serve.py`.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import signal
import socket
import sys

import uvloop

from gateway.app import Gateway, compose
from gateway.config.document import Document, read_document
from gateway.config.loader import load_document
from gateway.errors import Fault
from gateway.listener.early import early
from gateway.listener.sockets import name_of, refuse_new
from gateway.listener.system import log_to, notify, quiet_collector, raise_file_limit
from gateway.listener.tls import Certificate
from gateway.reload import Reloader, Source
from gateway.serve import AdminThread, hear, held, say_ended, say_ready
from gateway.stores.registry import Entry, Registry
from gateway.telemetry.frames import Frame, Inflow
from gateway.telemetry.merged import Merged
from gateway.workers.crew import Crew, Hand
from policies.units import SECOND

__all__ = ["supervise"]

#: Nothing is decided here: what the data plane does every 20 ms may wait.
TICK_SECONDS = 0.1
#: Seconds in which handshakes under way come to their end.
_SETTLE_SECONDS = 0.05
_RELOAD_SECONDS = 30.0
#: How long an answer waits for workers to know of an entry: they find it in the store within a second or two anyway.
_ENTRY_SECONDS = 0.25


class Parent:
    """The parent's loop. `document` is what `gateway` was composed from."""

    def __init__(
        self, gateway: Gateway, data: socket.socket, admin: socket.socket, document: Document, source: Source | None
    ) -> None:
        self._gateway = gateway
        self._data = data
        self._source = source
        self._document = document
        section = gateway.settings.server
        self._names = name_of(data, section.listen), name_of(admin, section.admin)
        self._inflow = Inflow(gateway.telemetry)
        self._merged = Merged(gateway.telemetry, self._inflow)
        self._crew: Crew
        self._reloader: Reloader | None = None
        self._stopping: asyncio.Task[None] | None = None
        self._ready = False
        self._loop: asyncio.AbstractEventLoop
        self._changed = asyncio.Event()

    async def run(self) -> int:
        """Be the parent; returns the exit code."""
        loop = self._loop = asyncio.get_running_loop()
        gateway = self._gateway
        crew = self._crew = Crew(gateway.settings.server.workers, self._data, self._document, self._framed, self._lost)
        crew.changed, crew.greeting = self._on_change, self._entries_waiting
        self._follow_entries()
        for number in (signal.SIGTERM, signal.SIGINT):
            hear(loop, number, self._on_stop)
        crew.start()
        self._show(crew)
        await gateway.start()
        gateway.health.started = self._ready
        ticks = loop.create_task(self._tick())
        self._open_reload()
        if early.asked:
            self._on_stop(signal.SIGTERM)
        quiet_collector()
        try:
            while crew.alive:
                self._changed.clear()
                await self._changed.wait()
            say_ended(crew.ended)
        finally:
            early.over()
            ticks.cancel()
            if self._reloader is not None:
                self._reloader.stop()
            await crew.end()
            await gateway.stop()
        if crew.hopeless:
            sys.stderr.write(f"evenhand: {crew.hopeless}\n")
            return 1
        return 0

    def _show(self, crew: Crew) -> None:
        """Let the admin listener tell of the workers."""
        gateway, gauges = self._gateway, self._gateway.telemetry.gauges
        gauges.workers = lambda: crew.serving
        gauges.worker_restarts = lambda: crew.restarts
        gateway.health.checks.append(crew.check)
        gateway.health.sources += [crew.warnings, self._merged.warnings]
        gateway.health.cause = self._merged.cause
        gateway.standing = self._merged.standing
        gateway.dashboard.show_shares(self._merged)

    def _open_reload(self) -> None:
        reloader = self._reloader = Reloader(self._gateway, self._source)
        reloader.spread = self._spread
        self._gateway.reload = reloader.reload
        hear(self._loop, signal.SIGHUP, lambda _: reloader.asked())
        reloader.start()

    def _spread(self, document: Document) -> tuple[Fault, ...]:
        """Let the workers go over to a document; on the thread that reloads, which waits for them."""
        self._document = document
        self._crew.begin_with(document)
        return tuple(Fault("server.workers", fault) for fault in self._all("reload", document, _RELOAD_SECONDS))

    def _all(self, name: str, what: object, within: float) -> list[str]:
        """Let all workers do something, from another thread; return what went wrong."""
        if self._loop.is_closed():
            return []
        asked = asyncio.run_coroutine_threadsafe(self._crew.ask(name, what, within), self._loop)
        try:
            return asked.result(within + 1)
        except TimeoutError:
            return ["the parent of the workers has no time"]

    def _follow_entries(self) -> None:
        """Let workers know of jobs and acts as soon as the admin listener confirms them."""

        def told(name: str, registry: Registry, id: str, entry: Entry | None) -> None:
            self._all("entry", (name, id, entry, id in registry.waiting), _ENTRY_SECONDS)

        for name, registry in self._gateway.registries.items():
            registry.told = functools.partial(told, name, registry)

    def _entries_waiting(self) -> list[tuple[str, object]]:
        """Return the entries that a new worker cannot read anywhere, because the store is down."""
        return [
            ("entry", (name, id, registry.live[id], True))
            for name, registry in self._gateway.registries.items()
            for id in list(registry.waiting)
        ]

    def _framed(self, hand: Hand, frame: Frame) -> None:
        now = self._gateway.telemetry.now()
        self._inflow.add(frame, now)
        self._merged.put(hand, frame, now)

    def _lost(self, hand: Hand) -> None:
        self._merged.drop(hand)

    def _on_change(self) -> None:
        self._changed.set()
        if not self._ready and self._crew.serving == self._crew.count:
            self._ready = self._gateway.health.started = True
            if self._stopping is None:
                say_ready(*self._names)

    def _on_stop(self, number: int) -> None:
        if self._stopping is None:
            self._stopping = asyncio.get_running_loop().create_task(self._stop())
        elif number == signal.SIGINT:
            self._crew.leave(at_once=True)

    async def _stop(self) -> None:
        notify("STOPPING=1")
        if self._reloader is not None:
            self._reloader.stop()
        self._gateway.drain()
        self._crew.drain()
        section = self._gateway.settings.server
        await asyncio.sleep(section.grace / SECOND)
        # Before any worker closes it: whoever has begun to connect by now is accepted by one of them.
        refuse_new(self._data)
        await asyncio.sleep(_SETTLE_SECONDS)
        self._crew.leave(within=section.drain_timeout / SECOND)
        self._data.close()

    async def _tick(self) -> None:
        while True:
            self._gateway.tick()
            await asyncio.sleep(TICK_SECONDS)


def supervise(source: Source) -> int:
    """Serve by `[server] workers` processes until a signal says otherwise. Returns the exit code.

    Raises ConfigError if what `source` holds is wrong, GatewayError if it cannot start.
    """
    log_to(sys.stderr)
    document = read_document(source.path, source.environ)
    loaded = load_document(document, source.environ)
    server = loaded.settings.server
    if server.tls_certificate and server.tls_key:
        Certificate(server.tls_certificate, server.tls_key)  # which the workers use; what is wrong is told once
    bound = contextlib.ExitStack()
    try:
        data = held(bound, server.listen)
        admin = held(bound, server.admin)
        early.hold()
        raise_file_limit()
        bound.callback(early.over)
        gateway = compose(loaded, deciding=False)
        thread = AdminThread(gateway.admin, admin)
        thread.start()
        bound.callback(thread.stop)
        bound.callback(early.over)
        return uvloop.run(Parent(gateway, data, admin, document, source).run())
    finally:
        bound.close()
