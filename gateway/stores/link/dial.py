"""Making a connection to a server. The border where errors of sockets, resolvers, TLS and logins become a fault.

Rules
1. An attempt ends within `DIAL_SECONDS`, name, TLS and login included.
2. A login's own words are never quoted: an error may repeat what it was sent.
3. The last step is a write as a script does it, so that a connection that is made is one that charges can be sent on.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import NamedTuple

from gateway.stores.link.faults import KINDS, UNREACHABLE, ErrorReply, StoreFault, of_exception, of_reply
from gateway.stores.link.lookup import Lookup
from gateway.stores.link.tally import Tally
from gateway.stores.link.wire import Wire

__all__ = ["Made", "NotFoundError", "Place", "Terms", "connect", "log_in", "probe_words", "reach"]

#: For a whole attempt; and the silence after which a connection is given up.
DIAL_SECONDS = 1.0

#: What a server of a cluster answers about a name that is not its own: alive, and that is all a probe asks.
_ELSEWHERE = ("MOVED", "ASK", "TRYAGAIN")


class Place(NamedTuple):
    """Where a server listens: host and port, or the path of a unix socket."""

    host: str
    port: int
    unix: str = ""


class NotFoundError(Exception):
    """There is no place to connect to, and why."""

    def __init__(self, fault: StoreFault) -> None:
        super().__init__(fault.text)
        self.fault = fault


@dataclass(frozen=True, slots=True)
class Terms:
    """On which terms we speak to a server: credentials, database, TLS, how patient we are (seconds)."""

    tally: Tally
    lookup: Lookup
    deadline: float
    user: str = ""
    password: str = field(default="", repr=False)
    database: int = 0
    context: ssl.SSLContext | None = None

    @property
    def stall(self) -> float:
        """Seconds of silence that end a connection."""
        return max(DIAL_SECONDS, 2.0 * self.deadline)

    def wrong(self, reply: object) -> StoreFault | None:
        """Return what the reply to a probe says against the server, None if nothing."""
        if isinstance(reply, StoreFault):
            return reply
        if isinstance(reply, ErrorReply) and reply.code not in _ELSEWHERE:
            return of_reply(reply)
        return None


class Made(NamedTuple):
    """A connection that is ready, and how many seconds the server took to say so."""

    wire: Wire
    took: float


async def connect(
    find: Callable[[], Awaitable[Place]], terms: Terms, probe: bytes, lost: Callable[[Wire, StoreFault], None]
) -> Made | StoreFault:
    """Connect to where `find` says, log in, and have a write taken; or return why not."""
    wire: Wire | None = None
    try:
        async with asyncio.timeout(DIAL_SECONDS):
            wire = await reach(await find(), terms, lost)
            return await _greet(wire, terms, probe)
    except NotFoundError as error:
        return error.fault
    except UNREACHABLE as error:
        if wire is not None:
            wire.drop(StoreFault("timeout", "the store took too long to answer"))
        return of_exception(error)
    except asyncio.CancelledError:
        if wire is not None:
            wire.drop(StoreFault("down", "the link to the store is closed"))
        raise


async def reach(place: Place, terms: Terms, lost: Callable[[Wire, StoreFault], None]) -> Wire:
    """Connect, TLS included, and log in nowhere yet; OSError or UnicodeError if that fails."""
    loop = asyncio.get_running_loop()
    wire = Wire(terms.tally, terms.stall, lost)
    if place.unix:
        await loop.create_unix_connection(lambda: wire, place.unix)
        return wire
    name = place.host if terms.context is not None else None
    failed: OSError = ConnectionRefusedError()
    for address in await terms.lookup.addresses(place.host, place.port):
        try:
            await loop.create_connection(lambda: wire, address, place.port, ssl=terms.context, server_hostname=name)
        except ssl.SSLError:
            raise
        except OSError as error:
            closed = isinstance(error, ConnectionResetError | ConnectionAbortedError)
            failed = ssl.SSLError(0, "the connection was closed") if closed and terms.context is not None else error
        else:
            return wire
    raise failed


async def log_in(wire: Wire, terms: Terms) -> StoreFault | None:
    """Present credentials and choose the database; return what is said against it."""
    return await _welcome(_login(wire, terms))


async def _greet(wire: Wire, terms: Terms, probe: bytes) -> Made | StoreFault:
    """Send the login and the probe at once, and wait for what is said of each."""
    began = asyncio.get_running_loop().time()
    login = _login(wire, terms)
    name = wire.request((b"CLIENT", b"SETNAME", b"evenhand"))
    last = wire.request(probe_words(probe))
    fault = await _welcome(login)
    named = terms.wrong(await name)
    if fault is None and named is not None and named.kind not in {"auth", "error"}:
        fault = named  # what it is asked for helps whoever looks at CLIENT LIST; nothing hangs on its being allowed
    fault = fault or terms.wrong(await last)
    if fault is not None:
        wire.drop(fault)
        return fault
    return Made(wire, asyncio.get_running_loop().time() - began)


Login = tuple[list[asyncio.Future[object]], list[asyncio.Future[object]]]


def _login(wire: Wire, terms: Terms) -> Login:
    """Send what a login takes, and return the replies to come: of the credentials, of the database."""
    words = tuple(word.encode("utf-8", "surrogatepass") for word in (terms.user, terms.password) if word)
    shown = [wire.request((b"AUTH", *words))] if terms.password else []
    chosen = [wire.request((b"SELECT", b"%d" % terms.database))] if terms.database else []
    return shown, chosen


async def _welcome(login: Login) -> StoreFault | None:
    shown, chosen = login
    for future in shown:
        if (fault := _refused(await future)) is not None:
            return fault
    for future in chosen:
        if isinstance(reply := await future, ErrorReply | StoreFault):
            return of_reply(reply) if isinstance(reply, ErrorReply) else reply
    return None


def probe_words(name: bytes) -> tuple[bytes, ...]:
    """Return the command of the probe: a script that writes a record which is gone after a second."""
    return (b"EVAL", b"return redis.call('SET', KEYS[1], '1', 'PX', '1000')", b"1", name)


def _refused(reply: object) -> StoreFault | None:
    if isinstance(reply, ErrorReply):
        kind = of_reply(reply).kind
        if kind in {"auth", "error"}:
            return StoreFault("auth", "the store does not accept the user and password")
        return StoreFault(kind, f"the store does not log us in: {KINDS[kind]}")
    return reply if isinstance(reply, StoreFault) else None
