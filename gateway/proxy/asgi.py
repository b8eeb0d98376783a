"""The gateway as an ASGI application: a thin shell around `Exchange`, under any ASGI server.

Rules
1. One coroutine writes, and the server's own task runs it. A task of ours exists only to pump a body, or to notice that
   the caller of a slow request left: it starts after `WATCH_AFTER`, so most requests never have one.
2. Back-pressure both ways: at most `HELD` octets wait in either direction (and what one read of a socket brings).
3. A broken transfer is an application that returns without completing its response: servers close the connection then
   (uvicorn says so in one line of its log).
4. Fields are frozen before the body is read: some servers append trailers to the list.
5. What ASGI cannot see is the server's business: framing, deadlines, half-closes, and the difference between `/a` and
   `/a?`. While a caller waits for a 100 it cannot be seen to leave, since asking for its body would send the 100.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from typing import Any
from urllib.parse import quote

from starlette.types import Message, Receive, Scope, Send

from gateway.ports import Headers
from gateway.proxy.address import UNIX
from gateway.proxy.answer import Answer
from gateway.proxy.exchange import Exchange
from gateway.proxy.front import Front
from gateway.proxy.parse import Head
from gateway.proxy.sink import Sink
from gateway.proxy.websocket import Sockets, websocket

__all__ = ["HELD", "LINGER", "WATCH_AFTER", "Proxy"]

_LOG = logging.getLogger("evenhand")

#: Seconds before a request without a body is watched for its caller leaving, up to twice of it (it must be noticed
#: within 0.1 s).
WATCH_AFTER = 0.04
#: Octets that wait for a slow reader, in each direction; the high-water mark of asyncio's transports.
HELD = 64 * 1024
#: Seconds in which an unwanted body is read and thrown away, so that closing does not reset our answer.
LINGER = 2.0

_CLOSE = (b"connection", b"close")
_WEBSOCKET = (b"upgrade", b"websocket")


class Proxy:
    """The application. `front` may be replaced; a request keeps the one it began with.

    Without `sockets` no WebSocket is taken.
    """

    __slots__ = ("_sockets", "_watch", "front")

    def __init__(self, front: Front, sockets: Sockets | None = None) -> None:
        self.front = front
        self._sockets = sockets
        self._watch = _Watch()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one HTTP request or one WebSocket; answer lifespan events, of which nothing is needed."""
        match scope["type"]:
            case "http":
                await _serve(self.front, self._watch, scope, receive, send)
            case "websocket" if self._sockets is not None:
                await websocket(self.front, self._sockets, scope, receive, send, _head(scope))
            case "websocket":
                await _deny(self.front, scope, receive, send)
            case "lifespan":
                await _live(receive, send)


async def _serve(front: Front, watch: _Watch, scope: Scope, receive: Receive, send: Send) -> None:
    head = _head(scope)
    first: Message | None = None
    if head.version[0] in "23" and not any(name == b"content-length" for name, _ in head.headers):
        first = await receive()
        if first["type"] == "http.disconnect":
            return
        head.ended = not first.get("body") and not first.get("more_body")
    shell = _Shell(receive, send, first, watch)
    await shell.run(Exchange(front, head, shell))


