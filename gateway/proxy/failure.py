"""Why an upstream call did not end well: a closed list, and the status each one means before a response has begun.

A failure is a value; library exceptions stop at `connection.py` and `addresses.py`. The same failure after the response
head was passed on cannot be told by a status any more: the exchange breaks the transfer off.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

__all__ = ["Failure", "FailureKind"]


class FailureKind(StrEnum):
    """What went wrong with the upstream."""

    REFUSED = "refused"
    """No connection: refused, unreachable, or no such socket file."""
    DNS = "dns"
    """The name does not resolve, and never has."""
    TLS = "tls"
    """The handshake or the verification of the certificate failed."""
    PROTOCOL = "protocol"
    """What came back is not an HTTP/1.x response we may pass on."""
    CONNECT_TIMEOUT = "connect_timeout"
    FIRST_BYTE_TIMEOUT = "first_byte_timeout"
    IDLE_TIMEOUT = "idle_timeout"
    TOTAL_TIMEOUT = "total_timeout"
    RESET = "reset"
    """The connection broke: reset, or closed before one byte of a response."""
    TRUNCATED = "truncated"
    """The connection was closed inside a response, head or body."""
    CONNECTIONS = "connections"
    """No connection, or seat of `concurrency`, came free within `connect_timeout`; nothing was sent."""
    CLOSED = "closed"
    """This upstream is shut down or was replaced; nothing more is sent."""


_STATUS = {
    FailureKind.CONNECT_TIMEOUT: 504,
    FailureKind.FIRST_BYTE_TIMEOUT: 504,
    FailureKind.TOTAL_TIMEOUT: 504,
    FailureKind.CONNECTIONS: 503,
    FailureKind.CLOSED: 503,
}


@dataclass(frozen=True, slots=True)
class Failure:
    """One failed call. `detail` is a sentence that names no address; `address` is for logs, never for callers.

    `over` says of CONNECTIONS that the tenant held its part of the seats, so that it waited for its own calls.
    """

    kind: FailureKind
    detail: str
    address: str = ""
    over: bool = False

    @property
    def status(self) -> int:
        """The status to answer with while none has been sent: 502, 503 or 504 (RFC 9110 section 15.6)."""
        return _STATUS.get(self.kind, 502)
