"""A store that is a Redis Cluster: a server per slot, found out and followed.

Rules
1. The map of slots comes from any server that answers (CLUSTER SLOTS, which every version has). It is asked for at the
   start, after a MOVED, and over and over while a server of it is down; jittered, one question at a time.
2. MOVED, ASK (with ASKING before the command) and TRYAGAIN say that the command did not run: it goes where they say, at
   most eight times, and no longer than its caller waits.
3. One connection to each primary. A cluster of more primaries than `max_connections` has one each all the same: a slot
   without a connection would be a slot without a store. The log says so once.
4. A part that is down is down alone: names of other slots go on.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Sequence
from functools import partial

from gateway.config.sections import StoreSection
from gateway.stores.link.call import Call
from gateway.stores.link.dial import DIAL_SECONDS, Place, log_in, reach
from gateway.stores.link.faults import UNREACHABLE, ErrorReply, StoreFault, of_exception, of_reply
from gateway.stores.link.link import NO_SERVER, SLOTS, Link, slot_of
from gateway.stores.link.node import Node
from gateway.stores.link.wire import MOST_OUTSTANDING, Wire
from gateway.stores.names import Names

__all__ = ["ClusterLink"]

_LOG = logging.getLogger("evenhand.store")

_WORDS = (b"CLUSTER", b"SLOTS")
#: Seconds between two questions for the map: the shortest, and while a server is down.
SOON = 0.05
AGAIN = 0.5
#: Seconds after which a command is tried again whose names are moving just now.
MOVING = 0.01
#: Seconds that a server which has no slots any more may take for what it was asked.
LAST_ANSWERS = 1.0
#: Servers that redirections may make known between two maps.
MOST_NODES = 1_000


class ClusterLink(Link):
    """A cluster. What it knows of slots is a list of their servers."""

    def __init__(self, section: StoreSection, names: Names) -> None:
        super().__init__(section, names)
        self._at: dict[Place, Node] = {}
        self._slots: list[Node | None] = [None] * SLOTS
        self._asking: asyncio.Task[None] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._found = StoreFault("down", "the store has not been reached yet")
        self._retired: set[Node] = set()
        self._warned = False
        #: Calls made before anything is known; None from then on.
        self._waiting: list[Call] | None = []

    def nodes(self) -> Sequence[Node]:
        """Return every primary known."""
        return tuple(self._at.values())

    async def stop(self) -> None:
        """Close every connection."""
        if self._timer is not None:
            self._timer.cancel()
        if self._asking is not None:
            self._asking.cancel()
            await asyncio.wait([self._asking])
        for node in self._retired:
            node.stop()
            await node.stopped()
        await super().stop()

    def changed(self, node: Node) -> None:
        """Look for who serves the slots of a server that went away."""
        super().changed(node)
        if node.opened:
            self._ask_soon(SOON)

    def redirected(self, node: Node, call: Call, reply: ErrorReply) -> bool:
        """Send a call where the server says; it did not run there."""
        if reply.code == "TRYAGAIN":
            self._later(node, call)
            return True
        if reply.code not in {"MOVED", "ASK"}:
            return False
        target = self._target(node, reply)
        if target is None:
            return False
        if reply.code == "MOVED":
            self._slots[call.slot] = target
            self._ask_soon(SOON)
        if call.hop():
            target.submit(call, asking=reply.code == "ASK")
        else:
            call.settle(of_reply(reply))
        return True

    def _later(self, node: Node, call: Call) -> None:
        if call.hop():
            asyncio.get_running_loop().call_later(MOVING, node.submit, call)
        else:
            call.settle(StoreFault("error", "the store is moving the names of this call"))

    def _target(self, node: Node, reply: ErrorReply) -> Node | None:
        """Return the server that MOVED or ASK names; without a host it is the one that says so, at another port."""
        host, _, port = reply.rpartition(" ")[2].rpartition(":")
        if not port.isdigit() or len(self._at) >= MOST_NODES:
            return None
        asked = next((place.host for place, each in self._at.items() if each is node), "")
        return self._known(Place(host.strip("[]") or asked, int(port)))

    def _known(self, place: Place) -> Node:
        node = self._at.get(place)
        if node is None:
            node = self._at[place] = Node(self, self._terms, partial(_here, place), self.names.key("link", "probe"))
            node.start()
        return node

    def _open(self) -> None:
        self._ask()

    def _node(self, slot: int) -> Node | None:
        return self._slots[slot]

    def _homeless(self, call: Call) -> None:
        if self._waiting is None:
            call.settle(NO_SERVER if self._at else StoreFault("down", f"the store is down: {self._found.text}"))
        elif len(self._waiting) < MOST_OUTSTANDING:
            self._waiting.append(call)
        else:
            call.settle(StoreFault("down", "too many calls wait for the store"))

    def _first_found(self) -> None:
        """Send on, or answer, what was called before the first map had come or failed to come."""
        waiting, self._waiting = self._waiting or [], None
        for call in waiting:
            node = self._slots[call.slot]
            if node is not None:
                node.submit(call)
            else:
                self._homeless(call)

    def _fault(self) -> StoreFault:
        return next((node.fault for node in self._at.values() if node.opened), self._found)

    # The map

    def _ask_soon(self, pause: float) -> None:
        """Ask for the map of slots after about that time, unless that is under way."""
        if self._timer is None and self._asking is None and self._loop is not None:
            self._timer = self._loop.call_later(pause * (0.5 + random.random()), self._ask)  # noqa: S311 - spreads, hides nothing

    def _ask(self) -> None:
        self._timer = None
        self._asking = asyncio.get_running_loop().create_task(self._discover())
        self._asking.add_done_callback(self._discovered)

    def _discovered(self, asking: asyncio.Task[None]) -> None:
        self._asking = None
        self._first_found()
        if not asking.cancelled() and (not self._at or any(node.opened for node in self._at.values())):
            self._ask_soon(AGAIN)

    async def _discover(self) -> None:
        """Ask one server after the other, those we are connected to first."""
        there = [place for place, node in self._at.items() if node.up]
        random.shuffle(there)
        seeds = [Place(*host) for host in self.address.hosts]
        others = [place for place in self._at if place not in there]
        for place in dict.fromkeys(there + seeds + others):
            reply = await self._map_of(place)
            if isinstance(reply, list) and reply:
                self._learn(reply, place.host)
                return
            self._found = of_reply(reply) if isinstance(reply, ErrorReply) else _NO_MAP
            if isinstance(reply, StoreFault):
                self._found = reply
            self._tally.note(self._found)

    async def _map_of(self, place: Place) -> object:
        node = self._at.get(place)
        wire = node.wire if node is not None and node.up else None
        made: Wire | None = None
        try:
            async with asyncio.timeout(DIAL_SECONDS):
                if wire is None:
                    wire = made = await reach(place, self._terms, lambda *_: None)
                    if (fault := await log_in(made, self._terms)) is not None:
                        return fault
                return await wire.request(_WORDS)
        except UNREACHABLE as error:
            return of_exception(error)
        finally:
            if made is not None:
                made.drop(StoreFault("down", "asked"))

    def _learn(self, ranges: Sequence[object], asked: str) -> None:
        """Take a new map over, and leave the servers that are not in it."""
        slots: list[Node | None] = [None] * SLOTS
        used: dict[Node, int] = {}
        for entry in ranges:
            match entry:
                case [int() as first, int() as last, [bytes() | None as host, int() as port, *_], *_]:
                    if host == b"?" or not 0 <= first <= last < SLOTS:
                        continue
                    node = self._known(Place((host or b"").decode("utf-8", "replace") or asked, port))
                    slots[first : last + 1] = [node] * (last + 1 - first)
                    used.setdefault(node, first)
                case _:
                    continue
        if not used:
            self._found = _NO_MAP
            return
        self._slots = slots
        for node, slot in used.items():
            node.probe_with(_name_in(self.names, slots, slot))
        for place, node in list(self._at.items()):
            if node not in used:
                del self._at[place]
                self._retire(node)
        super().changed(next(iter(used)))
        if len(used) > self.most and not self._warned:
            self._warned = True
            _LOG.warning(
                "the cluster has %d primaries, each of which takes a connection: [store] max_connections is %d",
                len(used), self.most,
            )  # fmt: skip

    def _retire(self, node: Node) -> None:
        """Close the connection to a server that serves nothing any more, once it had time for its last answers."""
        self._retired.add(node)

        def gone() -> None:
            node.stop()
            self._retired.discard(node)

        asyncio.get_running_loop().call_later(LAST_ANSWERS, gone)


async def _here(place: Place) -> Place:
    return place


def _name_in(names: Names, slots: Sequence[Node | None], slot: int) -> bytes:
    """Return a name for the probe that the server of `slot` serves; one is found in a few tries."""
    node = slots[slot]
    for number in range(SLOTS):
        name = names.key(f"link{number}", "probe")
        if slots[slot_of(name)] is node:
            return name
    return names.key("link", "probe")


_NO_MAP = StoreFault("error", "the store is no cluster, or has no slots yet")