class _Shell(Sink):
    """Source and sink of one exchange: messages in, messages out."""

    __slots__ = (
        "_ahead", "_ahead_bytes", "_all_read", "_exchange", "_finished", "_first", "_held", "_later", "_linger",
        "_messages", "_paused", "_pump", "_receive", "_room", "_send", "_waiter", "_wanted",
    )  # fmt: skip

    def __init__(self, receive: Receive, send: Send, first: Message | None, watch: _Watch) -> None:
        self._receive = receive
        self._send = send
        self._first = first
        self._later = watch
        self._exchange: Exchange
        # To the caller
        self._messages: deque[dict[str, Any]] = deque()
        self._held = 0
        self._paused = False
        self._finished = False
        self._linger = False
        self._waiter: asyncio.Future[None] | None = None
        # From the caller
        self._ahead: deque[bytes] = deque()
        self._ahead_bytes = 0
        self._all_read = False
        self._wanted = False
        self._room: asyncio.Future[None] | None = None
        self._pump: asyncio.Task[None] | None = None

    async def run(self, exchange: Exchange) -> None:
        """Serve `exchange` to its end."""
        self._exchange = exchange
        try:
            exchange.begin()
            if not exchange.over:
                self._watch(exchange)
            await self._write()
        except OSError:
            # ASGI 2.4: what `send` raises once the caller is gone.
            exchange.caller_gone()
        finally:
            self._finished = True  # so that nobody begins to watch
            if self._pump is not None:
                self._pump.cancel()
                self._pump = None  # how it ended would refer to us
            exchange.caller_gone()

    def _watch(self, exchange: Exchange) -> None:
        """See to it that a body is read, or at least that the caller is seen to leave."""
        if not exchange.awaits_body:
            self._later.add(self)
        elif self._wanted or not exchange.awaits_permission:
            self.start_pump()

    def start_pump(self) -> None:
        """Read what comes, the caller's leaving too, if nobody does yet."""
        if self._pump is None and not self._finished:
            self._pump = asyncio.get_running_loop().create_task(self._read())
            self._pump.add_done_callback(self._pumped)

    def _pumped(self, pump: asyncio.Task[None]) -> None:
        """End a request whose server can no longer be read."""
        if not pump.cancelled() and (fault := pump.exception()) is not None:
            _LOG.error("a request could not be read on", exc_info=fault)
            self._leave()

    def _leave(self) -> None:
        """End the exchange; nobody is left to tell."""
        self._messages.clear()
        self._exchange.caller_gone()
        self._finish()

    # The sink

    def answer(self, answer: Answer) -> None:
        """Queue an answer of ours."""
        headers = [*answer.headers, _CLOSE] if answer.close else answer.headers
        self._messages.append({"type": "http.response.start", "status": answer.status, "headers": headers})
        self._messages.append({"type": "http.response.body", "body": answer.body, "more_body": answer.close})
        self._linger = answer.close
        self._finish()

    def interim(self, status: int, headers: Headers) -> None:
        """ASGI has no way to send these."""

    def start(self, status: int, headers: Headers, body: bytes = b"") -> None:
        """Queue a response head, and what of the body is there.

        A 304 has no body whatever length it tells of, which servers do not all know.
        """
        if status == 304:
            headers = [field for field in headers if field[0] != b"content-length"]
        self._messages.append({"type": "http.response.start", "status": status, "headers": headers})
        if body:
            self.data(body)
        else:
            self._wake()

    def data(self, chunk: bytes) -> None:
        """Queue octets of the body."""
        self._messages.append({"type": "http.response.body", "body": chunk, "more_body": True})
        self._held += len(chunk)
        if self._held > HELD and not self._paused:
            self._paused = True
            self._exchange.caller_writable(False)
        self._wake()

    def end(self) -> None:
        """Complete the response, in the last piece if it was not sent yet."""
        if self._messages and "body" in self._messages[-1]:
            self._messages[-1]["more_body"] = False
        else:
            self._messages.append({"type": "http.response.body", "body": b"", "more_body": False})
        self._finish()

    def abort(self) -> None:
        """Send what came and leave the response incomplete."""
        self._finish()

    def want_body(self, wanted: bool) -> None:
        """Pass on what was read ahead, and read on; or stop."""
        self._wanted = wanted
        if wanted:
            if self._pump is None and self._exchange.awaits_permission:
                self.start_pump()
            self._pass_on()

    # To the caller

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    def _finish(self) -> None:
        self._finished = True
        self._wake()

    async def _write(self) -> None:
        messages = self._messages
        while True:
            while messages:
                message = messages.popleft()
                await self._send(message)
                if self._held:
                    self._sent(message)
            if self._finished:
                break
            self._waiter = asyncio.get_running_loop().create_future()
            await self._waiter
        if self._linger:
            if self._pump is not None:
                self._pump.cancel()
            await self._discard()
            await self._send({"type": "http.response.body", "body": b"", "more_body": False})

    def _sent(self, message: dict[str, Any]) -> None:
        self._held -= len(message.get("body", b""))
        if self._paused and self._held <= HELD // 2:
            self._paused = False
            self._exchange.caller_writable(True)

    async def _discard(self) -> None:
        """Read what of an unwanted body still comes, for a while; the answer is already on its way."""
        try:
            async with asyncio.timeout(LINGER):
                while (await self._receive()).get("more_body"):
                    pass
        except TimeoutError:
            pass

    # From the caller

    async def _read(self) -> None:
        """Pump the request body, then wait for the caller to leave."""
        while True:
            message = self._first or await self._receive()
            self._first = None
            if message["type"] == "http.disconnect":
                self._leave()
                return
            if not self._all_read:
                self._take(message)
            if self._finished:
                return
            while self._ahead_bytes >= HELD and not self._finished:
                self._room = asyncio.get_running_loop().create_future()
                await self._room

    def _take(self, message: Message) -> None:
        chunk = message.get("body", b"")
        if chunk:
            self._ahead.append(chunk)
            self._ahead_bytes += len(chunk)
        self._all_read = not message.get("more_body", False)
        self._pass_on()

    def _pass_on(self) -> None:
        """Give the exchange what it wants of what was read ahead."""
        while self._ahead and self._wanted:
            chunk = self._ahead.popleft()
            self._ahead_bytes -= len(chunk)
            self._exchange.body(chunk)
        if self._all_read and not self._ahead and self._exchange.awaits_body:
            self._exchange.body_end()
        if self._room is not None and self._ahead_bytes < HELD and not self._room.done():
            self._room.set_result(None)


