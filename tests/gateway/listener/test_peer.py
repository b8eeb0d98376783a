"""Whose a connection is: whom accept named, however soon the caller was gone, and `unix` on unix sockets only."""

from __future__ import annotations

import asyncio
import socket
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import pytest
from uvicorn.server import ServerState

from gateway.listener.accepting import Accepting
from gateway.listener.plain import Plain
from gateway.listener.server import configured
from gateway.listener.sockets import bind, pending
from gateway.listener.tls import Certificate
from gateway.proxy.peer import peer_of
from tests.gateway.proxy.certificates import Authority
from tests.gateway.proxy.house import A
from tests.gateway.proxy.reach import on_both_loops, until
from tests.gateway.proxy.wired import Wired, connections, wired
from tests.wire.caller import call, request
from tests.wire.origin import Origin, serving

__all__: list[str] = []

GOOD = request(target="/good", token=A.token)
FORGED = request(
    method="POST", target="/forged", token=A.token, fields=[("X-Forwarded-For", "203.0.113.9")], body=b"hi"
)
BELIEVING = 'trusted_proxies = ["unix"]'
MANY = 20


@pytest.fixture
def origin() -> Iterator[Origin]:
    """Run the scripted upstream."""
    with serving() as up:
        yield up


def gone(address: str, count: int = MANY) -> None:
    """Connect, ask and reset, all while the loop of the test stands."""
    host, _, port = address.rpartition(":")
    for _ in range(count):
        with socket.create_connection((host, int(port))) as one:
            one.sendall(FORGED)
            one.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))


def entering(gateway: Wired) -> list[str]:
    """Return a list of the peers that will be counted in."""
    peers: list[str] = []
    name = gateway.front.parser.name

    def noted(peer: str) -> str:
        peers.append(peer)
        return name(peer)

    gateway.door.post.crowd._name = noted
    return peers


@on_both_loops
async def test_whoever_was_reset_before_it_was_accepted_is_no_unix_peer(tmp_path: Path, origin: Origin) -> None:
    """Each is its address's, and believed nothing about others."""
    async with wired(tmp_path, origin, server=BELIEVING, quota="1000/s burst 1000") as gateway:
        peers = entering(gateway)
        gone(gateway.address)
        await until(lambda: len(peers) == MANY)
        await until(lambda: not connections(gateway))
        assert set(peers) == {"127.0.0.1"}
        assert {one.facts.address for one in gateway.books.settled} <= {"127.0.0.1"}
        assert gateway.door.post.connections == {}
        assert (await call(gateway.address, GOOD)).status == 200
        assert peers[-1] == "127.0.0.1"


async def test_what_the_loop_says_of_nobody_is_not_served(tmp_path: Path, origin: Origin) -> None:
    """Where accept's word is not to be had, as with a connection that uvloop has accepted."""
    async with wired(tmp_path, origin, server=BELIEVING) as gateway:
        peers = entering(gateway)
        ours, theirs = socket.socketpair()
        with ours, socket.create_server(("127.0.0.1", 0)) as listener:
            gone(f"127.0.0.1:{listener.getsockname()[1]}", 1)
            theirs.close()
            accepted, _ = listener.accept()
            accepted.setblocking(False)
            await asyncio.get_running_loop().connect_accepted_socket(gateway.server._make(), accepted)
        await until(lambda: not connections(gateway))
        assert gateway.rejections == [(0, "unknown-peer")]
        assert [one.facts.address for one in gateway.books.settled] == ["unknown"]
        assert (peers, origin.seen) == ([], [])


@on_both_loops
async def test_handshakes_are_their_addresses(tmp_path: Path, origin: Origin) -> None:
    """Under TLS every place is taken for whom accept named."""
    path = Authority(tmp_path).issue("localhost")
    async with wired(tmp_path, origin, certificate=Certificate(path, path), server=BELIEVING) as gateway:
        peers = entering(gateway)
        gone(gateway.address)
        await until(lambda: len(peers) == MANY)
        assert set(peers) == {"127.0.0.1"}
        await until(lambda: not gateway.server.held)


