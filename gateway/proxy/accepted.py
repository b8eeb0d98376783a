"""A connection that a server accepted: who is at its other end, and whether it is read and written.

uvicorn makes one for each socket (`http` of its configuration), keeps it in `connections`, and calls `shutdown` when it
stops; the loop calls the rest, as of any `asyncio.Protocol`. It is none of uvicorn's own protocols: a compiled class
costs a fraction of one that is derived from another, and of what they keep a connection here needs little.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from uvicorn.protocols.utils import is_ssl

from gateway.proxy.deadlines import Due
from gateway.proxy.peer import peer_of

if TYPE_CHECKING:
    from uvicorn.config import Config
    from uvicorn.server import ServerState

__all__ = ["Accepted"]


class Accepted(Due):
    """One connection. `transport` is None until it is made, which under TLS is after the handshake.

    `peer` is set before that by whoever knows it from accepting; "" is nobody.
    """

    def __init__(
        self,
        config: Config,
        server_state: ServerState,
        app_state: dict[str, Any],
        _loop: asyncio.AbstractEventLoop | None = None,
    ) -> None:
        super().__init__()
        self.config = config
        self.server_state = server_state
        self.app_state = app_state
        self.loop: asyncio.AbstractEventLoop = _loop or asyncio.get_running_loop()
        self.connections: set[Any] = server_state.connections
        self.transport: asyncio.Transport = None  # type: ignore[assignment] # it always is there when it is used
        self.peer = ""
        self.scheme = "http"
        self.read_paused = False
        self.write_paused = False

    def connection_made(self, transport: asyncio.Transport) -> None:
        """Take note of the transport."""
        self.connections.add(self)
        self.transport = transport
        if not self.peer:
            self.peer = peer_of(transport)
        self.scheme = "https" if is_ssl(transport) else "http"

    def pause_reading(self) -> None:
        """Read nothing for now."""
        if not self.read_paused:
            self.read_paused = True
            self.transport.pause_reading()

    def resume_reading(self) -> None:
        """Read on."""
        if self.read_paused:
            self.read_paused = False
            self.transport.resume_reading()

    def pause_writing(self) -> None:
        """Note that the caller does not take what is written."""
        self.write_paused = True

    def resume_writing(self) -> None:
        """Note that it has caught up."""
        self.write_paused = False
