"""One request on its way to an upstream and its response on the way back: the seam between exchange and pool.

Rules
1. A call ends in exactly one of `on_done` and `on_failed`, or in `cancel()`; after that there are no callbacks.
2. Only `on_sent` and `on_writable` may come before `Upstream.call` has returned; a failure never does.
3. Callbacks are synchronous and may use the call: cancel it, pause it, write to it. One that raises is a bug: the
   connection is closed, the loop's exception handler is told, and the call ends in `on_failed`.
4. Body bytes are kept only while there is no connection to write them to, or while the call could still be repeated,
   and no more than `HELD` of them if the writer heeds `on_writable`.
5. A call is repeated at most once, and only while everything that was sent of it is still here.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final, TypeAlias

from gateway.proxy.failure import Failure
from gateway.proxy.leg import Place
from policies.charge import Memo, ShareCharge
from policies.native import mypyc_attr

if TYPE_CHECKING:
    from gateway.proxy.connection import Connection

__all__ = ["HELD", "Account", "Call", "Caller", "Headers", "Line", "Receiver", "Sent"]

Headers: TypeAlias = list[tuple[bytes, bytes]]

#: Octets of a request body kept before a connection is there, and for one repetition: the high-water mark of asyncio's
#: transports, and four times nginx's client_body_buffer_size.
HELD: Final = 64 * 1024

#: What a chunk costs beyond its octets, so that a body of one-byte chunks is bounded too.
_CHUNK_OVERHEAD: Final = 128

#: Methods whose empty body needs no Content-Length: 0 (RFC 9110 section 8.6).
_NO_BODY: Final = frozenset({b"GET", b"HEAD", b"DELETE", b"OPTIONS"})


@mypyc_attr(allow_interpreted_subclasses=True)
class Receiver:
    """Who a response is for; what it does not say for itself it takes no notice of. Nothing here may block."""

    __slots__ = ()

    def on_sent(self) -> None:
        """Note that the request head was written to an upstream; once a call, even if it is repeated."""

    def on_interim(self, status: int, headers: Headers) -> None:
        """Take a 1xx response other than 101 (RFC 9110 section 15.2); names as received."""

    def on_response(self, status: int, headers: Headers, body: bytes = b"") -> None:
        """Take the response head, 200 to 599; names and order as received, framing fields too. The list is yours.

        `body` is what of the body came with the head, as for `on_data` but often empty.
        """

    def on_data(self, chunk: bytes) -> None:
        """Take the next octets of the body, without chunked framing; never empty, never decoded."""

    def on_done(self) -> None:
        """Note that the response is complete by its own framing."""

    def on_failed(self, failure: Failure) -> None:
        """Note the failure. After `on_response` the response is broken and must not look complete to the caller."""

    def on_writable(self, ready: bool) -> None:
        """Hold the request body back (False) or go on (True). It starts as True; only changes are told."""


@mypyc_attr(allow_interpreted_subclasses=True)
class Sent:
    """What an exchange does with a call; `Call` says more."""

    __slots__ = ()

    def write(self, chunk: bytes) -> None:
        """Send the next octets of the request body."""

    def finish(self) -> None:
        """End the request body."""

    def pause(self) -> None:
        """Read no more of the response."""

    def resume(self) -> None:
        """Undo `pause`."""

    def cancel(self) -> None:
        """End now. No callback comes after."""


@mypyc_attr(allow_interpreted_subclasses=True)
class Caller:
    """What an exchange needs of an upstream; `gateway.proxy.upstream.Upstream` says more."""

    __slots__ = ()

    def call(  # noqa: PLR0913 - as there
        self,
        method: bytes,
        target: bytes,
        fields: bytes,
        length: int | None,
        receiver: Receiver,
        *,
        idempotent: bool,
        host: bytes | None,
        first_byte_timeout_us: int | None,
        share: ShareCharge | None,
        memo: Memo | None,
    ) -> Sent:
        """Send a request as soon as a connection is there, and its response to `receiver`."""
        raise NotImplementedError  # a subclass's; a Protocol would be looked up by name

    async def place(self) -> Place | None:
        """Return where to connect to for what is no call, None if nobody knows."""
        return None


class Account:
    """What a tenant has of one upstream: seats it holds, and its calls that wait, in the order of arrival.

    `since` orders accounts that hold the same; `tenant` None is a caller of whom nothing is known. `home` is the number
    of the seats that it is of, 0 once they have forgotten it. `line` is None while nobody waits: what most tenants
    never have is not looked at either.
    """

    __slots__ = ("held", "home", "line", "since", "tenant", "weight")

    def __init__(self, tenant: str | None, home: int = 0) -> None:
        self.home = home
        self.held = 0
        self.weight = 1.0
        self.line: OrderedDict[Call, None] | None = None
        self.since = 0
        self.tenant = tenant

    def first(self) -> Call:
        """Return which of its calls has waited longest; one does."""
        return next(iter(self.line or ()))

    @property
    def ratio(self) -> float:
        """Seats by weight."""
        return self.held / self.weight


#: Of calls that no pool has taken yet.
_NOBODY: Final = Account(None)


@mypyc_attr(allow_interpreted_subclasses=True)
class Line:
    """Where a call waits until a connection carries it."""

    __slots__ = ()

    def withdraw(self, call: Call) -> None:
        """Forget `call`, which no connection carries."""
        raise NotImplementedError  # a subclass's; a Protocol would be looked up by name


class Call(Sent):
    """The handle `Upstream.call` returns. Every method may be used at any time, and does nothing once the call ended.

    The attributes belong to the pool and its connections. `left` is how much of an announced body is to come, None for
    a chunked one; `ended` that all of it was written; `keeping` that what is written is also kept in `held`; `writable`
    what the receiver was last told.
    """

    __deletable__ = ("receiver",)  # compiled classes keep attributes otherwise
    __slots__ = (
        "_line", "_size", "account", "body_written", "carrier", "ended", "fields", "first_byte", "framing", "held",
        "host", "idempotent", "keeping", "left", "method", "over", "paused", "receiver", "retried", "sent", "target",
        "total_at", "wait_until", "writable",
    )  # fmt: skip

    def __init__(  # noqa: PLR0913, PLR0917 - made once a request, at one place
        self,
        line: Line,
        receiver: Receiver,
        method: bytes,
        target: bytes,
        fields: bytes,
        host: bytes | None,
        length: int | None,
        idempotent: bool,
        first_byte: float,
        total_at: float,
    ) -> None:
        self._line = line
        self.account = _NOBODY
        self.receiver = receiver
        self.method = method
        self.target = target
        self.fields = fields
        self.framing = _framing(method, length)
        self.host = host
        self.left = length
        self.ended = length == 0
        self.idempotent = idempotent
        self.first_byte = first_byte
        self.total_at = total_at
        self.wait_until = 0.0
        self.held: list[bytes] | None = None
        self._size = 0
        self.writable = True
        self.body_written = False
        self.keeping = True
        self.carrier: Connection | None = None
        self.over = self.paused = self.retried = self.sent = False

    def write(self, chunk: bytes) -> None:
        """Send the next octets of the request body. ValueError if they exceed the announced length."""
        if self.over or not chunk:
            return
        if self.left is None:
            if self.ended:
                raise ValueError("the request body has already ended")
            self._send((b"%x\r\n" % len(chunk), chunk, b"\r\n"), len(chunk))
            return
        left = self.left - len(chunk)
        if left < 0:
            raise ValueError("the request body is longer than announced")
        self.left = left
        self.ended = left == 0
        self._send((chunk,), len(chunk))

    def finish(self) -> None:
        """End the request body. Needed for a chunked one; implied once an announced length is reached."""
        if self.over or self.ended:
            return
        if self.left is not None:
            raise ValueError("the request body is shorter than announced")
        self.ended = True
        self._send((b"0\r\n\r\n",), 5)

    def pause(self) -> None:
        """Read no more of the response. What was read may still come (at most 256 KiB); no idle time-out runs."""
        if not self.over and not self.paused:
            self.paused = True
            if self.carrier is not None:
                self.carrier.pause()

    def resume(self) -> None:
        """Undo `pause`."""
        if not self.over and self.paused:
            self.paused = False
            if self.carrier is not None:
                self.carrier.resume()

    def cancel(self) -> None:
        """End now, whether waiting, connecting or streaming: the caller is gone. No callback comes after."""
        if self.over:
            return
        carrier = self.carrier
        self.close()
        if carrier is not None:
            carrier.drop()
        else:
            self._line.withdraw(self)

    def close(self) -> Receiver:
        """Mark the end, and let go of what was held; return whom to tell, for nobody else may tell anything now."""
        receiver = self.receiver
        del self.receiver
        self.over = True
        self.carrier = None
        self.forget()
        return receiver

    def forget(self) -> None:
        """Keep nothing of the body any more: from here on the call cannot be repeated."""
        self.keeping = False
        self._size = 0
        self.held = None

    def tell(self, *, writable: bool) -> None:
        """Pass on whether more of the body is welcome, if that has changed."""
        if writable != self.writable and not self.over:
            self.writable = writable
            self.receiver.on_writable(writable)

    def head(self, prefix: bytes, authority: bytes) -> bytes:
        """Return the request head for one address, in one piece."""
        return b"%b %b%b HTTP/1.1\r\nhost: %b\r\n%b%b\r\n" % (
            self.method,
            prefix if self.target[:1] == b"/" else b"",
            self.target,
            self.host or authority,
            self.fields,
            self.framing,
        )

    def _send(self, parts: Sequence[bytes], size: int) -> None:
        self.body_written = True
        carrier = self.carrier
        if self.keeping:
            self._size += size + _CHUNK_OVERHEAD
            if carrier is not None and self._size > HELD:
                self.forget()
            elif self.held is None:
                self.held = list(parts)
            else:
                self.held.extend(parts)
        if carrier is not None:
            carrier.send(parts)
        elif self._size >= HELD:
            self.tell(writable=False)


def _framing(method: bytes, length: int | None) -> bytes:
    """Return the line that frames the body; the framing of a request is always our own."""
    if length is None:
        return b"transfer-encoding: chunked\r\n"
    if length or (method != b"GET" and method not in _NO_BODY):
        return b"content-length: %d\r\n" % length
    return b""
