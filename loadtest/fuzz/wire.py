"""The listener's protocol, fed with octets as a socket would, in front of an upstream that answers at once."""

from __future__ import annotations

import asyncio
import re
import time
from typing import Any, cast

import uvicorn
from uvicorn.server import ServerState

from gateway.app import limits_of
from gateway.clock import Clock
from gateway.config import Settings
from gateway.identity.resolver import build_resolver
from gateway.pipeline import Pipeline
from gateway.ports import Decision
from gateway.proxy.call import Caller, Receiver, Sent
from gateway.proxy.front import Front
from gateway.proxy.lane import Door, lane
from gateway.stores.memory import MemoryStore
from policies.policy import PolicySet
from policies.units import Micros

__all__ = ["EXAMPLES", "Wire"]

_GET = b"GET /v1/a/x HTTP/1.1\r\nHost: api.example.com\r\nAuthorization: Bearer x\r\n\r\n"
EXAMPLES = (
    _GET,
    _GET + _GET,
    b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\r\nabc" + _GET,
    b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\nX-T: v\r\n\r\n",
    b"OPTIONS * HTTP/1.1\r\nHost: a\r\nOrigin: https://a\r\nAccess-Control-Request-Method: PUT\r\n\r\n",
    b"HEAD http://a/b HTTP/1.0\r\nConnection: keep-alive\r\nX-Api-Key: k\r\nCookie: a=b\r\n\r\n",
    b"GET / HTTP/1.1\r\nHost: a\r\nConnection: upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n\r\n",
)
_STATUS = re.compile(rb"HTTP/1\.1 (\d{3}) ")


class _Transport(asyncio.Transport):
    """Keeps what is written."""

    def __init__(self) -> None:
        super().__init__({"peername": ("10.0.0.1", 1), "sockname": ("10.0.0.2", 80)})
        self.written = bytearray()
        self._closing = False

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self.written += data

    def writelines(self, list_of_data: Any) -> None:
        self.written += b"".join(list_of_data)

    def is_closing(self) -> bool:
        return self._closing

    def close(self) -> None:
        self._closing = True

    def abort(self) -> None:
        self._closing = True

    def write_eof(self) -> None:
        pass

    def can_write_eof(self) -> bool:
        return True

    def pause_reading(self) -> None:
        pass

    def resume_reading(self) -> None:
        pass

    def get_write_buffer_size(self) -> int:
        return 0


class _Upstream(Caller):
    """Takes every request, and answers those that stand when told to."""

    def __init__(self) -> None:
        self._standing: list[Receiver] = []

    def call(
        self, method: bytes, target: bytes, fields: bytes, length: int | None, receiver: Receiver, **_: Any
    ) -> Sent:
        if any(b"\r" in line or b"\n" in line or b": " not in line for line in fields.split(b"\r\n")[:-1]):
            raise ValueError("a line break went upstream")
        self._standing.append(receiver)
        receiver.on_sent()
        return _CALL

    def answer(self) -> bool:
        standing, self._standing = self._standing, []
        for receiver in standing:
            receiver.on_response(200, [(b"content-length", b"0")])
            receiver.on_done()
        return bool(standing)


class _Call(Sent):
    def write(self, chunk: bytes) -> None:
        """Take octets."""

    def finish(self) -> None:
        """Take the end."""

    pause = resume = cancel = finish


_CALL = _Call()


async def _no_app(_scope: Any, _receive: Any, _send: Any) -> None:
    """Be an app: the protocol calls none."""


class _Nobody:
    def record(self, decision: Decision, now: Micros) -> None:
        """Count nothing."""


class Wire:
    """One listener; every input is a connection of its own."""

    def __init__(self, settings: Settings, policies: PolicySet) -> None:
        clock = Clock()
        store = MemoryStore(policies, 10_000, clock.now())
        self._pipeline = Pipeline(policies, build_resolver(settings, clock), store, _Nobody(), clock, float)
        self._upstream = _Upstream()
        front = Front(settings, policies, self._pipeline, {None: self._upstream}, clock)
        self._protocol = cast("Any", lane(Door(front, limits_of(settings.server))))
        self._config = uvicorn.Config(_no_app, http=self._protocol, log_config=None, lifespan="off")
        self._config.load()
        self._loop = _Loop()

    def serve(self, octets: bytes) -> int:
        """Feed one connection; return the status of its last answer."""
        made = self._protocol(self._config, ServerState(), {}, self._loop)
        transport = _Transport()
        made.connection_made(transport)
        half = len(octets) // 2
        for piece in (octets[:half], octets[half:]):
            if piece and not transport.is_closing():
                made.data_received(piece)
                self._turn()
        made.connection_lost(None)
        self._turn()
        if self._pipeline.in_flight:
            raise ValueError("a request was never settled")
        statuses = [int(status) for status in _STATUS.findall(bytes(transport.written)) if status != b"100"]
        return max(statuses, default=0)

    def _turn(self) -> None:
        while self._upstream.answer() or self._loop.turn():
            pass


class _Loop:
    """As much of an event loop as the protocol asks for; `turn` runs what is due now."""

    def __init__(self) -> None:
        self._soon: list[tuple[Any, tuple[Any, ...]]] = []

    def call_soon(self, callback: Any, *arguments: Any, **_: Any) -> Any:
        self._soon.append((callback, arguments))
        return _HANDLE

    def call_later(self, _delay: float, _callback: Any, *_arguments: Any, **_: Any) -> Any:
        return _HANDLE

    call_at = call_later

    def time(self) -> float:
        return time.monotonic()

    def turn(self) -> bool:
        soon, self._soon = self._soon, []
        for callback, arguments in soon:
            callback(*arguments)
        return bool(soon)


class _Handle:
    def cancel(self) -> None:
        """Nothing is scheduled."""


_HANDLE = _Handle()
