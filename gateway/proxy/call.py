"""One request on its way to an upstream and its response on the way back: the seam between exchange and pool.

Rules
1. A call ends in exactly one of `on_done` and `on_failed`, or in `cancel()`; after that there are no callbacks.
2. Only `on_sent` and `on_writable` may come before `Upstream.call` has returned; a failure never does.
3. Callbacks are synchronous and may use the call: cancel it, pause it, write to it. One that raises is a bug: the
   connection is closed, the loop's exception handler is told, and the call ends in `on_failed`.
4. Body bytes are kept only while there is no connection to write them to, or while the call could still be repeated,
   and then no more than `HELD` of them beyond what the writer was told to hold back.
"""

from __future__ import annotations

from typing import Protocol, TypeAlias

from gateway.proxy.failure import Failure

__all__ = ["HELD", "Call", "Headers", "Receiver"]

Headers: TypeAlias = list[tuple[bytes, bytes]]

#: Octets of a request body kept before a connection is there, and for one repetition: the high-water mark of asyncio's
#: transports, and twice nginx's client_body_buffer_size.
HELD = 64 * 1024


class Receiver(Protocol):
    """Who a response is for. Nothing here may block."""

    def on_sent(self) -> None:
        """The request head was written to an upstream connection. Once a call, however often it is repeated."""
        ...

    def on_interim(self, status: int, headers: Headers) -> None:
        """A 1xx response other than 101 (RFC 9110 section 15.2); names as received."""
        ...

    def on_response(self, status: int, headers: Headers) -> None:
        """The response head, 200 to 599; names and order as received, framing fields included. The list is yours."""
        ...

    def on_data(self, chunk: bytes) -> None:
        """The next octets of the body, without chunked framing; never empty, never decoded, never joined."""
        ...

    def on_done(self) -> None:
        """The response is complete by its own framing."""
        ...

    def on_failed(self, failure: Failure) -> None:
        """The call failed. After `on_response` the response is broken and must not look complete to the caller."""
        ...

    def on_writable(self, ready: bool) -> None:
        """False: hold the request body back; True: go on. Starts as True; only changes are told."""
        ...


class Call(Protocol):
    """The handle `Upstream.call` returns. Every method may be used at any time, and does nothing once the call ended."""

    def write(self, chunk: bytes) -> None:
        """Send the next octets of the request body. ValueError if they exceed the announced length."""
        ...

    def finish(self) -> None:
        """The request body is complete. Needed for a chunked body; implied once an announced length is reached."""
        ...

    def pause(self) -> None:
        """Read no more of the response. What was already read still comes (at most 256 KiB); no idle time-out runs."""
        ...

    def resume(self) -> None:
        """Undo `pause`."""
        ...

    def cancel(self) -> None:
        """The caller is gone: end now, waiting, connecting or streaming. No callback comes after."""
        ...
