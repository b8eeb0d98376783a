"""Our ASGI app under plain uvicorn, with its own upstream pool or with aiohttp's client in its place.

Everything but the client is the same: what the pool saves is the difference. The collector is quieted as under our own
server, which whoever runs the app has to do: a plain process spends a fifth of its time collecting.
"""

from __future__ import annotations

import argparse
import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import aiohttp
import uvicorn
from starlette.types import Receive, Scope, Send

from gateway.app import Gateway, compose
from gateway.clock import Clock
from gateway.config import load
from gateway.listener.system import quiet_collector
from gateway.proxy.asgi import Proxy
from gateway.proxy.call import Caller, Headers, Receiver, Sent
from gateway.proxy.failure import Failure, FailureKind
from gateway.proxy.front import Front
from policies.charge import ShareCharge

__all__ = ["main"]

_TICK_SECONDS = 0.02


class _AiohttpCall(Sent):
    """A call made by aiohttp in a task of its own; for requests without a body, and answers too small to hold back."""

    def __init__(self, task: asyncio.Task[None]) -> None:
        self._task = task

    def write(self, chunk: bytes) -> None:
        """Nothing is sent."""

    def finish(self) -> None:
        """As above."""

    def pause(self) -> None:
        """Nothing is held back."""

    def resume(self) -> None:
        """As above."""

    def cancel(self) -> None:
        """End it."""
        self._task.cancel()


class _AiohttpUpstream(Caller):
    """What an exchange needs of an upstream, by way of aiohttp."""

    def __init__(self, url: str) -> None:
        self._url = url
        connector = aiohttp.TCPConnector(limit=512)
        self._session = aiohttp.ClientSession(connector=connector, auto_decompress=False)

    def call(
        self,
        method: bytes,
        target: bytes,
        headers: Headers,
        length: int | None,
        receiver: Receiver,
        *,
        idempotent: bool,
        host: bytes | None,
        first_byte_timeout_us: int | None,
        share: ShareCharge | None,
    ) -> Sent:
        """Send a request, and its response to `receiver`."""
        fields = [(name.decode("latin-1"), value.decode("latin-1")) for name, value in headers]
        made = self._make(method.decode(), self._url + target.decode(), fields, receiver)
        return _AiohttpCall(asyncio.get_running_loop().create_task(made))

    async def place(self) -> None:
        """Return nothing: no connection is handed over here."""

    async def _make(self, method: str, url: str, fields: list[tuple[str, str]], receiver: Receiver) -> None:
        receiver.on_sent()
        try:
            async with self._session.request(method, url, headers=fields, allow_redirects=False) as answered:
                receiver.on_response(answered.status, list(answered.raw_headers))
                async for chunk in answered.content.iter_any():
                    receiver.on_data(chunk)
        except aiohttp.ClientError as error:
            receiver.on_failed(Failure(FailureKind.RESET, str(error)))
        else:
            receiver.on_done()


async def _tick(gateway: Gateway) -> None:
    while True:
        gateway.tick()
        await asyncio.sleep(_TICK_SECONDS)


@asynccontextmanager
async def _started(gateway: Gateway, client: str) -> AsyncIterator[None]:
    await gateway.start()
    if client == "aiohttp":
        settings, policies = gateway.settings, gateway.pipeline.policies
        upstream = _AiohttpUpstream(f"http://127.0.0.1:{settings.upstream.addresses[0].port}")
        ways: dict[str | None, Caller] = {None: upstream}
        front = Front(settings, policies, gateway.pipeline, ways, Clock())
        gateway.endpoint = Proxy(front)
    ticks = asyncio.get_running_loop().create_task(_tick(gateway))
    quiet_collector()
    yield
    ticks.cancel()
    await gateway.stop()


def main() -> None:
    """Serve `--config` on `--port` until a signal."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--config", type=Path, required=True)
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--client", choices=("pool", "aiohttp"), default="pool")
    asked = parser.parse_args()
    gateway = compose(load(asked.config, {}))
    running: list[object] = []

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "lifespan":
            await gateway.endpoint(scope, receive, send)
            return
        await receive()
        async with _started(gateway, asked.client):
            running.append(gateway)
            await send({"type": "lifespan.startup.complete"})
            await receive()
        await send({"type": "lifespan.shutdown.complete"})

    config = uvicorn.Config(
        app, port=asked.port, loop="uvloop", http="httptools", access_log=False, log_level="warning", backlog=4096,
        server_header=False, date_header=False, proxy_headers=False,
    )  # fmt: skip
    uvicorn.Server(config).run()


if __name__ == "__main__":
    main()
