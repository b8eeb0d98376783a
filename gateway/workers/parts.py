"""What of a configuration is one worker's: what must not multiply with the number of workers is divided among them.

Divided are the connections to an upstream and the requests in flight there, because they protect the upstream. What
guards a process against one address or one tenant (`max_connections_per_address`, `[websocket] max_per_tenant`) is each
worker's own: connections do not come evenly, and a part of the number would turn away who is within it.
"""

from __future__ import annotations

from dataclasses import replace

from gateway.config import Loaded, Settings
from gateway.config.sections import UpstreamSection

__all__ = ["part_of", "parted"]


def part_of(total: int, number: int, count: int) -> int:
    """Return how much of `total` worker `number` of `count` has; all parts are `total` together, but none is 0."""
    return max(1, total // count + (number < total % count))


def parted(loaded: Loaded, number: int, count: int) -> Loaded:
    """Return the configuration of worker `number` of `count`."""
    settings = loaded.settings
    changed = {
        "upstream": _upstream(settings.upstream, number, count),
        "upstreams": {name: _upstream(section, number, count) for name, section in settings.upstreams.items()},
    }
    made: Settings = settings.model_copy(update=changed)
    return replace(loaded, settings=made)


def _upstream(section: UpstreamSection, number: int, count: int) -> UpstreamSection:
    changed = {"max_connections": part_of(section.max_connections, number, count)}
    if section.concurrency:
        changed["concurrency"] = part_of(section.concurrency, number, count)
    return section.model_copy(update=changed)
