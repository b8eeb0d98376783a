"""A worker: the data plane in a process of its own, that does what its parent says and nothing else.

    started with two descriptors (the pipe, the listening socket) --"start"--> composed --"serving"--> serves
      "reload" --> the configuration that the parent read and checked      (both are answered by "done")
      "entry"  --> a job or an act that the parent was told of, or its end
      "drain"  --> answers say that their connection closes          "leave" --> drained as one process drains
      the parent is gone --> leaves at once

Rules
1. Signals are the parent's business. A supervisor that signals all of a group reaches it as well; heard twice, a stop
   would shut the listener that the workers share before the parent has announced it.
2. Twice a second, and once more when everything is settled, it tells what it counted (`telemetry/frames.py`).
3. It never outlives its parent by more than a moment, whatever its loop is doing.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import pickle
import socket
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from typing import Any

import orjson
import uvloop

from gateway.app import Gateway, compose
from gateway.config import Loaded
from gateway.config.document import Document
from gateway.config.loader import load_document
from gateway.errors import GatewayError
from gateway.listener.system import log_to, raise_file_limit
from gateway.listener.tls import Certificate
from gateway.reload import Reloader
from gateway.serve import SWITCH_INTERVAL_SECONDS, Plane
from gateway.telemetry.frames import Outflow
from gateway.workers.channel import Channel, read_first
from gateway.workers.parts import parted
from policies.kernels.fairshare import Shares

__all__ = ["Order", "Start", "run"]

_LOG = logging.getLogger("evenhand.worker")

EVERY_SECONDS = 0.5
#: How long a worker whose parent has died may take to leave.
_ORPHAN_SECONDS = 3.0
#: Tenants whose share is told at once.
_MOST_SHARES = 500
#: How long the last words of a worker may take.
_LAST_SECONDS = 2.0


@dataclass(frozen=True, slots=True)
class Start:
    """What a worker begins with: which of how many it is, and the configuration in force."""

    number: int
    count: int
    document: Document

    def loaded(self, document: Document | None = None) -> Loaded:
        """Return this worker's part of a configuration. Raises ConfigError."""
        return parted(load_document(document or self.document, os.environ), self.number, self.count)


#: What a parent says: a name, and what belongs to it.
Order = tuple[str, Any]


