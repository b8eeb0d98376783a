"""Stores: where buckets and seats are kept. `open_store` opens the configured one."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gateway.stores.guard import GuardedStore
from gateway.stores.memory import Backstop, MemoryStore
from policies.policy import PolicySet
from policies.units import Micros

if TYPE_CHECKING:
    # The simulator and the bench use a store without any configuration file, so without its parser.
    from gateway.config import Settings

__all__ = ["open_store"]


def open_store(
    settings: Settings, policies: PolicySet, now: Micros, backstop: Backstop | None = None
) -> MemoryStore | GuardedStore:
    """Return the store of `settings`; `backstop` replaces the fair shares."""
    return MemoryStore(policies, settings.store.max_keys, now, backstop)
