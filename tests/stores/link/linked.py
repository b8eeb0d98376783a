"""A link in a test: opened, started, asked and stopped."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

from gateway.config.sections import StoreSection
from gateway.stores.link import Link, Script, open_link
from gateway.stores.names import Names
from tests.wire.waiting import until

__all__ = ["ECHO", "INCR", "NAMES", "call", "linked", "run", "up"]

NAMES = Names("evenhand")
#: Charges: the level after, and who asked.
INCR = Script.of("incr", b"return {redis.call('INCR', KEYS[1]), ARGV[1]}")
ECHO = Script.of("echo", b"return ARGV[1]")


@asynccontextmanager
async def linked(url: str, *, wait: bool = True, **section: Any) -> AsyncIterator[Link]:
    """Hand out a started link, up if `wait`."""
    link = open_link(StoreSection.model_validate({"url": url, **section}), NAMES)
    await link.start()
    try:
        if wait:
            await up(link)
        yield link
    finally:
        await link.stop()
        assert link.connections == 0


async def up(link: Link, within: float = 10.0) -> None:
    """Return as soon as the link is up."""
    await until(lambda: link.up, "the link is up", within)


def run(
    link: Link, script: Script, keys: Sequence[bytes], *args: bytes, within: float = 5.0, late: Any = None
) -> asyncio.Future[Any]:
    """Run a script; what it answers."""
    future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
    link.run(script, keys, args, future.set_result, int(within * 1e6), late)
    return future


def call(link: Link, *words: bytes, within: float = 5.0) -> asyncio.Future[Any]:
    """Send a command; what it answers."""
    future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
    link.call(words, future.set_result, int(within * 1e6))
    return future
