"""The gateway as an ASGI application: a thin shell around `Exchange`, under any ASGI server.

Rules
1. One coroutine writes, and the server's own task runs it: a small answer costs one wait and two messages. A task of
   ours exists only to pump a body, or to notice that the caller of a slow request left: it starts after `WATCH_AFTER`,
   so most requests never have one. A request that is over is kept by nobody.
2. Back-pressure both ways: at most `HELD` octets wait in either direction (and what one read of a socket brings).
3. A broken transfer is an application that returns without completing its response: servers close the connection then
   (uvicorn says so in one line of its log).
4. Fields are frozen before the body is read: some servers append trailers to the list.
5. What ASGI cannot see is the server's business: framing, deadlines, half-closes, 1xx responses, and the difference
   between `/a` and `/a?`. While a caller waits for a 100 it cannot be seen to leave, since asking for its body would
   send the 100.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable
from typing import Any, Final

from starlette.types import Message, Receive, Scope, Send

from gateway.proxy.answer import Answer
from gateway.proxy.exchange import Exchange
from gateway.proxy.front import Front
from gateway.proxy.headers import Lines, one_by_one
from gateway.proxy.scope import head_of
from gateway.proxy.sink import Sink
from gateway.proxy.websocket import Sockets, websocket

__all__ = ["HELD", "LINGER", "WATCH_AFTER", "Proxy"]

_LOG = logging.getLogger("evenhand")

#: Seconds before a request without a body is watched for its caller leaving, up to twice of it (it must be noticed
#: within 0.1 s).
WATCH_AFTER = 0.04
#: Octets that wait for a slow reader, in each direction; the high-water mark of asyncio's transports.
HELD: Final = 64 * 1024
#: Seconds in which an unwanted body is read and thrown away, so that closing does not reset our answer.
LINGER = 2.0

_CLOSE: Final = (b"connection", b"close")
_WEBSOCKET: Final = (b"upgrade", b"websocket")


class Proxy:
    """The application, on one loop. `front` may be replaced; a request keeps the one it began with.

    Without `sockets` no WebSocket is taken. `live` takes part in the server's lifespan; without it, all is well.
    """

    __slots__ = ("_watch", "front", "live", "sockets")

    def __init__(self, front: Front | None = None, sockets: Sockets | None = None) -> None:
        self.front = front
        self.sockets = sockets
        self.live: Callable[[Receive, Send], Awaitable[None]] = _live
        self._watch = _Watch()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one HTTP request or one WebSocket, or live as long as the server.

        A request is served here and in no coroutine below: each would be entered anew for every step.
        """
        front = self.front
        if front is None or scope["type"] != "http":
            await self._beside(scope, receive, send)
            return
        head = head_of(scope)
        shell = _Shell(self._watch, receive)
        if head.version[0] in "23" and not any(name == b"content-length" for name, _ in head.headers):
            first = shell.first = await receive()
            if first["type"] == "http.disconnect":
                return
            head.ended = not first.get("body") and not first.get("more_body")
        exchange = Exchange(front, head, shell)
        try:
            shell.begin(exchange)
            while True:
                while (message := shell.message()) is not None:
                    await send(message)
                if shell.finished:
                    break
                await shell.more()
            if shell.linger:
                await shell.discard()
                await send({"type": "http.response.body", "body": b"", "more_body": False})
        except OSError:
            pass  # ASGI 2.4: what `send` raises once the caller is gone
        finally:
            shell.close()
            exchange.caller_gone()

    async def _beside(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Take part in what is no request. RuntimeError for one that comes before the gateway has started."""
        if scope["type"] == "lifespan":
            await self.live(receive, send)
        elif self.front is None:
            raise RuntimeError("the gateway was not started: the server has to speak ASGI's lifespan")
        elif scope["type"] == "websocket":
            if self.sockets is not None:
                await websocket(self.front, self.sockets, scope, receive, send, head_of(scope))
            else:
                await _deny(self.front, scope, receive, send)


class _Shell(Sink):
    """Source and sink of one exchange: messages in, messages out."""

    __slots__ = (
        "_ahead", "_ahead_bytes", "_all_read", "_chunks", "_ending", "_exchange", "_held", "_paused", "_pump",
        "_receive", "_room", "_sending", "_start", "_waiter", "_wanted", "_watch", "_watched", "finished", "first",
        "linger",
    )  # fmt: skip

    def __init__(self, watch: _Watch, receive: Receive) -> None:
        self._watch = watch
        self._receive = receive
        self._exchange: Exchange
        self._watched: set[_Shell] | None = None
        # To the caller
        self._start: dict[str, Any] | None = None
        self._chunks: list[bytes] = []
        self._held = self._sending = 0
        self._ending = self._paused = False
        self._waiter: asyncio.Future[None] | None = None
        #: Whether nothing comes behind the messages that are there.
        self.finished = False
        #: Whether what of the request body still comes is to be read before the end of the answer is told.
        self.linger = False
        # From the caller
        self.first: Message | None = None
        self._ahead: deque[bytes] | None = None
        self._ahead_bytes = 0
        self._all_read = self._wanted = False
        self._room: asyncio.Future[None] | None = None
        self._pump: asyncio.Task[None] | None = None

    def begin(self, exchange: Exchange) -> None:
        """Begin `exchange`; see to it that a body is read, or at least that the caller is seen to leave."""
        self._exchange = exchange
        exchange.begin()
        if exchange.over:
            return
        if not exchange.awaits_body:
            self._watched = self._watch.add(self)
        elif self._wanted or not exchange.awaits_permission:
            self.start_pump()

    def close(self) -> None:
        """Let go of whoever still waits: nobody writes any more."""
        self.finished = True  # so that nobody begins to watch
        if self._watched is not None:
            self._watched.discard(self)
        if self._pump is not None:
            self._pump.cancel()
            self._pump = None  # how it ended would refer to us

    def start_pump(self) -> None:
        """Read what comes, the caller's leaving too, if nobody does yet."""
        if self._pump is None and not self.finished:
            self._pump = asyncio.get_running_loop().create_task(self._read())
            self._pump.add_done_callback(self._pumped)

    def _pumped(self, pump: asyncio.Task[None]) -> None:
        """End a request whose server can no longer be read, or gives up; one that is over cancels its pump itself."""
        fault = None if pump.cancelled() else pump.exception()
        if fault is not None:
            _LOG.error("a request could not be read on", exc_info=fault)
        if fault is not None or (pump.cancelled() and not self.finished):
            self._leave()

    def _leave(self) -> None:
        """End the exchange; nobody is left to tell."""
        self._start, self._ending = None, False
        self._chunks.clear()
        self._exchange.caller_gone()
        self._finish()

    # The sink

    def answer(self, answer: Answer) -> None:
        """Keep an answer of ours."""
        headers = [*answer.headers, _CLOSE] if answer.close else answer.headers
        self._start = {"type": "http.response.start", "status": answer.status, "headers": headers}
        if answer.body:
            self._chunks.append(answer.body)
        self.linger = answer.close
        self._ending = not answer.close
        self._finish()

    def start(self, status: int, lines: Lines, length: int, body: bytes) -> None:
        """Keep a response head, and what of the body is there. Not all servers know that a 304 has none."""
        headers = one_by_one(lines)
        if status == 304:
            headers = [field for field in headers if field[0] != b"content-length"]
        self._start = {"type": "http.response.start", "status": status, "headers": headers}
        if body:
            self.data(body)
        else:
            self._wake()

    def data(self, chunk: bytes) -> None:
        """Keep octets of the body."""
        self._chunks.append(chunk)
        self._held += len(chunk)
        if self._held > HELD and not self._paused:
            self._paused = True
            self._exchange.caller_writable(False)
        self._wake()

    def end(self) -> None:
        """Complete the response, in the last piece if it was not sent yet."""
        self._ending = True
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

    def message(self) -> dict[str, Any] | None:
        """Return what to send next, None if it is not there yet or was all. What was returned before is sent by now.

        What waits of the body goes in one piece: to most servers a message is a system call.
        """
        start = self._start
        if start is not None:
            self._start = None
            return start
        if self._sending:
            self._sent()
        chunks, ending = self._chunks, self._ending
        body = b""
        if chunks:
            body = chunks[0] if len(chunks) == 1 else b"".join(chunks)
            chunks.clear()
            self._sending = len(body)
        elif not ending:
            return None
        self._ending = False
        return {"type": "http.response.body", "body": body, "more_body": not ending}

    def _sent(self) -> None:
        self._held -= self._sending
        self._sending = 0
        if self._paused and self._held <= HELD // 2:
            self._paused = False
            self._exchange.caller_writable(True)

    def more(self) -> asyncio.Future[None]:
        """Return what is done once there is more to send, or nothing more to come."""
        waiter: asyncio.Future[None] = self._watch.loop().create_future()
        self._waiter = waiter
        return waiter

    def _wake(self) -> None:
        waiter = self._waiter
        if waiter is not None:
            self._waiter = None
            if not waiter.done():  # as that of a cancelled request is
                waiter.set_result(None)

    def _finish(self) -> None:
        self.finished = True
        self._wake()

    async def discard(self) -> None:
        """Read what of an unwanted body still comes, for a while; the answer is already on its way."""
        if self._pump is not None:
            self._pump.cancel()
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
            message = self.first or await self._receive()
            self.first = None
            if message["type"] == "http.disconnect":
                self._leave()
                return
            if not self._all_read:
                self._take(message)
            if self.finished:
                return
            while self._ahead_bytes >= HELD and not self.finished:
                self._room = asyncio.get_running_loop().create_future()
                await self._room

    def _take(self, message: Message) -> None:
        chunk = message.get("body", b"")
        if chunk:
            if self._ahead is None:
                self._ahead = deque()
            self._ahead.append(chunk)
            self._ahead_bytes += len(chunk)
        self._all_read = not message.get("more_body", False)
        self._pass_on()

    def _pass_on(self) -> None:
        """Give the exchange what it wants of what was read ahead."""
        ahead = self._ahead
        while ahead and self._wanted:
            chunk = ahead.popleft()
            self._ahead_bytes -= len(chunk)
            self._exchange.body(chunk)
        if self._all_read and not ahead and self._exchange.awaits_body:
            self._exchange.body_end()
        if self._room is not None and self._ahead_bytes < HELD and not self._room.done():
            self._room.set_result(None)


class _Watch:
    """The requests that may have to be watched, on one timer: most end before it comes round, and are not kept."""

    __slots__ = ("_loop", "_old", "_running", "_young")

    def __init__(self) -> None:
        self._loop: asyncio.AbstractEventLoop | None = None
        self._young: set[_Shell] = set()
        self._old: set[_Shell] = set()
        self._running = False

    def loop(self) -> asyncio.AbstractEventLoop:
        """Return the loop; asked for it, asyncio asks the system first whether this is still the same process."""
        if self._loop is None:
            self._loop = asyncio.get_running_loop()
        return self._loop

    def add(self, shell: _Shell) -> set[_Shell]:
        """Have `shell` watch for its caller in `WATCH_AFTER` seconds or a little more, unless it is over by then.

        Return what it is to be taken out of: all of a request that is over would stay in memory until then.
        """
        self._young.add(shell)
        if not self._running:
            self._running = True
            self.loop().call_later(WATCH_AFTER, self._turn)
        return self._young

    def _turn(self) -> None:
        due, self._old, self._young = self._old, self._young, set()
        for shell in due:
            shell.start_pump()
        self._running = bool(self._old)
        if self._running:
            self.loop().call_later(WATCH_AFTER, self._turn)


class _Denial(Sink):
    """The sink of a request that can only be answered by us."""

    def __init__(self) -> None:
        self.said: Answer | None = None

    def answer(self, answer: Answer) -> None:
        self.said = answer


async def _deny(front: Front, scope: Scope, receive: Receive, send: Send) -> None:
    """Answer a WebSocket handshake as the HTTP request it is; where the server cannot say that, close it."""
    head = head_of(scope)
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
