"""The naive Python way, to compare with: Starlette under uvicorn, httpx behind it, and no limits at all."""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import httpx
import uvicorn
from starlette.applications import Starlette
from starlette.background import BackgroundTask
from starlette.requests import Request
from starlette.responses import StreamingResponse
from starlette.routing import Route

__all__ = ["main"]

_HOP = frozenset({"connection", "keep-alive", "transfer-encoding", "te", "trailer", "upgrade"})


def _app(upstream: str) -> Starlette:
    client = httpx.AsyncClient(base_url=upstream, limits=httpx.Limits(max_connections=512), timeout=60.0)

    async def forward(request: Request) -> StreamingResponse:
        fields = [(name, value) for name, value in request.headers.raw if name.decode() not in _HOP | {"host"}]
        asked = client.build_request(request.method, request.url.path, headers=fields)
        answered = await client.send(asked, stream=True)
        kept = {name: value for name, value in answered.headers.items() if name not in _HOP}
        body = answered.aiter_raw()
        return StreamingResponse(body, answered.status_code, kept, background=BackgroundTask(answered.aclose))

    @asynccontextmanager
    async def lifespan(_app: Starlette) -> AsyncIterator[None]:
        async with client:
            yield

    return Starlette(routes=[Route("/{path:path}", forward)], lifespan=lifespan)


def main() -> None:
    """Serve: arguments are the port to listen on and that of the origin."""
    listen, upstream = map(int, sys.argv[1:3])
    app = _app(f"http://127.0.0.1:{upstream}")
    uvicorn.run(app, port=listen, loop="uvloop", http="httptools", access_log=False, log_level="warning")


if __name__ == "__main__":
    main()