class Worker(Plane):
    """One worker's data plane."""

    def __init__(
        self, gateway: Gateway, start: Start, data: socket.socket, pipe: socket.socket, certificate: Certificate | None
    ) -> None:
        super().__init__(gateway, data, certificate)
        self._start = start
        self._pipe = pipe
        self._channel = Channel(self._heard, self._orphaned)
        self._reloader: Reloader | None = None
        self._waiting: list[Order] = []
        self._draining = False
        self._outflow = Outflow(gateway.telemetry, self._warnings)
        self._telling = threading.Lock()
        self._over = threading.Event()
        self._one_by_one = ThreadPoolExecutor(1, "evenhand-reload")

    async def run(self) -> None:
        """Serve until the parent says otherwise, and tell the last of it."""
        await self._channel.open(self._pipe)
        teller = threading.Thread(
            target=self._tell, args=(asyncio.get_running_loop(),), name="evenhand-tell", daemon=True
        )
        teller.start()
        try:
            await super().run()
        finally:
            self._over.set()
            teller.join(_LAST_SECONDS)
        self._channel.send(self._frame())
        self._say("over", self.ended)
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._channel.flushed(), _LAST_SECONDS)
        self._channel.close()

    def on_started(self) -> None:
        """Take what was said while the gateway opened."""
        self._reloader = Reloader(self.gateway, None)
        if self._draining:
            self.gateway.drain()
        for order in self._waiting:
            self._begin(*order)

    def on_ready(self) -> None:
        """Tell the parent."""
        self._say("serving", None)

    def _warnings(self) -> list[str]:
        """Return what this process alone knows; what telemetry warns of is counted by the parent."""
        told = self.gateway.telemetry.warnings
        sources = [source for source in self.gateway.health.sources if source != told]
        return [*(warning for source in sources for warning in source()), *self.gateway.telemetry.log_warnings()]

    def _heard(self, message: bytes) -> None:
        name, what = pickle.loads(message)  # noqa: S301 - from the process that started this one, over its own pipe
        match name:
            case "reload" | "entry" if self._reloader is None:
                self._waiting.append((name, what))
            case "reload" | "entry":
                self._begin(name, what)
            case "drain":
                self._draining = True
                if self._reloader is not None:
                    self.gateway.drain()
            case "leave":
                self.leave(at_once=what)

    def _orphaned(self) -> None:
        if not self._over.is_set():
            self.leave(at_once=True)

    def _begin(self, name: str, asked: Any) -> None:
        self._one_by_one.submit(self._do, name, asked, asyncio.get_running_loop())

    def _do(self, name: str, asked: Any, loop: asyncio.AbstractEventLoop) -> None:
        """Do what the parent asks, on a thread of its own, and say whether that was possible."""
        number, what = asked
        fault = ""
        try:
            if name == "reload" and self._reloader is not None:
                self._reloader.take(self._start.loaded(what))
            elif name == "entry":
                registry, id, entry, waiting = what
                self.gateway.registries[registry].hear(id, entry, waiting=waiting)
        except GatewayError as error:
            fault = str(error)
        loop.call_soon_threadsafe(self._done, number, fault)

    def _done(self, number: int, fault: str) -> None:
        self.gateway.follow_acts()  # which else waits for the next tick
        self._say("done", (number, fault))

    def _say(self, name: str, what: object) -> None:
        self._channel.send(orjson.dumps((name, what)))

    def _frame(self) -> bytes:
        with self._telling:
            frame = self._outflow.take(self.gateway.telemetry.now())
            return orjson.dumps(("frame", frame | self._standing(list(frame["counts"])[:_MOST_SHARES])))

    def _standing(self, tenants: list[str]) -> dict[str, Any]:
        """Return what a parent cannot know of store and shares: whoever asked lately has a share."""
        gateway, shares, now = self.gateway, self.gateway.store.backstop, self.gateway.telemetry.now()
        standing: dict[str, Any] = {
            "stalled_us": gateway.health.stalled_us,
            "cause": gateway.health.cause(),
            "standing": gateway.standing(),
        }
        if isinstance(shares, Shares):
            known = ((tenant, shares.share_of(tenant, now)) for tenant in tenants)
            standing["backstop"] = asdict(shares.view(now))
            standing["shares"] = {tenant: round(share.share, 2) for tenant, share in known if share is not None}
        return standing

    def _tell(self, loop: asyncio.AbstractEventLoop) -> None:
        """Tell how things stand, twice a second; the thread's."""
        parent, alone_since = os.getppid(), 0.0
        while not self._over.wait(EVERY_SECONDS):
            try:
                if os.getppid() != parent:
                    alone_since = alone_since or time.monotonic()
                    if time.monotonic() - alone_since > _ORPHAN_SECONDS:
                        os._exit(1)  # the loop does not turn: nothing else would end it
                elif self._channel.idle:
                    loop.call_soon_threadsafe(self._channel.send, self._frame())
            except Exception:  # noqa: BLE001 - a bug in a figure must not silence a worker
                _LOG.exception("a worker could not tell how it stands")


def run(pipe: socket.socket, data: socket.socket) -> int:
    """Be a worker. Returns the exit code: 0 if it left because it was told to."""
    log_to(sys.stderr)
    try:
        name, start = pickle.loads(read_first(pipe))  # noqa: S301 - as above
    except EOFError:
        return 1
    if name != "start":
        return 1
    sys.setswitchinterval(SWITCH_INTERVAL_SECONDS)
    try:
        loaded = start.loaded()
        server = loaded.settings.server
        chain, key = server.tls_certificate, server.tls_key
        certificate = Certificate(chain, key) if chain and key else None
        gateway = compose(loaded, showing=False)
        gateway.files = raise_file_limit()
        worker = Worker(gateway, start, data, pipe, certificate)
        uvloop.run(worker.run())
    except GatewayError as error:
        sys.stderr.write(f"evenhand: worker {start.number}: {error}\n")
        return 1
    return 0
