"""Names of hosts to addresses, in the system's resolver, which may hang: each name is asked for once at a time.

An attempt to connect gives up after a second, the resolver's thread does not. Were every attempt to ask anew, the
threads that hang would take up the pool that others need.
"""

from __future__ import annotations

import asyncio
import ipaddress
import socket

__all__ = ["Lookup"]


class Lookup:
    """Asks the resolver; made and used on one loop."""

    __slots__ = ("_asked",)

    def __init__(self) -> None:
        self._asked: dict[tuple[str, int], asyncio.Task[list[str]]] = {}

    async def addresses(self, host: str, port: int) -> list[str]:
        """Return the addresses of `host`, in the resolver's order; OSError or UnicodeError if there are none."""
        if _is_literal(host):
            return [host]
        task = self._asked.get((host, port))
        if task is None:
            task = self._asked[host, port] = asyncio.get_running_loop().create_task(_resolve(host, port))
            task.add_done_callback(lambda _: self._asked.pop((host, port)))
        return await asyncio.shield(task)

    def close(self) -> None:
        """Wait for nobody any more."""
        for task in self._asked.values():
            task.cancel()


async def _resolve(host: str, port: int) -> list[str]:
    found = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return list(dict.fromkeys(str(entry[4][0]) for entry in found))


def _is_literal(host: str) -> bool:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True
