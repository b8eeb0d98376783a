"""`/api/stream`: one fairness snapshot a second, as server-sent events.

Rules
1. A snapshot is made once a second for each question, however many ask it, in a thread; none is made while nobody
   listens.
2. At most `MOST` listeners, counted when a stream is granted and given back once, however it ends; the next is told
   503 and comes back by itself. Whoever reads too slowly misses snapshots, and holds back nobody.
3. The first event comes at once, so that a page is there as soon as it is opened.
4. `end` ends all streams, so that none has to be cut off when the process ends.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable

import orjson
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.types import Receive, Scope, Send

from gateway.dashboard.view import Asked, View, read_query

__all__ = ["MOST", "Stream"]

MOST = 32
_EVERY_SECONDS = 1.0
_FRESH_SECONDS = 0.5
_KEPT = 16
_RETRY_MS = 1000
_MEDIA_TYPE = "text/event-stream"
_HEADERS = {
    "cache-control": "no-store",
    "x-content-type-options": "nosniff",
    "x-accel-buffering": "no",  # proxies of the nginx family would hold events back
}


class _Held(StreamingResponse):
    """A stream that tells once that it is over: read to its end, left by its reader, failed, or never begun."""

    def __init__(self, events: AsyncIterator[bytes], over: Callable[[], None]) -> None:
        super().__init__(events, 200, _HEADERS, _MEDIA_TYPE)
        self._over = over

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await super().__call__(scope, receive, send)
        finally:
            self._over()


class Stream:
    """The endpoint."""

    def __init__(self, view: View) -> None:
        self._view = view
        self._listening = 0
        self._ended = asyncio.Event()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._made: dict[tuple[str, str, str, int, int, str], tuple[float, asyncio.Future[bytes]]] = {}

    async def open(self, request: Request) -> Response:
        """`GET /api/stream?window=&sort=&q=&offset=&limit=&scope=`."""
        try:
            asked = read_query(request.query_params)
        except ValueError as error:
            raise HTTPException(400, str(error)) from error
        if self._listening >= MOST:
            raise HTTPException(503, "As many pages are open as this listener serves.")
        if request.method == "HEAD":  # or it would hold a place and send nothing
            return Response(None, 200, _HEADERS, _MEDIA_TYPE)
        # No await stands between this and the call of what is returned, which gives the place back.
        self._listening += 1
        return _Held(self._events(asked), self._close)

    def _close(self) -> None:
        self._listening -= 1

    def end(self) -> None:
        """End all streams; from any thread."""
        if self._loop is not None:
            self._loop.call_soon_threadsafe(self._ended.set)

    async def _events(self, asked: Asked) -> AsyncIterator[bytes]:
        yield b"retry: %d\n\n" % _RETRY_MS
        loop = self._loop = asyncio.get_running_loop()
        due = loop.time()
        while not self._ended.is_set():
            yield b"event: fairness\ndata: %b\n\n" % await self._snapshot(asked)
            due = max(due + _EVERY_SECONDS, loop.time())
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._ended.wait(), due - loop.time())

    async def _snapshot(self, asked: Asked) -> bytes:
        """Return the snapshot of this second; whoever asks while it is made waits for the same one."""
        loop = asyncio.get_running_loop()
        made, task = self._made.get(asked.key, (0.0, None))
        if task is None or loop.time() - made > _FRESH_SECONDS:
            for key in [key for key, (at, _) in self._made.items() if loop.time() - at > _EVERY_SECONDS][:_KEPT]:
                del self._made[key]
            task = asyncio.ensure_future(run_in_threadpool(self._make, asked))
            self._made[asked.key] = (loop.time(), task)
        return await asyncio.shield(task)

    def _make(self, asked: Asked) -> bytes:
        return orjson.dumps(self._view.snapshot(asked))
