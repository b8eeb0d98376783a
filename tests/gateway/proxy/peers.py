"""WebSockets from a test: an upstream that plays, a gateway in front of it, and callers that are refused or let in."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
import websockets
from websockets.asyncio.client import ClientConnection, connect
from websockets.asyncio.server import Server, ServerConnection, serve
from websockets.exceptions import ConnectionClosed
from websockets.http11 import Request, Response

from tests.gateway.proxy.house import A
from tests.gateway.proxy.served import Served
from tests.gateway.proxy.shells import Shell, behind
from tests.wire.caller import request

__all__ = ["HANDSHAKE", "JSON", "UPGRADE", "Peer", "T", "both", "closed", "denied", "opening"]

T = A.token
JSON = "application/problem+json"
UPGRADE = [
    ("Connection", "Upgrade"),
    ("Upgrade", "websocket"),
    ("Sec-WebSocket-Version", "13"),
    ("Sec-WebSocket-Key", "dGhlIHNhbXBsZSBub25jZQ=="),
]
HANDSHAKE = request(target="/live?x", token=T, fields=UPGRADE)


class Peer:
    """The upstream: keeps the handshakes it saw and how each connection closed."""

    def __init__(self) -> None:
        self.seen: list[Request] = []
        self.closes: list[tuple[int | None, str]] = []
        self.answer: Callable[[ServerConnection, Request], Response | Awaitable[Response] | None] | None = None
        self.play: Callable[[ServerConnection], Awaitable[None]] = self.echo
        self.address = ""

    def listens(self, server: Server) -> None:
        """Note where, as `[upstream] url` wants it."""
        self.address = f"http://127.0.0.1:{next(iter(server.sockets)).getsockname()[1]}"

    async def echo(self, connection: ServerConnection) -> None:
        """Say everything again."""
        async for message in connection:
            await connection.send(message)

    async def handle(self, connection: ServerConnection) -> None:
        """Play, and note how it ended."""
        with contextlib.suppress(ConnectionClosed):
            await self.play(connection)
        await connection.wait_closed()
        self.closes.append((connection.close_code, connection.close_reason or ""))

    def look(self, connection: ServerConnection, asked: Request) -> Any:
        """Note a handshake, and answer it if that is wanted."""
        self.seen.append(asked)
        return self.answer(connection, asked) if self.answer else None


@contextlib.asynccontextmanager
async def both(tmp_path: Path, shell: Shell = "lane", **config: Any) -> AsyncIterator[tuple[Served, Peer]]:
    """Run an upstream and a gateway in front of it."""
    peer = Peer()
    async with serve(peer.handle, "127.0.0.1", 0, process_request=peer.look, subprotocols=None) as server:
        peer.listens(server)
        config.setdefault("quota", "1000/s burst 1000")
        async with behind(shell, tmp_path, peer.address, **config) as gateway:
            yield gateway, peer


def opening(gateway: Served, target: str = "/live", token: str = T, **more: Any) -> connect:
    """Return a connection to be opened."""
    fields = {"Authorization": f"Bearer {token}", **more.pop("fields", {})}
    return connect(f"ws://{gateway.address}{target}", additional_headers=fields, proxy=None, **more)


async def denied(gateway: Served, **more: Any) -> Response:
    """Return what a handshake was answered instead."""
    with pytest.raises(websockets.InvalidStatus) as refusal:
        await opening(gateway, **more)
    return refusal.value.response


async def closed(caller: ClientConnection, within: float = 20.0) -> tuple[int | None, str | None]:
    """Wait for the end; return its code and reason."""
    async with asyncio.timeout(within):
        await caller.wait_closed()
    return caller.close_code, caller.close_reason
