"""What identity does beside requests, on a thread and a loop of its own: key sets, introspection, registries.

Rules
1. The data plane's loop never waits for any of it, and none of it runs there: a fetch, an RSA key to parse or a disk
   that is slow would stand between callers and decisions.
2. What is found out here is published by one assignment, or handed over with `call_soon_threadsafe`.
3. A job that fails is told, and begins again a little later: no outage of somebody else's ends the keeping of a key
   set.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Awaitable, Callable, Coroutine, Iterable
from concurrent.futures import Future
from typing import Any, TypeVar

__all__ = ["Background", "Job"]

_LOG = logging.getLogger("evenhand.identity")
_AGAIN_SECONDS = 5.0
_STOP_SECONDS = 5.0

T = TypeVar("T")

#: Runs until it is cancelled.
Job = Callable[[], Awaitable[None]]


class Background(threading.Thread):
    """A thread whose loop runs jobs until `stop`."""

    def __init__(self, name: str = "evenhand-identity") -> None:
        super().__init__(name=name, daemon=True)
        self._up = threading.Event()
        self._over: asyncio.Event
        self._loop: asyncio.AbstractEventLoop
        self._running: list[asyncio.Task[None]] = []

    def start(self) -> None:
        """Begin; the loop runs when this returns."""
        super().start()
        self._up.wait()

    def run(self) -> None:
        """Run the loop. Called by the thread."""
        asyncio.run(self._main())

    def serve(self, jobs: Iterable[Job]) -> None:
        """Run these jobs from now on, and no longer those of before. Waits for neither."""
        self.submit(self._serve(tuple(jobs)))

    def submit(self, work: Coroutine[Any, Any, T]) -> Future[T]:
        """Run `work` there; from any thread."""
        return asyncio.run_coroutine_threadsafe(work, self._loop)

    def stop(self) -> None:
        """End the jobs and the thread."""
        if self.is_alive():
            self._loop.call_soon_threadsafe(self._over.set)
            self.join(_STOP_SECONDS)

    async def _main(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._over = asyncio.Event()
        self._up.set()
        await self._over.wait()
        await self._serve(())

    async def _serve(self, jobs: tuple[Job, ...]) -> None:
        before, self._running = self._running, [self._loop.create_task(_kept(job)) for job in jobs]
        for task in before:
            task.cancel()
        await asyncio.gather(*before, return_exceptions=True)


async def _kept(job: Job) -> None:
    while True:
        try:
            await job()
        except Exception:  # noqa: BLE001 - rule 3
            _LOG.exception("a background job of identity failed, and begins again")
        await asyncio.sleep(_AGAIN_SECONDS)
