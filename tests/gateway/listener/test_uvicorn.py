"""What of uvicorn is relied on beyond its documentation: this fails loudly when it moves, and says where to look."""

from __future__ import annotations

import asyncio
import inspect

import pytest
import uvicorn
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol
from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol
from uvicorn.server import Server, ServerState

from gateway.listener.server import Listener, configured
from gateway.proxy.accepted import Accepted
from gateway.proxy.guard import Guard

__all__: list[str] = []

LOOK = "uvicorn moved: read gateway/proxy/accepted.py, upgrade.py and gateway/listener/server.py again"


async def nothing(scope: object, receive: object, send: object) -> None:
    """Do nothing: an application."""


def made(protocol: type[asyncio.Protocol]) -> asyncio.Protocol:
    """Return a protocol as uvicorn's server makes one."""
    config = configured(nothing, HttpToolsProtocol)
    config.load()
    return protocol(config=config, server_state=ServerState(), app_state={})  # type: ignore[call-arg] # uvicorn's


async def test_version_is_the_pinned_one() -> None:
    """The range of pyproject.toml is one minor version."""
    assert uvicorn.__version__.startswith("0.54."), LOOK


@pytest.mark.interpreted
async def test_http_protocol() -> None:
    """Its constructor and its `shutdown` are all that the server asks of one; ours has whatever else it has."""
    parameters = list(inspect.signature(HttpToolsProtocol.__init__).parameters)
    assert parameters == ["self", "config", "server_state", "app_state", "_loop"], LOOK
    assert parameters == ["self", *list(inspect.signature(Accepted.__init__).parameters)[1:]]
    source = inspect.getsource(Server)
    assert "connection.shutdown()" in source, LOOK
    hooks = {name for name in vars(asyncio.Protocol) | vars(asyncio.BaseProtocol) if not name.startswith("_")}
    assert hooks <= set(dir(Guard))


async def test_websocket_protocol() -> None:
    """What the hand-over uses: the scope made before the app runs, the queue it reads, the close it notes."""
    one = made(WebSocketsSansIOProtocol)
    for name in ("queue", "conn", "handshake_complete", "close_sent", "disconnected", "connections", "loop"):
        assert hasattr(one, name), f"{name}: {LOOK}"
    source = inspect.getsource(WebSocketsSansIOProtocol.handle_connect)
    assert source.index("self.scope") < source.index("create_task(self.run_asgi())"), LOOK
    assert "websocket.http.response" in source, LOOK


async def test_server() -> None:
    """What the listener replaces is still what uvicorn calls, in this order."""
    for name in ("startup", "shutdown", "capture_signals"):
        assert callable(getattr(Server, name, None)), f"{name}: {LOOK}"
        assert getattr(Listener, name) is not getattr(Server, name)
    source = inspect.getsource(Server._serve)
    assert source.index("self.startup(") < source.index("self.main_loop(") < source.index("self.shutdown("), LOOK
    assert {"connections", "tasks"} <= set(vars(ServerState())), LOOK
