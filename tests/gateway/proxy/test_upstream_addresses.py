"""Several addresses are one service: the least busy is next, one that cannot be reached is left alone for a while."""

from __future__ import annotations

import asyncio
import socket
from typing import Any

import pytest

from gateway.config.addresses import UpstreamUrl
from gateway.proxy.addresses import Addresses, Peer, _in_turns
from tests.gateway.proxy.reach import ask, get, on_both_loops, reaching, section, until
from tests.wire.origin import Origin, serving
from tests.wire.script import HANG, Answer


def _addresses(*urls: str) -> Addresses:
    loop = asyncio.new_event_loop()
    loop.close()
    return Addresses(section(*urls).addresses, loop)


@pytest.mark.parametrize(
    ("url", "authority", "prefix", "name"),
    (
        ("http://10.0.0.1", b"10.0.0.1", b"", "10.0.0.1:80"),
        ("https://10.0.0.1:443/", b"10.0.0.1", b"", "10.0.0.1:443"),
        ("http://10.0.0.1:8080/base/x/", b"10.0.0.1:8080", b"/base/x", "10.0.0.1:8080"),
        ("http://[::1]:9000", b"[::1]:9000", b"", "[::1]:9000"),
        ("unix:/run/app.sock", b"localhost", b"", "unix:/run/app.sock"),
    ),
)
def test_what_an_address_says(url: str, authority: bytes, prefix: bytes, name: str) -> None:
    """Host leaves out the scheme's own port; a path is a prefix without its last slash."""
    (peer,) = _addresses(url).peers
    assert (peer.authority, peer.prefix, peer.name) == (authority, prefix, name)


def test_least_busy_is_next_and_ties_take_turns() -> None:
    """By calls outstanding; equal ones in turn."""
    addresses = _addresses("http://10.0.0.1", "http://10.0.0.2", "http://10.0.0.3")
    first, second, third = addresses.peers
    assert {addresses.choose(0.0) for _ in range(6)} == {first, second, third}
    first.load, second.load, third.load = 2, 1, 3
    assert {addresses.choose(0.0) for _ in range(6)} == {second}
    assert {addresses.choose(0.0, [second]) for _ in range(6)} == {first}
    assert addresses.choose(0.0, [first, second, third]) is None


def test_ejection_doubles_and_is_bounded() -> None:
    """1, 2, 4 ... 30 s; a success forgives all."""
    peer = Peer(UpstreamUrl("http://10.0.0.1"), "10.0.0.1", 80)
    times = []
    for _ in range(12):
        peer.failed(100.0)
        times.append(peer.out_until - 100.0)
    assert times[:6] == [1, 2, 4, 8, 16, 30]
    assert set(times[5:]) == {30}
    peer.succeeded()
    assert (peer.out_until, peer.failures) == (0, 0)


def test_all_out_is_as_good_as_none() -> None:
    """The one that comes back first is tried."""
    addresses = _addresses("http://10.0.0.1", "http://10.0.0.2")
    first, second = addresses.peers
    first.failed(0.0)
    assert {addresses.choose(0.5) for _ in range(4)} == {second}
    second.failed(0.2)
    second.load = first.load = 0
    assert {addresses.choose(0.5) for _ in range(4)} == {first}
    assert {addresses.choose(9.0) for _ in range(4)} == {first, second}


@on_both_loops
async def test_calls_go_where_fewest_are_outstanding() -> None:
    """One address hangs, the other answers: all further calls go to the other, and both are used in turn before."""
    with serving() as one, serving() as two:
        one.on("/hang", HANG)
        two.on("/hang", HANG)
        async with reaching(one, two) as upstream:
            for _ in range(10):
                await get(upstream)
            assert len(one.seen) == len(two.seen) == 5
            ask(upstream, target="/hang")
            await until(lambda: b"/hang" in (one.seen[-1].target, two.seen[-1].target))
            busy, free = (one, two) if one.seen[-1].target == b"/hang" else (two, one)
            before = len(free.seen)
            for _ in range(6):
                await get(upstream)
            assert len(free.seen) - before == 6
            assert {each.active for each in upstream.stats().by_address.values()} == {0, 1}
            assert busy.seen[-1].target == b"/hang"


@on_both_loops
async def test_address_that_refuses_is_passed_over() -> None:
    """No call fails while one address can be reached; the other is out, and marked so."""
    with serving() as origin, socket.socket() as holder:
        holder.bind(("127.0.0.1", 0))
        nobody = f"127.0.0.1:{holder.getsockname()[1]}"
        async with reaching(f"http://{nobody}", origin) as upstream:
            for told in [ask(upstream) for _ in range(8)]:
                assert (await told.end()).kind == "done"
            assert upstream.stats().by_address[nobody].out
        async with reaching(f"http://{nobody}") as upstream:
            for _ in range(3):
                assert (await get(upstream)).kind == "refused"


