"""Calls to an upstream from a test: what was told of one, on either kind of loop, with nothing left behind.

Rules
1. A test decorated with `on_both_loops` runs on asyncio's loop and on uvloop.
2. `reaching` ends by proving that nothing leaked: no call, connection or attempt, no task, no socket at the origin.
"""

from __future__ import annotations

import asyncio
import functools
import inspect
import time
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import Any

import pytest
import uvloop

from gateway.config.sections import UpstreamSection
from gateway.proxy.answer import lines
from gateway.proxy.upstream import Call, Failure, Headers, Receiver, Upstream
from tests.wire.origin import Origin

__all__ = ["Told", "ask", "get", "on_both_loops", "reaching", "received", "section", "sent", "until"]

_LOOPS = {"asyncio": asyncio.new_event_loop, "uvloop": uvloop.new_event_loop}


def on_both_loops(test: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., None]:
    """Run an async test once on each kind of loop."""

    def run(loop_kind: str, **fixtures: Any) -> None:
        with asyncio.Runner(loop_factory=_LOOPS[loop_kind]) as runner:
            runner.run(test(**fixtures))

    functools.update_wrapper(run, test)
    own = inspect.signature(test)
    kind = inspect.Parameter("loop_kind", inspect.Parameter.POSITIONAL_OR_KEYWORD)
    run.__signature__ = own.replace(parameters=[kind, *own.parameters.values()])  # type: ignore[attr-defined]  # pytest reads it
    both: Callable[..., None] = pytest.mark.parametrize("loop_kind", tuple(_LOOPS))(run)
    return both


class Told(Receiver):
    """A receiver that keeps what it was told, and fails the test if it is told anything out of order."""

    def __init__(self) -> None:
        self.call: Call | None = None
        self.sent = 0
        self.interim: list[int] = []
        self.status = 0
        self.headers: Headers = []
        self.body = bytearray()
        self.chunks = 0
        self.writable: list[bool] = []
        self.failure: Failure | None = None
        self.complete = False
        self.silent = False
        self.over = asyncio.Event()

    def _heard(self) -> None:
        assert not self.silent, "told something after cancel"
        assert not self.over.is_set(), "told something after the end"

    def on_sent(self) -> None:
        self._heard()
        self.sent += 1

    def on_interim(self, status: int, headers: Headers) -> None:
        self._heard()
        assert not self.status
        self.interim.append(status)

    def on_response(self, status: int, headers: Headers, body: bytes = b"") -> None:
        self._heard()
        assert self.sent == 1
        assert not self.status
        self.status, self.headers = status, headers
        if body and not self.silent:
            self.on_data(body)

    def on_data(self, chunk: bytes) -> None:
        self._heard()
        assert self.status
        assert chunk
        self.body += chunk
        self.chunks += 1

    def on_done(self) -> None:
        self._heard()
        assert self.status
        self.complete = True
        self.over.set()

    def on_failed(self, failure: Failure) -> None:
        self._heard()
        self.failure = failure
        self.over.set()

    def on_writable(self, ready: bool) -> None:
        self._heard()
        assert ready is not (self.writable[-1] if self.writable else True)
        self.writable.append(ready)

    async def end(self, within: float = 30.0) -> Told:
        """Wait until the call has ended."""
        await asyncio.wait_for(self.over.wait(), within)
        return self

    @property
    def kind(self) -> str:
        """What the call failed by, or `done`."""
        return str(self.failure.kind) if self.failure else "done" if self.complete else "running"


def section(*addresses: str, **keys: Any) -> UpstreamSection:
    """Return `[upstream]` as it would stand in gateway.toml."""
    return UpstreamSection.model_validate({"urls": list(addresses), **keys})


def ask(
    upstream: Upstream,
    method: str = "GET",
    target: str = "/",
    *,
    length: int | None = 0,
    body: bytes = b"",
    told: Told | None = None,
    **options: Any,
) -> Told:
    """Make a call; `told.call` is its handle. Idempotent by its method unless said otherwise."""
    told = told or Told()
    options.setdefault("idempotent", method in {"GET", "HEAD", "PUT", "DELETE", "OPTIONS"})
    headers: Headers = options.pop("headers", [(b"Accept", b"*/*")])
    told.call = upstream.call(method.encode(), target.encode(), lines(headers), length, told, body=body, **options)
    return told


async def get(upstream: Upstream, target: str = "/", **options: Any) -> Told:
    """Make a GET and wait for its end."""
    return await ask(upstream, "GET", target, **options).end()


async def until(true: Callable[[], bool], within: float = 20.0) -> None:
    """Wait until `true()` holds."""
    end = time.monotonic() + within
    while not true():
        assert time.monotonic() < end, "did not come true in time"
        await asyncio.sleep(0.002)


async def sent(told: Told) -> None:
    """Wait until the request head of `told` was written."""
    await until(lambda: told.sent == 1)


async def received(told: Told, chunks: int) -> None:
    """Wait until so many pieces of a body have come."""
    await until(lambda: told.chunks >= chunks)


@asynccontextmanager
async def reaching(*where: Origin | str, **keys: Any) -> AsyncIterator[Upstream]:
    """Yield an upstream at these addresses, and prove afterwards that it left nothing behind."""
    addresses = [each if isinstance(each, str) else each.address for each in where]
    upstream = Upstream("test", section(*addresses, **keys))
    try:
        yield upstream
    finally:
        upstream.close()
        upstream.abort()
        await asyncio.wait_for(upstream.wait_closed(), 30)
    left = upstream.stats()
    assert (left.idle, left.active, left.connecting, left.waiting) == (0, 0, 0, 0)
    assert all(each.active == 0 == each.idle for each in left.by_address.values())
    await until(lambda: len(asyncio.all_tasks()) == 1)
    await until(lambda: all(each.open == 0 for each in where if isinstance(each, Origin)))
