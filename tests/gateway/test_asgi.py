"""The gateway as an application of somebody else's server: its life, and the command that the documentation gives."""

from __future__ import annotations

import asyncio
import os
import re
import shlex
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from starlette.types import Message

from gateway import asgi
from gateway.app import Gateway
from gateway.asgi import CONFIG, application
from gateway.errors import ConfigError
from gateway.proxy.asgi import Proxy
from tests.gateway.proxy.house import A, write
from tests.wire.caller import call, request
from tests.wire.origin import serving

DOCUMENT = Path(__file__).parents[2] / "docs" / "asgi.md"
#: Of a request with a token that nobody issued.
SCOPE = {
    "path": "/",
    "headers": [(b"host", b"a"), (b"authorization", b"Bearer evh_pat_no")],
    "client": ("192.0.2.7", 4711),
}


class Server:
    """A server that is played."""

    def __init__(self, app: Proxy) -> None:
        self.app = app
        self.inbox: asyncio.Queue[Message] = asyncio.Queue()
        self.sent: asyncio.Queue[Message] = asyncio.Queue()

    async def ask(self, kind: str, **scope: Any) -> None:
        await self.app({"type": kind, **scope}, self.inbox.get, self.sent.put)

    async def tell(self, kind: str) -> Message:
        """Say `kind` and return what is said to it."""
        self.inbox.put_nowait({"type": kind})
        return await self.sent.get()


@pytest.fixture
def quieted(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """Note that the collector was quieted, and leave that of the tests alone."""
    noted: list[bool] = []
    monkeypatch.setattr(asgi, "quiet_collector", lambda: noted.append(True))
    return noted


async def test_it_lives_as_long_as_its_server(tmp_path: Path, quieted: list[bool]) -> None:
    """Started before the first request, ticked meanwhile, stopped behind the last; the collector is quieted once."""
    server = Server(application(write(tmp_path)))
    life = asyncio.create_task(server.ask("lifespan"))
    assert await server.tell("lifespan.startup") == {"type": "lifespan.startup.complete"}
    assert quieted == [True]
    await server.ask("http", **SCOPE)
    assert (await server.sent.get())["status"] == 401
    assert (await server.sent.get())["more_body"] is False
    assert await server.tell("lifespan.shutdown") == {"type": "lifespan.shutdown.complete"}
    await life


async def test_a_gateway_that_cannot_start_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An exception would be taken for an application that knows no lifespan, and be served."""

    async def start(_: Gateway) -> None:
        raise OSError("no room")

    monkeypatch.setattr(Gateway, "start", start)
    server = Server(application(write(tmp_path)))
    life = asyncio.create_task(server.ask("lifespan"))
    assert await server.tell("lifespan.startup") == {"type": "lifespan.startup.failed", "message": "no room"}
    await life


async def test_a_lease_is_waited_for_but_not_for_ever(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, quieted: list[bool]
) -> None:
    """Whoever begins to serve without one begins by refusing."""
    looks: list[bool] = []
    monkeypatch.setattr(Gateway, "warm", property(lambda _: looks.append(True)))
    monkeypatch.setattr(asgi, "_TICK_SECONDS", 0)
    server = Server(application(write(tmp_path)))
    life = asyncio.create_task(server.ask("lifespan"))
    assert await server.tell("lifespan.startup") == {"type": "lifespan.startup.complete"}
    assert len(looks) == 50
    await server.tell("lifespan.shutdown")
    await life


async def test_requests_before_the_start_are_a_fault_of_the_server(tmp_path: Path) -> None:
    """Nothing is forwarded unlimited because a server leaves the lifespan out."""
    for kind in ("http", "websocket"):
        with pytest.raises(RuntimeError, match="lifespan"):
            await Server(application(write(tmp_path))).ask(kind, **SCOPE)


def test_the_file_is_that_of_the_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """$EVENHAND_CONFIG, else gateway.toml where the process runs; a wrong one is an error before anything is served."""
    path = write(tmp_path)
    monkeypatch.setenv(CONFIG, str(path))
    assert isinstance(application(), Proxy)
    path.rename(tmp_path / "other.toml")
    with pytest.raises(ConfigError):
        application()
    (tmp_path / "other.toml").rename(path)
    monkeypatch.delenv(CONFIG)
    monkeypatch.chdir(tmp_path)
    assert isinstance(application(), Proxy)


async def test_the_documented_command_serves(tmp_path: Path) -> None:
    """As written in docs/asgi.md, uvicorn starts it, passes requests on, and stops it."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{free.getsockname()[1]}"
    command = re.compile(r"^```\nEVENHAND_CONFIG=\S+ uvicorn (.*?)^```", re.MULTILINE | re.DOTALL)
    written = command.search(DOCUMENT.read_text("utf-8"))
    assert written is not None
    flags = shlex.split(written[1].replace("\\\n", " "))
    with serving() as origin:
        environ = os.environ | {CONFIG: str(write(tmp_path, url=origin.address))}
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "uvicorn", *flags, "--port", address.rpartition(":")[2],
            env=environ, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
        )  # fmt: skip
        assert process.stderr is not None
        said = await process.stderr.readuntil(b"running on")
        assert b"Application startup complete" in said
        answer = await call(address, request(target="/a%2Db", token=A.token))
        assert (answer.status, origin.seen[0].target) == (200, b"/a%2Db")
        assert len(answer.all("date")) == 1
        process.terminate()
        rest = await process.stderr.read()
        assert b"Application shutdown complete" in rest
        await process.wait()
