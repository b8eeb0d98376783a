"""A WebSocket through the house: one request that lasts, admitted once, with a leg of its own on either side.

    handshake --parse, decide--> refused (HTTP) | admitted --leg opened--> 101 --frames both ways--> closed --> settled

Rules
1. It is authenticated, admitted and charged once, like any request, before the upgrade; a refusal is a plain answer.
2. Its seats, and its place among the `max_per_tenant` of its tenant, are held until it is closed, however that comes.
3. A close reaches the other side with its code and reason. One without a code is passed on as 1000; a caller that
   vanished leaves 1001 behind, an upstream that vanished 1014.
4. Ours: 1008 when the credential expires, 1001 at `max_lifetime` or after `idle_timeout` without a message either way,
   1012 when the gateway stops, 1009 beyond `max_message`.
5. A caller that leaves before the upstream has answered is `aborted`; a WebSocket that was opened is `served`.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable
from dataclasses import dataclass, replace

from starlette.types import Message, Receive, Scope, Send
from websockets.exceptions import ConnectionClosed, InvalidHandshake, InvalidStatus

from gateway.config.sections import WebsocketSection
from gateway.ports import Decision, Headers, Rejection
from gateway.proxy.answer import STATUS_LINES, Answer, fields, lines
from gateway.proxy.exchange import Exchange
from gateway.proxy.front import Front, Way
from gateway.proxy.headers import Lines, one_by_one
from gateway.proxy.leg import Leg, Shake, open_leg
from gateway.proxy.parse import Head, Parsed
from gateway.proxy.sink import Sink
from gateway.proxy.target import stripped
from gateway.proxy.upgrade import EXTENSION, Wire
from policies.units import SECOND
from policies.verdict import Outcome, Reason

__all__ = ["TURN", "Sockets", "websocket"]

_LOG = logging.getLogger("evenhand")

_ORIGIN = Rejection(403, "forbidden", "WebSocket connections of this origin are not allowed here.")
_FAILED = Rejection(500, "internal-error", "")
_BAD_GATEWAY = Rejection(502, "bad-gateway", "The service behind did not take the WebSocket handshake.")
_TOO_SLOW = Rejection(504, "gateway-timeout", "The service behind did not answer the WebSocket handshake in time.")
_STOPPING = Rejection(503, "unavailable", "The gateway is stopping.")

#: Messages passed on before others have their turn of the loop: while more wait, nothing here would.
TURN = 32
#: Belongs to a leg, never to the other side's.
_OF_A_LEG = b"sec-websocket-"
_FROM_A_LEG = (_OF_A_LEG, b"content-length")

_NO_CODE, _VANISHED = 1005, 1006
_EXPIRED = (1008, "the credential has expired", "expired")
_LIFETIME = (1001, "open for max_lifetime", "lifetime")
_IDLE = (1001, "nothing came for idle_timeout", "idle")
_STOPPED = (1012, "the gateway is stopping", "drain")


class Sockets:
    """What `[websocket]` says, and how many each tenant has open."""

    __slots__ = ("_any", "_open", "_origins", "section")

    def __init__(self, section: WebsocketSection) -> None:
        self._open: dict[str, int] = {}
        self.become(section)

    def become(self, section: WebsocketSection) -> None:
        """Go over to another configuration; what is open counts on, and is held to the new times."""
        self.section = section
        self._origins = frozenset(origin.lower().encode("ascii") for origin in section.origins)
        self._any = "*" in section.origins

    def allows(self, origin: bytes | None) -> bool:
        """Return whether a page of `origin` may open one; None is no browser, and says nothing."""
        return self._any or origin is None or origin.lower() in self._origins

    def enter(self, tenant: str) -> bool:
        """Take a place; False if the tenant has none left."""
        held = self._open.get(tenant, 0)
        if held >= self.section.max_per_tenant:
            return False
        self._open[tenant] = held + 1
        return True

    def leave(self, tenant: str) -> None:
        """Give it back."""
        left = self._open[tenant] - 1
        if left:
            self._open[tenant] = left
        else:
            del self._open[tenant]

    @property
    def open(self) -> int:
        """How many there are."""
        return sum(self._open.values())


class _Told(Sink):
    """The sink of a handshake: `known` is set once it is answered in HTTP, or admitted."""

    def __init__(self) -> None:
        self.said: Answer | None = None
        self.known = asyncio.Event()

    def answer(self, answer: Answer) -> None:
        self.said = answer
        self.known.set()


class _Handshake(Exchange):
    """A request up to the point where others are forwarded."""

    __slots__ = ("_known", "_sockets", "admitted")

    def __init__(self, front: Front, head: Head, told: _Told, sockets: Sockets) -> None:
        super().__init__(front, head, told)
        self._known = told.known
        self._sockets = sockets
        self.admitted: tuple[Decision, Parsed, Way] | None = None

    def _forward(self, decision: Decision, parsed: Parsed) -> None:
        verdict = decision.verdict
        if not self._sockets.allows(parsed.fields.get(b"origin")):
            self._reject(_ORIGIN)
        elif self._sockets.enter(decision.principal.tenant):
            # Its way now: after a reload the number of its route may be another's.
            self.admitted = (decision, parsed, self._front.ways[decision.route])
            self._known.set()
        elif verdict is not None:
            answer = self._front.refuser.too_many(decision, verdict, self._asked())
            self._answer(answer)
            self._settle(Outcome.REFUSED, answer.status, Reason.CONCURRENCY.value)

    def fail(self, rejection: Rejection) -> None:
        """Answer a handshake that was admitted and came to nothing."""
        told = self._say(rejection)
        self._settle(Outcome.UPSTREAM_ERROR, told)

    def end(self, outcome: Outcome, status: int) -> None:
        """Settle it."""
        self._settle(outcome, status)


async def websocket(front: Front, sockets: Sockets, scope: Scope, receive: Receive, send: Send, head: Head) -> None:
    """Serve one WebSocket; `head` is its handshake, where no extension says it better."""
    loop = asyncio.get_running_loop()
    wire: Wire = (scope.get("extensions") or {}).get(EXTENSION) or Wire(head, loop.time)
    wire.head.websocket = True
    wire.head.headers = [(name.lower(), value) for name, value in wire.head.headers]
    told = _Told()
    shake = _Handshake(front, wire.head, told, sockets)
    shake.begin()
    await receive()  # websocket.connect
    if not told.known.is_set():
        await _learn(told, shake, receive)
    if shake.admitted is not None:
        decision, parsed, way = shake.admitted
        try:
            await _Bridge(front, sockets, shake, decision, parsed, way, wire, receive, send, scope).run()
        except Exception:  # noqa: BLE001 - logged, answered, counted
            _LOG.exception("a WebSocket could not be served")
        finally:
            sockets.leave(decision.principal.tenant)
            if not shake.over:
                shake.fail(_FAILED)
    if told.said is not None:
        await _deny(told.said, scope, send)


async def _learn(told: _Told, shake: _Handshake, receive: Receive) -> None:
    """Wait until it is known who asks; a caller that says anything before that is not waited for."""
    hearing, knowing = asyncio.ensure_future(receive()), asyncio.ensure_future(told.known.wait())
    try:
        await asyncio.wait({hearing, knowing}, return_when=asyncio.FIRST_COMPLETED)
        if not told.known.is_set():
            shake.caller_gone()
    finally:
        for waiting in (hearing, knowing):
            waiting.cancel()
        await asyncio.gather(hearing, knowing, return_exceptions=True)


async def _deny(said: Answer, scope: Scope, send: Send) -> None:
    """Answer in HTTP; where the server cannot say that, close."""
    if "websocket.http.response" not in (scope.get("extensions") or {}):
        await send({"type": "websocket.close", "code": 1013})
        return
    await send({"type": "websocket.http.response.start", "status": said.status, "headers": said.headers})
    await send({"type": "websocket.http.response.body", "body": said.body, "more_body": False})


@dataclass(slots=True)
class _Bridge:
    """One admitted WebSocket, from its upstream leg being opened to its end."""

    front: Front
    sockets: Sockets
    shake: _Handshake
    decision: Decision
    parsed: Parsed
    way: Way
    wire: Wire
    receive: Receive
    send: Send
    scope: Scope

    async def run(self) -> None:
        """Open the upstream's leg, then pass frames on until one side, or the time, ends it."""
        opening = asyncio.create_task(self._open())
        hearing = asyncio.ensure_future(self.receive())
        try:
            await asyncio.wait({opening, hearing}, return_when=asyncio.FIRST_COMPLETED)
            if not opening.done() and hearing.result()["type"] == "websocket.disconnect":
                self._left()
                return
            # A frame may come with the handshake; whoever sent it is still there.
            await asyncio.wait({opening})
            leg = await self._opened(opening)
            if leg is not None:
                await self._bridge(leg, hearing)
        finally:
            for task in (opening, hearing):
                task.cancel()
            await asyncio.gather(opening, hearing, return_exceptions=True)
            if not opening.cancelled() and opening.exception() is None:
                opening.result().transport.abort()

    def _left(self) -> None:
        """End a handshake whose caller left, or whose server stops, before the upstream answered."""
        if self.wire.stopped:
            self.decision.notes["ended"] = "drain"
            self.shake.fail(_STOPPING)
        else:
            self.shake.end(Outcome.ABORTED, 0)

    async def _open(self) -> Leg:
        head, parsed, decision, way = self.wire.head, self.parsed, self.decision, self.way
        if (place := await way.upstream.place()) is None:
            raise OSError("the upstream's name does not resolve")
        if way.first_byte_timeout_us is not None:
            place = replace(place, first_byte_timeout=way.first_byte_timeout_us / SECOND)
        target = stripped(parsed.target, way.strip) if way.strip else parsed.target
        sent = fields(way.fields.write(head, parsed, decision))
        sent = [field for field in sent if not field[0].startswith(_OF_A_LEG)]
        offered = [value.decode("ascii") for name, value in head.headers if name == b"sec-websocket-protocol"]
        shake = Shake(
            place.prefix + target,
            parsed.host if way.preserve_host and parsed.host else place.authority,
            sent,
            [name.strip() for value in offered for name in value.split(",")],
            self.sockets.section.max_message,
            self._sent,
        )
        return await open_leg(place, shake)

    def _sent(self) -> None:
        self.decision.sent = True

    async def _opened(self, opening: asyncio.Task[Leg]) -> Leg | None:
        """Return the leg, or answer why there is none."""
        try:
            return opening.result()
        except InvalidStatus as answered:
            await self._relay(answered)
        except TimeoutError:
            self.shake.fail(_TOO_SLOW)
        except (OSError, InvalidHandshake, EOFError):
            self.shake.fail(_BAD_GATEWAY)
        return None

    async def _relay(self, answered: InvalidStatus) -> None:
        """Pass on what the upstream answered instead of a 101."""
        response = answered.response
        status, body = response.status_code, bytes(response.body)
        headers = [
            (name, value) for name, value in self._fields(status, response.headers.raw_items()) if name != b"date"
        ]
        headers.append((b"content-length", b"%d" % len(body)))
        await _deny(Answer(status, [STATUS_LINES[status], lines(headers)], [body]), self.scope, self.send)
        self.shake.end(Outcome.UPSTREAM_ERROR if status >= 500 else Outcome.SERVED, status)

    def _fields(self, status: int, items: Iterable[tuple[str, str]]) -> Headers:
        """Return the end-to-end fields of the upstream's answer, and ours."""
        given = [(name.lower().encode("latin-1"), value.encode("latin-1")) for name, value in items]
        relayed: Lines = []
        self.front.responses.write(status, [one for one in given if not one[0].startswith(_FROM_A_LEG)], relayed)
        verdict = self.decision.verdict
        if verdict is not None and not (300 <= status < 400 or status in (429, 503)):
            self.front.tell(verdict, relayed)
        return one_by_one(relayed)

    async def _bridge(self, leg: Leg, hearing: asyncio.Future[Message]) -> None:
        fields = self._fields(101, leg.response.headers.raw_items() if leg.response else ())
        accept = {"type": "websocket.accept", "subprotocol": leg.subprotocol, "headers": fields}
        await self.send(accept)
        up = asyncio.create_task(self._up(leg, hearing))
        down = asyncio.create_task(self._down(leg))
        try:
            await self._until_over(leg, up, down)
        finally:
            self.shake.end(Outcome.SERVED, 101)
            for task in (up, down):
                task.cancel()
            await asyncio.gather(up, down, return_exceptions=True)

    async def _until_over(self, leg: Leg, up: asyncio.Task[_Close], down: asyncio.Task[_Close]) -> None:
        """Wait for the end, whoever brings it, and tell the others."""
        ending = await self._ending(leg, up, down)
        if up.done() and not self.wire.stopped:
            await self._close_leg(leg, up.result(), vanished=1001)
            return
        if ending is None and down.done():
            close = down.result()
        else:
            code, reason, note = ending or _STOPPED
            self.decision.notes["ended"] = note
            close = _Close(code, reason)
            down.cancel()
        await self._close_caller(close)
        if not down.done() or down.cancelled():
            await self._close_leg(leg, close, vanished=1001)

    async def _ending(
        self, leg: Leg, up: asyncio.Task[_Close], down: asyncio.Task[_Close]
    ) -> tuple[int, str, str] | None:
        """Return which of our own limits ended it, None if a side did."""
        loop, clock, section = asyncio.get_running_loop(), self.front.clock, self.sockets.section
        opened = loop.time()
        idle, lifetime = section.idle_timeout / SECOND, section.max_lifetime / SECOND
        expires = self.decision.principal.expires_us
        while True:
            now = loop.time()
            quiet = now - max(self.wire.heard(), leg.heard)
            left = [(opened + lifetime - now, _LIFETIME), (idle - quiet, _IDLE)]
            if expires is not None:
                left.append(((expires - clock.wall()) / SECOND, _EXPIRED))
            soonest, ending = min(left)
            if soonest <= 0:
                return ending
            done, _ = await asyncio.wait({up, down}, timeout=soonest, return_when=asyncio.FIRST_COMPLETED)
            if done:
                return None

    async def _up(self, leg: Leg, hearing: asyncio.Future[Message]) -> _Close:
        """Pass on what the caller sends; return how it closed."""
        event = await hearing
        passed = 0
        while event["type"] == "websocket.receive":
            octets = event.get("bytes")
            try:
                await leg.send(event["text"] if octets is None else octets)
            except ConnectionClosed:
                # How it closed is what the other direction says.
                await asyncio.Event().wait()
            passed += 1
            if passed % TURN == 0:
                await asyncio.sleep(0)
            event = await self.receive()
        return _Close(event.get("code") or _NO_CODE, event.get("reason") or "")

    async def _down(self, leg: Leg) -> _Close:
        """Pass on what the upstream sends; return how it closed."""
        passed = 0
        try:
            while True:
                passed += 1
                if passed % TURN == 0:
                    await asyncio.sleep(0)
                message = await leg.recv()
                kind = "text" if isinstance(message, str) else "bytes"
                await self.send({"type": "websocket.send", kind: message})
        except ConnectionClosed as closed:
            if closed.rcvd is not None:
                return _Close(closed.rcvd.code, closed.rcvd.reason)
            # Ours to the upstream, for a message that was too long; or it is simply gone.
            return _Close(closed.sent.code, closed.sent.reason) if closed.sent is not None else _Close(1014, "")

    async def _close_caller(self, close: _Close) -> None:
        code = 1000 if close.code == _NO_CODE else close.code
        try:
            await self.send({"type": "websocket.close", "code": code, "reason": close.reason})
        except OSError:
            _LOG.debug("the caller was gone before its WebSocket was closed")

    async def _close_leg(self, leg: Leg, close: _Close, *, vanished: int) -> None:
        code = {_NO_CODE: 1000, _VANISHED: vanished}.get(close.code, close.code)
        await leg.close(code, close.reason)


@dataclass(frozen=True, slots=True)
class _Close:
    """A close as it came: 1005 without a code, 1006 without a close."""

    code: int
    reason: str
