"""What is measured: loads, and who serves each of them in which cell.

Rules
1. What is compared stands in one cell. Minutes later the machine is another one, so a ratio is only of samples of the
   same round, and a cell that varies the load has both loads of every contestant (`side`).
2. Sides are sent by the same client in the same way: where tenants vary, one credential comes from a file as 10,000 do.
3. Who cannot serve a cell is named in it, with the reason.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product

__all__ = ["CELLS", "ENVOY", "MANY", "MATRIX", "NGINX", "OURS", "Cell", "Entry", "Load", "limits", "place"]

OURS, NGINX, ENVOY = "evenhand", "nginx", "envoy"
PURE = "evenhand, pure Python"
ALIKE = "envoy, same work"
ASGI, ASGI_AIOHTTP = "evenhand as ASGI app", "evenhand as ASGI app, aiohttp"
PURE_ASGI, PURE_ASGI_AIOHTTP = "evenhand as ASGI app, pure Python", "evenhand as ASGI app, pure Python, aiohttp"
LIMITERS = (OURS, NGINX, "haproxy", ENVOY)
ALL = (*LIMITERS, "caddy")

#: How many are many tenants.
MANY = 10_000
#: Who serves many tenants where that takes a configuration of its own: the others limit whatever credential comes.
_MANY_OF = {OURS: "evenhand, 10,000 tenants", ENVOY: "envoy, 10,000 keys"}

#: What the origin answers, by its length.
_PATHS = {"100 B": "/v1/things/42", "10 kB": "/v1/10k", "1 MB": "/v1/1m"}


@dataclass(frozen=True, slots=True)
class Load:
    """What is sent and comes back. `tenants` credentials take turns from a file; with 0 it is one, in a fixed field."""

    body: str = "100 B"
    connections: int = 64
    keep_alive: bool = True
    tenants: int = 0
    refused: bool = False

    @property
    def path(self) -> str:
        """What is asked for."""
        return "/refused/1" if self.refused else _PATHS[self.body]

    @property
    def octets(self) -> int:
        """The length of a body so large that parts of it count: what is under way at the end is much of all."""
        return 1_000_000 if self.body == "1 MB" and not self.refused else 0

    @property
    def stretch(self) -> int:
        """How many times as long a sample takes as others: a megabyte on each of 1,000 connections is half a second."""
        return 3 if self.octets and self.connections >= 1000 else 1


@dataclass(frozen=True, slots=True)
class Entry:
    """One line of a cell: `name` is what it is called there, `contestant` what runs, `side` which of two loads."""

    name: str
    contestant: str
    load: Load
    side: str = ""


@dataclass(frozen=True, slots=True)
class Cell:
    """Entries that are measured side by side. `absent` are names with reasons; the quick mode has `quick` cells."""

    name: str
    entries: tuple[Entry, ...]
    quick: bool = False
    absent: tuple[tuple[str, str], ...] = ()


def place(name: str, tenants: int) -> str:
    """Return the contestant that serves so many tenants as `name`."""
    return _MANY_OF.get(name, name) if tenants > 1 else name


def limits(name: str) -> bool:
    """Return whether a contestant of the matrix has a limiter, so can refuse."""
    return name in LIMITERS


def _each(load: Load, *names: str) -> tuple[Entry, ...]:
    return tuple(Entry(name, name, load) for name in names)


def _tenants(*names: str) -> tuple[Entry, ...]:
    """Return each with one tenant and with many; Envoy has all its keys on both sides, as nginx has its table."""
    return tuple(
        Entry(name, name if name == OURS and tenants == 1 else place(name, MANY), Load(tenants=tenants), side)
        for name in names
        for tenants, side in ((1, "one tenant"), (MANY, "10,000 tenants"))
    )


def _connections(*names: str) -> tuple[Entry, ...]:
    return tuple(
        Entry(name, name, Load(connections=connections), f"{connections:,} connections")
        for name in names
        for connections in (64, 1000)
    )


_SMALL = (*ALL, "envoy, 100 keys", ALIKE, "uvicorn + httpx", ASGI, ASGI_AIOHTTP, PURE, PURE_ASGI, PURE_ASGI_AIOHTTP)
CELLS = (
    Cell("100 B, 64 connections", _each(Load(), *_SMALL), quick=True),
    Cell("refused, 64 connections", _each(Load(refused=True), *LIMITERS, ALIKE, PURE), quick=True),
    Cell("1 MB, 64 connections", _each(Load("1 MB"), *LIMITERS), quick=True),
    Cell("10 kB, 64 connections", _each(Load("10 kB"), *ALL)),
    Cell("100 B, 1 connection", _each(Load(connections=1), *ALL)),
    Cell("100 B, 64 connections and 1,000", _connections(*ALL), quick=True),
    Cell("100 B, 64 connections, one tenant and 10,000", _tenants(*LIMITERS), quick=True),
    Cell("100 B, 64 connections, a new one for each request", _each(Load(keep_alive=False), *ALL)),
)


def _named(load: Load) -> str:
    tenants = "1 tenant" if load.tenants == 1 else f"{load.tenants:,} tenants"
    return f"{load.body}, {_many(load)}, {'kept' if load.keep_alive else 'a new one for each request'}, {tenants}"


def _many(load: Load) -> str:
    return "1 connection" if load.connections == 1 else f"{load.connections:,} connections"


def _matrix() -> tuple[Cell, ...]:
    loads = [
        Load(body, connections, keep_alive, tenants)
        for body, keep_alive, tenants, connections in product(_PATHS, (True, False), (1, MANY), (1, 64, 1000))
    ]
    proxied = [
        Cell(_named(load), tuple(Entry(name, place(name, load.tenants), load) for name in ALL)) for load in loads
    ]
    without = tuple((name, "has no limiter of its own") for name in ALL if not limits(name))
    refused = [Load(connections=connections, refused=True) for connections in (1, 64, 1000)]
    return (
        *proxied,
        *(Cell(f"refused, {_many(load)}", _each(load, *LIMITERS), absent=without) for load in refused),
    )


#: Every body on every number of connections, kept and not, of one tenant and of many; then refusals.
MATRIX = _matrix()
