"""A service behind us: its addresses, its pool of connections, and the calls made to it."""

from __future__ import annotations

from typing import Protocol

from gateway.proxy.call import Call, Headers, Receiver
from gateway.proxy.failure import Failure, FailureKind

__all__ = ["Call", "Caller", "Failure", "FailureKind", "Headers", "Receiver"]


class Caller(Protocol):
    """What an exchange needs of an upstream."""

    def call(  # noqa: PLR0913 - a request line, its fields and its framing
        self,
        method: bytes,
        target: bytes,
        headers: Headers,
        length: int | None,
        receiver: Receiver,
        *,
        idempotent: bool,
        host: bytes | None = None,
        body: bytes = b"",
        first_byte_timeout_us: int | None = None,
    ) -> Call:
        """Send a request as soon as a connection is there, and its response to `receiver`.

        `target` is the origin-form target after `strip_prefix`; the path of the chosen address is prefixed here.
        `headers` are end-to-end fields only, in any case: Host, Connection, Content-Length, Transfer-Encoding are
        written here. `host` is the Host field, None for the authority of the chosen address. `length` is the size of
        the body, 0 for none, None for a chunked one. `body` is what of it is already there (one write with the head).
        `idempotent` allows one repetition on a new connection if a kept one turns out closed. The time-out replaces
        `[upstream] first_byte_timeout`, for a route that has its own.
        """
        ...
