"""Identity of one process: the resolver in force, and what keeps it true while requests pass.

    Identity --start--> key sets tried once --(refresh, ask, poll, each minute)...--> stop

Rules
1. `start`, `follow` and `stop` are called on the data plane's loop; everything between runs on a thread of its own.
2. A start waits for the first fetch of every key set, so that the first callers are not refused for being early, but no
   longer than `FIRST_SECONDS`: an issuer that is down keeps nobody else out.
3. A reload builds its resolver first (`renewed`, which can fail) and then goes over to it (`follow`, which cannot). Key
   sets that stay the same keep what was fetched; jobs stay registered.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from gateway.clock import Clock
from gateway.config import Settings
from gateway.identity.background import Background, Job
from gateway.identity.jobs import JobRegistry
from gateway.identity.keyset import KeySet
from gateway.identity.resolver import CredentialResolver, build_resolver

if TYPE_CHECKING:
    from gateway.stores.calls import Calls

__all__ = ["FIRST_SECONDS", "Identity"]

FIRST_SECONDS = 5.0
_MINUTE_SECONDS = 60.0


class Identity:
    """Everything about who is calling. Raises ConfigError for a secret or key file that cannot be used."""

    def __init__(self, settings: Settings, clock: Clock, place: Path | Calls | None = None) -> None:
        self._clock = clock
        self._background = Background()
        self.jobs = JobRegistry(place or settings.store.path, clock)
        self.resolver = build_resolver(settings, clock, self.jobs)
        #: Called at the start and then every minute, on the thread of this.
        self.minutely: list[Callable[[], None]] = []

    async def start(self) -> None:
        """Begin to keep everything fresh."""
        await asyncio.to_thread(self.jobs.start)
        self._background.start()
        self.follow(self.resolver)
        tried = self._background.submit(_tried(self.resolver.keyring.key_sets))
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(FIRST_SECONDS):
                await asyncio.wrap_future(tried)

    def renewed(self, settings: Settings) -> CredentialResolver:
        """Return the resolver of another configuration, to be followed. Raises ConfigError."""
        made = build_resolver(settings, self._clock, self.jobs)
        made.keyring.adopt(self.resolver.keyring)
        return made

    def follow(self, resolver: CredentialResolver) -> None:
        """Keep `resolver` fresh from now on."""
        self.resolver = resolver
        jobs: list[Job] = [key_set.run for key_set in resolver.keyring.key_sets]
        if resolver.introspection is not None:
            resolver.introspection.bind(self._background, asyncio.get_running_loop())
            jobs.append(resolver.introspection.run)
        self._background.serve([*jobs, self._each_minute])

    def stop(self) -> None:
        """End what runs beside requests."""
        self._background.stop()
        self.jobs.stop()

    def ages_seconds(self) -> dict[str, float]:
        """Return the age of each issuer's key set; from any thread."""
        return self.resolver.keyring.ages_seconds()

    def warnings(self) -> Iterator[str]:
        """Yield what an operator should know of now; from any thread."""
        resolver = self.resolver
        asked = [] if resolver.introspection is None else [resolver.introspection.warning()]
        kept = (key_set.warning() for key_set in resolver.keyring.key_sets)
        yield from (told for told in (*kept, *asked, self.jobs.warning()) if told)

    async def _each_minute(self) -> None:
        while True:
            for act in self.minutely:
                act()
            await asyncio.sleep(_MINUTE_SECONDS)


async def _tried(key_sets: Iterable[KeySet]) -> None:
    for key_set in key_sets:
        await key_set.tried.wait()
