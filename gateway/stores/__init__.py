"""Stores: where buckets and seats are kept (`open_store`), and history and registries (`place_of`)."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from gateway.stores.memory import Backstop, MemoryStore
from policies.policy import PolicySet
from policies.units import Micros

if TYPE_CHECKING:
    # The simulator and the bench use a store without any configuration file, so without its parser.
    from gateway.config import Settings
    from gateway.config.sections import StoreSection
    from gateway.stores.calls import Calls
    from gateway.stores.process import SharedStore

__all__ = ["open_store", "place_of"]


def open_store(
    settings: Settings, policies: PolicySet, now: Callable[[], Micros], backstop: Backstop | None = None
) -> MemoryStore | SharedStore:
    """Return the store of `settings`, a shared one to be started and stopped; `backstop` replaces the fair shares."""
    if settings.store.url == "memory:":
        return MemoryStore(policies, settings.store.max_keys, now(), backstop)
    from gateway.stores.process import SharedStore  # noqa: PLC0415 - with the parser of configuration files

    store = SharedStore(settings.store, policies, now, backstop)
    store.expect(settings.server.workers)
    return store


def place_of(section: StoreSection) -> Path | Calls:
    """Return where what outlives a process is kept: the file of a store in memory, or the shared store itself."""
    if section.url == "memory:":
        return section.path
    from gateway.stores.calls import Calls  # noqa: PLC0415 - with the library, which few need

    return Calls(section)
