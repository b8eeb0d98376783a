"""Our ASGI app under plain uvicorn, with its own upstream pool or with aiohttp's client in its place.

Everything but the client is the same, uvicorn's settings too (docs/asgi.md): what the pool saves is the difference.
aiohttp runs with its C parser, and without what a proxy must not have: cookies, decoding, redirects.
"""

from __future__ import annotations

import argparse
import asyncio
from pathlib import Path

import aiohttp
import uvicorn
from starlette.types import Message, Receive, Send

from gateway.app import Gateway, compose
from gateway.asgi import application, live
from gateway.clock import Clock
from gateway.config import load
from gateway.proxy.asgi import Proxy
from gateway.proxy.call import Caller, Receiver, Sent
from gateway.proxy.failure import Failure, FailureKind
from gateway.proxy.front import Front
from policies.charge import Memo, ShareCharge

__all__ = ["main"]


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

    def __init__(self, port: int) -> None:
        self._url = f"http://127.0.0.1:{port}"
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=512),
            cookie_jar=aiohttp.DummyCookieJar(),  # what one caller is given is not for the next
            auto_decompress=False,
        )

    def call(
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
        """Send a request, and its response to `receiver`."""
        # Decoded at once, which is no more work than decoding names and values would be.
        lines = [line.partition(": ") for line in fields.decode("latin-1").split("\r\n")[:-1]]
        sent = [(name, value) for name, _, value in lines]
        made = self._make(method.decode(), self._url + target.decode(), sent, receiver)
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


def _with_aiohttp(gateway: Gateway) -> Proxy:
    """Return the application with aiohttp in place of the pool, which nobody uses then."""

    async def lives(receive: Receive, send: Send) -> None:
        async def told(message: Message) -> None:
            if message["type"] == "lifespan.startup.complete":
                settings, policies = gateway.settings, gateway.pipeline.policies
                ways: dict[str | None, Caller] = {None: _AiohttpUpstream(settings.upstream.addresses[0].port)}
                gateway.endpoint.front = Front(settings, policies, gateway.pipeline, ways, Clock())
            await send(message)

        await live(gateway, receive, told)

    gateway.endpoint.live = lives
    return gateway.endpoint


def main() -> None:
    """Serve `--config` on `--port` until a signal."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--config", type=Path, required=True)
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--client", choices=("pool", "aiohttp"), default="pool")
    asked = parser.parse_args()
    app = application(asked.config) if asked.client == "pool" else _with_aiohttp(compose(load(asked.config, {})))
    config = uvicorn.Config(
        app, port=asked.port, loop="uvloop", http="httptools", access_log=False, log_level="warning", backlog=4096,
        server_header=False, date_header=False, proxy_headers=False, lifespan="on",
    )  # fmt: skip
    uvicorn.Server(config).run()


if __name__ == "__main__":
    main()
