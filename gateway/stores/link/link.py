"""The link to a shared store: scripts and commands out, answers in, by callbacks.

Rules
1. Everything is called on the data plane's loop. Nothing waits: an answer comes by callback, exactly once, at once
   where the store is known to be down, and `within_us` after the call at the latest.
2. What charges is never sent twice (`call.py`).
3. The link comes up by itself, however long the store was away, and starting never waits for it.
4. No secret is in a repr, a fault or a log.
"""

from __future__ import annotations

import asyncio
import ssl
from binascii import crc_hqx
from collections.abc import Callable, Sequence

from gateway.config.sections import StoreSection
from gateway.config.store_url import StoreAddress, read_store_url
from gateway.stores.link.call import Answer, Call
from gateway.stores.link.dial import Terms
from gateway.stores.link.faults import StoreFault
from gateway.stores.link.lookup import Lookup
from gateway.stores.link.node import Node, Owner
from gateway.stores.link.script import Script
from gateway.stores.link.tally import Tally
from gateway.stores.link.wire import once_read
from gateway.stores.names import Names
from policies.units import SECOND, Micros

__all__ = ["NO_SERVER", "SLOTS", "Link", "slot_of", "tls_context"]

#: Slots of a Redis Cluster.
SLOTS = 16_384

NO_SERVER = StoreFault("clusterdown", "the store has no server for this name")


class Link(Owner):
    """A link; `open_link` makes the one that fits the address. How servers are found is left to what inherits from it.

    `cause` is the kind of the last fault while not `up`, else "". `errors` counts faults by kind, `commands` what was
    sent. `watchers` are called with `up` whenever that changes.
    """

    def __init__(self, section: StoreSection, names: Names) -> None:
        self.address: StoreAddress = read_store_url(section.url)
        self.names = names
        self.most = section.max_connections
        self.watchers: list[Callable[[bool], None]] = []
        self._tally = Tally()
        self._up = False
        self._loop: asyncio.AbstractEventLoop | None = None
        self._terms = Terms(
            self._tally,
            Lookup(),
            section.deadline / SECOND,
            self.address.user,
            self.address.password,
            self.address.database,
            tls_context(section) if self.address.tls else None,
        )

    @property
    def up(self) -> bool:
        """True if the store answers, as far as is known; of a cluster, any part of it."""
        return self._up

    @property
    def cause(self) -> str:
        """Why not."""
        return "" if self._up else self._fault().kind

    @property
    def errors(self) -> dict[str, int]:
        """Faults met so far, by kind."""
        return self._tally.errors

    @property
    def commands(self) -> int:
        """Commands sent so far, logins and probes included."""
        return self._tally.commands

    @property
    def connections(self) -> int:
        """Sockets held now."""
        return sum(node.connections for node in self.nodes())

    def run(
        self,
        script: Script,
        keys: Sequence[bytes],
        args: Sequence[bytes],
        answer: Answer,
        within_us: Micros,
        late: Answer | None = None,
    ) -> None:
        """Run a script; its names share one hash tag.

        `answer` takes the reply (int, bytes, None, a list of these) or a `StoreFault`. A reply that comes after
        `within_us` goes to `late`: it may hold what has been charged.
        """
        words = (b"%d" % len(keys), *keys, *args)
        self._begin(Call(words, script, answer, late, slot_of(keys[0]) if keys else 0), within_us)

    def call(self, words: Sequence[bytes], answer: Answer, within_us: Micros) -> None:
        """Send a command that charges nothing; its second word is the name it is about."""
        self._begin(Call(words, None, answer, None, slot_of(words[1]) if len(words) > 1 else 0), within_us)

    async def start(self) -> None:
        """Begin to connect; never waits for the store."""
        self._loop = asyncio.get_running_loop()
        self._open()

    async def stop(self) -> None:
        """Close every connection; calls under way are answered with `down`."""
        nodes = list(self.nodes())
        for node in nodes:
            node.stop()
        for node in nodes:
            await node.stopped()
        self._terms.lookup.close()
        self._loop = None
        self._up = False

    def changed(self, node: Node) -> None:
        """Tell the watchers if that changes whether the link is up."""
        up = any(each.up for each in self.nodes())
        if up != self._up:
            self._up = up
            for watcher in self.watchers:
                watcher(up)

    # What a kind of store brings with it

    def nodes(self) -> Sequence[Node]:
        """Return the servers that are talked to."""
        raise NotImplementedError

    def _open(self) -> None:
        """Begin to connect."""
        raise NotImplementedError

    def _node(self, slot: int) -> Node | None:
        """Return the server of a slot, None if none is known."""
        raise NotImplementedError

    def _homeless(self, call: Call) -> None:
        """Answer a call whose server is not known, or keep it for a moment."""
        call.settle(NO_SERVER)

    def _fault(self) -> StoreFault:
        """Return why the link is not up."""
        return next((node.fault for node in self.nodes()), _DOWN)

    # Calls

    def _begin(self, call: Call, within_us: Micros) -> None:
        if self._loop is None:
            call.settle(_DOWN)
            return
        node = self._node(call.slot)
        if node is not None:
            node.submit(call)
        else:
            self._homeless(call)
        if not call.done:
            call.limit(self._loop.call_later(within_us / SECOND, once_read, self._loop, self._give_up, call))

    def _give_up(self, call: Call) -> None:
        if call.done:
            return
        fault = StoreFault("timeout", "the store did not answer in time")
        self._tally.note(fault)
        node = self._node(call.slot)
        if node is not None:
            node.timed_out()
        call.settle(fault)


_DOWN = StoreFault("down", "the link to the store is closed")


def slot_of(name: bytes) -> int:
    """Return the slot of a name: CRC16 of what stands between its first braces, if anything does.

    https://redis.io/docs/latest/operate/oss_and_stack/reference/cluster-spec/#hash-tags
    """
    start = name.find(b"{")
    if start >= 0:
        end = name.find(b"}", start + 1)
        if end > start + 1:
            name = name[start + 1 : end]
    return crc_hqx(name, 0) % SLOTS


def tls_context(section: StoreSection) -> ssl.SSLContext:
    """Return what verifies a server's certificate and its name, TLS 1.2 or newer; with `ca_file`, by that alone."""
    context = ssl.create_default_context(cafile=section.ca_file or None)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    return context