@on_both_loops
async def test_whoever_waits_at_the_end_is_its_address(tmp_path: Path, origin: Origin) -> None:
    """A drain takes what the kernel has accepted, and knows whose it is."""
    async with wired(tmp_path, origin, server=BELIEVING) as gateway:
        peers = entering(gateway)
        listener = bind("127.0.0.1:0")
        gone(f"127.0.0.1:{listener.getsockname()[1]}")
        door = Accepting(listener, gateway.server._make())
        door.close()  # so that the loop takes none before
        own, gateway.server._doors = gateway.server._doors, [door]
        await gateway.server._stop_accepting([listener])
        gateway.server._doors = own
        assert peers == ["127.0.0.1"] * MANY
        await until(lambda: not connections(gateway))


@on_both_loops
async def test_the_admin_listener_knows_who_asks(tmp_path: Path) -> None:
    """Or does not serve it: a request without a client would be the act of a unix peer."""
    clients: list[object] = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        clients.append(scope["client"] and scope["client"][0])
        await send({"type": "http.response.start", "status": 204, "headers": []})
        await send({"type": "http.response.body"})

    config = configured(app, Plain)
    config.load()
    state, listener = ServerState(), bind("127.0.0.1:0")
    door = Accepting(listener, lambda: Plain(config, state, {}))
    with listener:
        address = f"127.0.0.1:{listener.getsockname()[1]}"
        gone(address)
        assert (await call(address, GOOD)).status == 204
        await until(lambda: "127.0.0.1" in clients)
        assert set(clients) == {"127.0.0.1"}
        door.close()
        for connection in list(state.connections):
            connection.transport.abort()


@pytest.mark.parametrize(("where", "peer"), [("127.0.0.1:0", "127.0.0.1"), ("[::1]:0", "::1"), ("unix:{}/s", "unix")])
def test_accept_names_whoever_waits(tmp_path: Path, where: str, peer: str) -> None:
    """Whether or not it is still there."""
    with bind(where.format(tmp_path)) as listener:
        for _ in range(2):
            with socket.socket(listener.family) as one:
                one.connect(listener.getsockname())
                if listener.family != socket.AF_UNIX:
                    one.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        found = list(pending(listener))
        for connection, _ in found:
            connection.close()
        assert [name for _, name in found] == [peer, peer]


class Accepted:
    """A transport of a socket of `family`: what the socket says of its other end, and what the loop does."""

    def __init__(self, family: socket.AddressFamily, own: object, kept: object) -> None:
        self.family = family
        self._own = own
        self._kept = kept

    def getpeername(self) -> object:
        if self._own is None:
            raise OSError
        return self._own

    def get_extra_info(self, name: str) -> object:
        return self if name == "socket" else self._kept


@pytest.mark.parametrize(
    ("family", "own", "kept", "peer"),
    [
        (socket.AF_INET, ("192.0.2.1", 1), None, "192.0.2.1"),
        (socket.AF_INET6, ("2001:db8::1", 1, 0, 0), None, "2001:db8::1"),
        (socket.AF_INET, None, ("192.0.2.1", 1), "192.0.2.1"),
        (socket.AF_INET, None, None, ""),
        (socket.AF_INET6, None, None, ""),
        (socket.AF_INET, "", "", ""),
        (socket.AF_UNIX, "", None, "unix"),
        (socket.AF_UNIX, None, None, "unix"),
    ],
)
def test_what_a_socket_says_of_its_peer(family: socket.AddressFamily, own: object, kept: object, peer: str) -> None:
    """Only the family of a socket makes its peer `unix`, and not that nothing else is known."""
    assert peer_of(cast("asyncio.BaseTransport", Accepted(family, own, kept))) == peer