@on_both_loops
async def test_full_pool_borrows_from_another_address() -> None:
    """At max_connections an idle connection to any address serves, rather than a wait for the chosen one."""
    with serving() as one, serving() as two:
        async with reaching(one, two, max_connections=1) as upstream:
            for _ in range(6):
                assert (await get(upstream)).kind == "done"
        assert len(one.connections) + len(two.connections) == 1


class _Names:
    """A resolver that answers as told; `hosts` None is a name that does not exist."""

    def __init__(self, addresses: Addresses, *hosts: str) -> None:
        self.hosts: list[str] | None = list(hosts) or None
        self.asked = 0
        self.delay = 0.0
        addresses._lookup = self  # type: ignore[assignment]  # for the loop's own

    async def __call__(self, host: str, port: int, **_: Any) -> list[tuple[Any, ...]]:
        self.asked += 1
        await asyncio.sleep(self.delay)
        if self.hosts is None:
            raise socket.gaierror(socket.EAI_NONAME, "no such name")
        return [(0, socket.SOCK_STREAM, 6, "", (each, port)) for each in self.hosts]


def _named(origin: Origin) -> str:
    return origin.address.replace("127.0.0.1", "upstream.test")


@on_both_loops
async def test_name_is_resolved_by_the_system() -> None:
    """`localhost` is whatever the hosts file says; of several addresses one that answers is enough."""
    with serving() as origin:
        async with reaching(origin.address.replace("127.0.0.1", "localhost")) as upstream:
            for told in [ask(upstream) for _ in range(4)]:
                assert (await told.end()).kind == "done"
        assert origin.seen[0].header("host") == origin.address.replace("127.0.0.1", "localhost")[7:]


@on_both_loops
async def test_name_that_does_not_resolve() -> None:
    """502 `dns` with nothing sent, as often as it is asked, and well again as soon as it resolves."""
    with serving() as origin:
        async with reaching(_named(origin)) as upstream:
            names = _Names(upstream._pool.addresses)
            for told in [ask(upstream) for _ in range(3)]:
                await told.end()
                assert told.failure is not None
                assert (told.kind, told.failure.status, told.sent) == ("dns", 502, 0)
            names.hosts = ["127.0.0.1"]
            assert (await get(upstream)).kind == "done"


@on_both_loops
async def test_resolver_that_hangs_is_a_connect_timeout() -> None:
    """504, and one question however many calls wait for its answer."""
    async with reaching("http://upstream.test", connect_timeout="100ms") as upstream:
        names = _Names(upstream._pool.addresses)
        names.delay = 60.0
        for told in [ask(upstream) for _ in range(5)]:
            assert (await told.end()).kind == "connect_timeout"
        assert names.asked == 1


@on_both_loops
async def test_name_is_resolved_again_when_connections_fail_and_in_time() -> None:
    """The new address is found without a restart; an answer that fails to come leaves the old one in force."""
    with serving() as origin:
        async with reaching(_named(origin)) as upstream:
            addresses = upstream._pool.addresses
            names = _Names(addresses, "127.0.0.9")
            assert (await get(upstream)).kind == "refused"
            names.hosts = ["127.0.0.1"]
            for name in addresses._names:
                name.asked_at -= 1.5  # seconds, and not 30
            await until(lambda: names.asked >= 1)
            assert (await get(upstream)).kind == "refused"
            await until(lambda: [peer.host for peer in addresses.peers] == ["127.0.0.1"])
            assert (await get(upstream)).kind == "done"
            asked = names.asked
            for _ in range(5):
                await get(upstream)
            assert names.asked == asked
            names.hosts = None
            for name in addresses._names:
                name.asked_at -= 31.0
            assert (await get(upstream)).kind == "done"
            await until(lambda: names.asked == asked + 1)
            await asyncio.sleep(0)
            assert (await get(upstream)).kind == "done"


@on_both_loops
async def test_peer_that_left_the_name_is_retired() -> None:
    """Its idle connections close; the one in use serves its call to the end and closes then."""
    with serving() as origin:
        origin.on("/slow", Answer(delay=0.1))
        async with reaching(_named(origin)) as upstream:
            addresses = upstream._pool.addresses
            names = _Names(addresses, "127.0.0.1")
            slow, quick = ask(upstream, target="/slow"), ask(upstream)
            await quick.end()
            assert upstream.stats().idle == 1
            names.hosts = ["127.0.0.9"]
            addresses.refresh(asyncio.get_running_loop().time() + 31.0)
            await until(lambda: upstream.stats().idle == 0)
            assert (await slow.end()).kind == "done"
            await until(lambda: origin.open == 0)


def test_families_take_turns() -> None:
    """The resolver's order, but no family has to fail as a whole first (RFC 8305 section 4)."""
    hosts = ["::1", "::2", "::3", "10.0.0.1", "10.0.0.1", "10.0.0.2"]
    found = [(0, 0, 0, "", (host, 80)) for host in hosts]
    assert _in_turns(found) == ["::1", "10.0.0.1", "::2", "10.0.0.2", "::3"]
