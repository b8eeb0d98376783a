"""Open pages are bounded, and a place that was given back can be taken again."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import cast

import pytest
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Message

from gateway.dashboard.stream import MOST, Stream
from gateway.dashboard.view import Asked, View

__all__: list[str] = []


class _Empty:
    """A view without a tenant, or one that fails."""

    def __init__(self, *, failing: bool = False) -> None:
        self._failing = failing

    def snapshot(self, asked: Asked) -> dict[str, object]:
        """Return a snapshot."""
        if self._failing:
            raise RuntimeError("no snapshot")
        return {"window": asked.window}


def request(method: str = "GET") -> Request:
    """Return a request for the stream."""
    return Request({"type": "http", "method": method, "query_string": b"", "headers": [], "path": "/api/stream"})


def stream(*, failing: bool = False) -> Stream:
    """Return the endpoint over no gateway."""
    return Stream(cast("View", _Empty(failing=failing)))


async def opened(one: Stream, count: int, method: str = "GET") -> list[Response]:
    """Open until refused; return those that were granted."""
    granted: list[Response] = []
    for _ in range(count):
        try:
            granted.append(await one.open(request(method)))
        except HTTPException:
            break
    return granted


async def test_as_many_are_granted_as_are_served() -> None:
    """Counted when granted: two hundred that come at once are no more than `MOST`, though none has begun."""
    assert len(await opened(stream(), 200)) == MOST


async def gone() -> Message:
    """Be a reader that has left."""
    return {"type": "http.disconnect"}


async def stays() -> Message:
    """Be a reader that stays."""
    await asyncio.Event().wait()
    return {"type": "http.disconnect"}


async def taken(_message: Message) -> None:
    """Take whatever comes."""


async def broken(_message: Message) -> None:
    """Be a connection that is lost."""
    raise OSError("lost")


@pytest.mark.parametrize(
    ("receive", "send", "failing"),
    [
        (gone, taken, False),
        (stays, broken, False),
        (stays, taken, True),
    ],
)
async def test_every_way_out_gives_the_place_back(
    receive: Callable[..., object], send: Callable[..., object], *, failing: bool
) -> None:
    """Left, lost, failed, or never begun: afterwards as many as before are served, and no more."""
    one = stream(failing=failing)
    for response in await opened(one, MOST):
        scope = {**request().scope, "asgi": {"spec_version": "2.3"}}
        await asyncio.gather(response(scope, receive, send), return_exceptions=True)  # type: ignore[arg-type] # stubs
    assert len(await opened(one, 2 * MOST)) == MOST


async def test_head_holds_no_place() -> None:
    """It is answered and over."""
    assert len(await opened(stream(), 2 * MOST, "HEAD")) == 2 * MOST


async def test_a_cancelled_stream_gives_its_place_back() -> None:
    """Before it has begun and while it runs."""
    one = stream()
    scope = {**request().scope, "asgi": {"spec_version": "2.3"}}
    running = [asyncio.create_task(_call(response, scope)) for response in await opened(one, MOST)]
    for _ in range(20):
        await asyncio.sleep(0)
    assert await opened(one, 1) == []
    for task in running:
        task.cancel()
    await asyncio.gather(*running, return_exceptions=True)
    assert len(await opened(one, 2 * MOST)) == MOST


async def _call(response: Response, scope: dict[str, object]) -> None:
    await response(scope, stays, taken)
