"""The WebSocket of one caller on its upstream's side: a connection of its own, beside the pool.

Rules
1. No extension is offered: frames are passed on as they are, never inflated.
2. The handshake carries the caller's target and fields as any request would, and nothing of the caller's own leg.
3. Frames take turns with everybody else's, and nothing is read while the upstream does not take what is written to it.
   Only the last of pings that came together is answered (RFC 6455 section 5.5.3).
4. Errors of sockets, TLS and handshakes end here: `open_leg` raises OSError, TimeoutError, or `websockets`'
   InvalidHandshake, of which InvalidStatus carries a response that may be passed on.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from websockets.asyncio.client import ClientConnection
from websockets.client import ClientProtocol
from websockets.frames import DATA_OPCODES, Frame
from websockets.http11 import Request
from websockets.protocol import Event
from websockets.typing import Subprotocol
from websockets.uri import WebSocketURI

from gateway.ports import Headers
from gateway.proxy.intake import Governed, Intake, with_one_pong

__all__ = ["CLOSE_SECONDS", "Leg", "Place", "Shake", "open_leg"]

#: How long a closing handshake may take on the upstream's side.
CLOSE_SECONDS = 2.0

_QUEUE = "queue"


@dataclass(frozen=True, slots=True)
class Place:
    """Where an upstream is now. `prefix` goes before targets, `authority` is its Host; times in seconds."""

    host: str
    port: int
    unix: str
    prefix: bytes
    authority: bytes
    context: ssl.SSLContext | None
    server_name: str | None
    connect_timeout: float
    first_byte_timeout: float


@dataclass(frozen=True, slots=True)
class Shake:
    """One handshake: what is asked of the upstream. `sent` is called when its octets are about to be written."""

    target: bytes
    host: bytes
    fields: Headers
    subprotocols: Sequence[str]
    max_message: int
    sent: Callable[[], None]


class _Client(ClientProtocol):
    """Asks for what the caller asked for."""

    def __init__(self, shake: Shake) -> None:
        offered = [Subprotocol(name) for name in shake.subprotocols] or None
        super().__init__(
            WebSocketURI(False, "upstream", 80, "/", "", None, None), subprotocols=offered, max_size=shake.max_message
        )
        self._shake = shake

    def connect(self) -> Request:
        request = super().connect()
        request.path = self._shake.target.decode("latin-1")
        del request.headers["Host"]
        request.headers["Host"] = self._shake.host.decode("latin-1")
        for name, value in self._shake.fields:
            request.headers[name.decode("latin-1")] = value.decode("latin-1")
        return request

    def send_request(self, request: Request) -> None:
        self._shake.sent()
        super().send_request(request)

    def data_to_send(self) -> list[bytes]:
        return with_one_pong(super().data_to_send())


class Leg(Governed, ClientConnection):
    """The connection. `heard` is when a message last came, in loop time."""

    def __init__(self, shake: Shake) -> None:
        super().__init__(_Client(shake), ping_interval=None, close_timeout=CLOSE_SECONDS)
        self.heard = self.loop.time()
        self._intake = Intake(self.loop, self._take)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Govern what is read."""
        super().connection_made(transport)
        self._intake.attach(self.transport)
        self.recv_messages.pause = lambda: self._intake.bar(_QUEUE)
        self.recv_messages.resume = lambda: self._intake.unbar(_QUEUE)

    def connection_lost(self, exc: Exception | None) -> None:
        """Watch no longer."""
        self._intake.leave()
        super().connection_lost(exc)

    def process_event(self, event: Event) -> None:
        """Note the time of a message; pings alone are no traffic."""
        self._pieces += 1
        if not isinstance(event, Frame) or event.opcode in DATA_OPCODES:
            self.heard = self.loop.time()
        super().process_event(event)


async def open_leg(place: Place, shake: Shake) -> Leg:
    """Connect and shake hands."""
    loop = asyncio.get_running_loop()

    def make() -> Leg:
        return Leg(shake)

    async with asyncio.timeout(place.connect_timeout):
        if place.unix:
            _, leg = await loop.create_unix_connection(make, place.unix)
        else:
            _, leg = await loop.create_connection(
                make, place.host, place.port, ssl=place.context, server_hostname=place.server_name
            )
    try:
        async with asyncio.timeout(place.first_byte_timeout):
            await leg.handshake(user_agent_header=None)
    except BaseException:
        leg.transport.abort()
        raise
    return leg