class _Watch:
    """The requests that may have to be watched, on one timer: most end before it comes round."""

    __slots__ = ("_old", "_running", "_young")

    def __init__(self) -> None:
        self._young: list[_Shell] = []
        self._old: list[_Shell] = []
        self._running = False

    def add(self, shell: _Shell) -> None:
        """Have `shell` watch for its caller in `WATCH_AFTER` seconds or a little more, unless it is over by then."""
        self._young.append(shell)
        if not self._running:
            self._running = True
            asyncio.get_running_loop().call_later(WATCH_AFTER, self._turn)

    def _turn(self) -> None:
        due, self._old, self._young = self._old, self._young, []
        for shell in due:
            shell.start_pump()
        self._running = bool(self._old)
        if self._running:
            asyncio.get_running_loop().call_later(WATCH_AFTER, self._turn)


def _head(scope: Scope) -> Head:
    """Return the request head of a scope."""
    path = scope.get("raw_path") or quote(scope["path"], safe="/!$&'()*+,;=:@%").encode("ascii")
    query = scope.get("query_string")
    return Head(
        scope.get("method", "GET").encode("ascii"),
        path + b"?" + query if query else path,
        list(scope["headers"]),
        _peer(scope),
        "https" if scope.get("scheme") in {"https", "wss"} else "http",
        scope.get("http_version", "1.1"),
    )


def _peer(scope: Scope) -> str:
    """Return the address of the socket's other end. A peer that is gone already is nobody, and not a trusted `unix`."""
    client, server = scope.get("client"), scope.get("server")
    if client:
        return str(client[0]) or UNIX
    return UNIX if server is None or server[1] is None else "unknown"


class _Denial(Sink):
    """The sink of a request that can only be answered by us."""

    def __init__(self) -> None:
        self.said: Answer | None = None

    def answer(self, answer: Answer) -> None:
        self.said = answer


async def _deny(front: Front, scope: Scope, receive: Receive, send: Send) -> None:
    """Answer a WebSocket handshake as the HTTP request it is; where the server cannot say that, close it."""
    head = _head(scope)
    head.headers.append(_WEBSOCKET)
    denial = _Denial()
    Exchange(front, head, denial).begin()  # an upgrade is only ever answered
    await receive()
    if denial.said is None or "websocket.http.response" not in (scope.get("extensions") or {}):
        await send({"type": "websocket.close", "code": 1013})
        return
    said = denial.said
    await send({"type": "websocket.http.response.start", "status": said.status, "headers": said.headers})
    await send({"type": "websocket.http.response.body", "body": said.body, "more_body": False})


async def _live(receive: Receive, send: Send) -> None:
    while True:
        message = await receive()
        await send({"type": message["type"] + ".complete"})
        if message["type"] == "lifespan.shutdown":
            return
