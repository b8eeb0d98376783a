"""The link to a shared store (Redis or Valkey): our own pipelined connections, called with callbacks.

What it is made of, from the wire up: `resp` parses, `wire` is a connection, `dial` makes one, `circuit` says when to
stop asking, `node` is a server, `call` a call, `single` and `cluster` know where servers are. `sync` is for threads.
"""

from __future__ import annotations

from gateway.config.sections import StoreSection
from gateway.config.store_url import read_store_url
from gateway.stores.link.call import Answer
from gateway.stores.link.cluster import ClusterLink
from gateway.stores.link.faults import KINDS, StoreFault
from gateway.stores.link.link import Link
from gateway.stores.link.script import Script, load_script
from gateway.stores.link.single import SentinelLink, SingleLink
from gateway.stores.names import Names

__all__ = ["KINDS", "Answer", "Link", "Script", "StoreFault", "load_script", "open_link"]

_LINKS: dict[str, type[SingleLink | ClusterLink]] = {
    "single": SingleLink, "sentinel": SentinelLink, "cluster": ClusterLink,
}  # fmt: skip


def open_link(section: StoreSection, names: Names) -> Link:
    """Return the link to the store of that section, whose `url` is a Redis; nothing is connected to before `start`."""
    return _LINKS[read_store_url(section.url).kind](section, names)
