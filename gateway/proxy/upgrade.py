"""A connection that becomes a WebSocket: from the guard to uvicorn's WebSocket protocol, which calls the app.

Rules
1. Only a whole handshake is handed over (RFC 6455 section 4.2.1); anything else that asks for a WebSocket is answered
   by the lane. So whatever is answered after that was decided by the app, and counted there.
2. The app sees the head as the guard froze it, through a scope extension, and octets that came behind it come after.
3. A connection stays counted for its address until it is closed.
4. One caller's frames take turns with everybody else's; nothing is read while the caller does not take what is written
   to it. Only the last of pings that came together is answered (RFC 6455 section 5.5.3), and a message has at most
   `FRAGMENTS` fragments.
5. A drain does not end a WebSocket; the end of the drain does, with 1012 (Service Restart).
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol

from gateway.ports import Headers, Rejection
from gateway.proxy.intake import Governed, Intake, with_one_pong
from gateway.proxy.parse import Head

if TYPE_CHECKING:
    from uvicorn._types import ASGIReceiveEvent, ASGISendEvent
    from websockets.frames import Frame
    from websockets.http11 import Request

    from gateway.proxy.guard import Guard

__all__ = ["EXTENSION", "FRAGMENTS", "Socket", "Wire", "asks", "malformed"]

#: Names our scope extension, a `Wire`.
EXTENSION = "evenhand.wire"
#: Fragments of one message: empty ones are work and memory without a body.
FRAGMENTS = 4096

_QUEUE = "queue"

_KEY = re.compile(rb"[A-Za-z0-9+/]{22}==")
_SUBPROTOCOLS = re.compile(rb"[!#$%&'*+.^_`|~0-9A-Za-z-]+(?:[ \t]*,[ \t]*[!#$%&'*+.^_`|~0-9A-Za-z-]+)*")
_MALFORMED = Rejection(400, "bad-request", "The WebSocket handshake is not one of RFC 6455, version 13.")


@dataclass(slots=True)
class Wire:
    """What ASGI does not say: the head as it came, when a message last came (loop time), whether the server stops."""

    head: Head
    heard: Callable[[], float]
    stopped: bool = False


def asks(head: Head) -> bool:
    """Return whether a request with an upgrade asks for a WebSocket."""
    return any(name == b"upgrade" and b"websocket" in value.lower() for name, value in head.headers)


def malformed(head: Head) -> Rejection | None:
    """Return what is wrong with a handshake, if anything is."""
    found: dict[bytes, list[bytes]] = {}
    for name, value in head.headers:
        found.setdefault(name, []).append(value)
    key, version = found.get(b"sec-websocket-key", []), found.get(b"sec-websocket-version", [])
    offered = found.get(b"sec-websocket-protocol", [])
    whole = (
        head.method == b"GET"
        and head.version == "1.1"
        and [value.lower() for value in found[b"upgrade"]] == [b"websocket"]
        and len(key) == 1
        and _KEY.fullmatch(key[0]) is not None
        and version == [b"13"]
        and all(_SUBPROTOCOLS.fullmatch(value) for value in offered)
        and b"content-length" not in found
        and b"transfer-encoding" not in found
    )
    return None if whole else _MALFORMED


class Socket(Governed, WebSocketsSansIOProtocol):
    """A caller's WebSocket, in a connection that was the guard's."""

    def __init__(self, guard: Guard, head: Head) -> None:
        super().__init__(guard.config, guard.server_state, guard.app_state, guard.loop)
        self._guard = guard
        self._heard = self.loop.time()
        self._intake = Intake(self.loop, self._take)
        self._wire = Wire(head, lambda: self._heard)

    def take(self, rest: bytes) -> None:
        """Begin; `rest` is what came behind the head."""
        transport = self._guard.transport
        self.connection_made(transport)
        transport.set_protocol(self)
        self._take(_handshake(self._wire.head.headers))
        self._intake.attach(transport)
        if rest:
            self.data_received(rest)

    def handle_connect(self, event: Request) -> None:
        """Show the app the request as it came."""
        super().handle_connect(event)
        head = self._wire.head
        path, _, query = head.target.partition(b"?")
        self.scope["path"] = path.decode("latin-1")
        self.scope["raw_path"], self.scope["query_string"] = path, query
        self.scope["headers"] = list(head.headers)
        extensions: dict[str, Any] = self.scope["extensions"]
        extensions[EXTENSION] = self._wire

    def handle_text(self, event: Frame) -> None:
        """Note the time."""
        self._hear()
        super().handle_text(event)

    def handle_bytes(self, event: Frame) -> None:
        """Note the time."""
        self._hear()
        super().handle_bytes(event)

    def handle_cont(self, event: Frame) -> None:
        """Take a fragment, unless there are too many."""
        self._hear()
        if self.close_sent:
            return
        if len(self.frames) >= FRAGMENTS:
            self.frames = []
            self.conn.fail(1009, "too many fragments")
            self.handle_parser_exception()
            return
        super().handle_cont(event)

    def handle_ping(self) -> None:
        """Answer the last of the pings that came together: all their answers wait when the first is handled."""
        self._pieces += 1
        if output := with_one_pong(self.conn.data_to_send()):
            self.transport.write(b"".join(output))

    def _hear(self) -> None:
        self._pieces += 1
        self._heard = self.loop.time()

    def send_receive_event_to_app(self) -> None:
        """Read nothing until the app has taken it."""
        super().send_receive_event_to_app()
        if self.read_paused:
            self._intake.bar(_QUEUE)

    async def receive(self) -> ASGIReceiveEvent:
        """Return what came next; with the last of it taken, read on."""
        message = await self.queue.get()
        if self.read_paused and self.queue.empty():
            self.read_paused = False
            self._intake.unbar(_QUEUE)
        return message

    async def send(self, message: ASGISendEvent) -> None:
        """Write; once a close is sent, nothing waits for the app."""
        await super().send(message)
        if self.close_sent:
            self._intake.unbar(_QUEUE)

    def connection_lost(self, exc: Exception | None) -> None:
        """Tell an end without a close frame from one with: uvicorn says 1005 of both."""
        if self.handshake_complete and self.conn.close_rcvd is None:
            self.queue.put_nowait({"type": "websocket.disconnect", "code": 1006, "reason": ""})
        self._guard.post.leave(self._guard)
        self._intake.leave()
        super().connection_lost(exc)

    def shutdown(self) -> None:
        """Go on until the drain ends (rule 4)."""

    def stop(self) -> bool:
        """End now; False if it was already ending."""
        if self.close_sent or self.disconnected:
            return False
        self._wire.stopped = True
        self.queue.put_nowait({"type": "websocket.disconnect", "code": 1012, "reason": "the gateway is stopping"})
        return True


def _handshake(headers: Headers) -> bytes:
    """Return a handshake of what concerns the protocol alone: lines of any length are the guard's business."""
    lines = [b"GET / HTTP/1.1\r\nhost: a\r\nconnection: upgrade\r\nupgrade: websocket\r\n"]
    lines += [
        b"%b: %b\r\n" % field
        for field in headers
        if field[0] in {b"sec-websocket-key", b"sec-websocket-version", b"sec-websocket-protocol"}
    ]
    return b"".join([*lines, b"\r\n"])
