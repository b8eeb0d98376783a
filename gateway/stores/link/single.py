"""A store that is one server: always the same, or whichever the Sentinels name as primary of a service.

Rules
1. Where the server is, is found anew for every connection. Of Sentinels the one that answered last is asked first.
2. What Sentinels say is believed once the server takes a write (`dial.py`): for a while after a failover some of them
   still name the old primary.
3. While all is well they are asked every few seconds whether it still is: a primary that was replaced because it was
   cut off from them may go on answering us, and nobody else.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Sequence
from dataclasses import replace

from gateway.config.sections import StoreSection
from gateway.stores.link.dial import NotFoundError, Place, log_in, reach
from gateway.stores.link.faults import UNREACHABLE, ErrorReply, StoreFault, of_exception, of_reply
from gateway.stores.link.link import Link
from gateway.stores.link.node import Node
from gateway.stores.link.wire import Wire
from gateway.stores.names import Names

__all__ = ["SentinelLink", "SingleLink"]

#: Seconds that one of several Sentinels may take, and between two questions while all is well.
PATIENCE = 0.3
CHECK = 5.0


class SingleLink(Link):
    """One server, at one address."""

    def __init__(self, section: StoreSection, names: Names) -> None:
        super().__init__(section, names)
        self._nodes: tuple[Node, ...] = ()

    def nodes(self) -> Sequence[Node]:
        """Return the one, once started."""
        return self._nodes

    def _open(self) -> None:
        self._nodes = (Node(self, self._terms, self._find, self.names.key("link", "probe")),)
        self._nodes[0].start()

    def _node(self, slot: int) -> Node | None:
        return self._nodes[0]

    async def _find(self) -> Place:
        address = self.address
        return Place("", 0, address.unix) if address.unix else Place(*address.hosts[0])


class SentinelLink(SingleLink):
    """One server, wherever the Sentinels say that the primary is."""

    def __init__(self, section: StoreSection, names: Names) -> None:
        super().__init__(section, names)
        address = self.address
        self._sentinels = deque(Place(*host) for host in address.hosts)
        self._asking = replace(self._terms, user=address.sentinel_user, password=address.sentinel_password, database=0)
        self._at: Place | None = None
        self._checking: asyncio.Task[None] | None = None

    async def stop(self) -> None:
        """Close every connection."""
        if self._checking is not None:
            self._checking.cancel()
            await asyncio.wait([self._checking])
        await super().stop()

    def _open(self) -> None:
        super()._open()
        self._checking = asyncio.get_running_loop().create_task(self._check())

    async def _find(self) -> Place:
        self._at = await self._primary()
        return self._at

    async def _primary(self) -> Place:
        """Ask one Sentinel after the other; NotFoundError if none of them knows."""
        fault = StoreFault("refused", "no Sentinel is there")
        for _ in range(len(self._sentinels)):
            found = await self._ask(self._sentinels[0])
            if isinstance(found, Place):
                return found
            fault = found
            self._sentinels.rotate(-1)
        raise NotFoundError(fault)

    async def _ask(self, sentinel: Place) -> Place | StoreFault:
        wire: Wire | None = None
        try:
            async with asyncio.timeout(PATIENCE):
                wire = await reach(sentinel, self._asking, lambda *_: None)
                if (fault := await log_in(wire, self._asking)) is not None:
                    return fault
                words = (b"SENTINEL", b"GET-MASTER-ADDR-BY-NAME", self.address.service.encode())
                return _place(await wire.request(words))
        except UNREACHABLE as error:
            return of_exception(error)
        finally:
            if wire is not None:
                wire.drop(StoreFault("down", "asked"))

    async def _check(self) -> None:
        """Leave a primary that the Sentinels have replaced."""
        node = self._nodes[0]
        while True:
            await asyncio.sleep(CHECK)
            wire = node.wire
            if wire is None:
                continue
            try:
                primary = await self._primary()
            except NotFoundError:
                continue  # it answers, whatever has become of those who watch it
            if primary != self._at and wire is node.wire:
                wire.drop(StoreFault("readonly", "the Sentinels name another primary"))


def _place(reply: object) -> Place | StoreFault:
    """Return the place in a Sentinel's reply."""
    match reply:
        case StoreFault():
            return reply
        case ErrorReply():
            return of_reply(reply)
        case [bytes() as host, bytes() as port] if port.isdigit():
            return Place(host.decode("utf-8", "replace"), int(port))
        case _:
            return StoreFault("error", "the Sentinels know no such service")
