"""The link to a cluster: names go where their slots are, also while slots and servers move."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest
import redis

from gateway.config.sections import StoreSection
from gateway.stores.link import Link
from gateway.stores.link.link import SLOTS, slot_of
from gateway.stores.link.sync import open_client
from tests.stores.link.linked import INCR, NAMES, call, linked, run, up
from tests.wire.faults import FaultProxy
from tests.wire.redis import RedisCluster, RedisServer
from tests.wire.waiting import SLACK, until

__all__: list[str] = []


@pytest.fixture(scope="module")
def members(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RedisCluster]:
    """Return three primaries, the first with a replica; a part that is down leaves the others up."""
    folder = tmp_path_factory.mktemp("cluster")
    with RedisCluster(folder, 3, 1, "--cluster-require-full-coverage", "no") as cluster:
        yield cluster


@pytest.fixture
def cluster(members: RedisCluster) -> RedisCluster:
    """Return the cluster, empty."""
    members.clear()
    return members


def name_at(server: int, number: int = 0) -> bytes:
    """Return a name whose slot the given server has at first; another for each number."""
    low, high = server * SLOTS // 3, (server + 1) * SLOTS // 3
    names = (NAMES.key(f"t{number}-{index}", "key") for index in range(1_000))
    return next(name for name in names if low <= slot_of(name) < high)


async def test_names_go_where_their_slots_are(cluster: RedisCluster) -> None:
    """One connection to each primary; calls made at once wait for the map; a call's names lie in one slot."""
    async with linked(cluster.url, wait=False) as link:
        assert [await run(link, INCR, [name_at(server)], b"x") for server in (0, 1, 2)] == [[1, b"x"]] * 3
        assert await call(link, b"GET", name_at(1)) == b"1"
        assert link.connections == 3
        assert not any(link.errors.values())
        assert (await run(link, INCR, [name_at(0), name_at(1)], b"x")).kind == "crossslot"
    assert [int(cluster.servers[server].ask("GET", name_at(server))) for server in (0, 1, 2)] == [1, 1, 1]
    client = open_client(StoreSection(url=cluster.url))
    assert client.get(name_at(2)) == b"1"
    client.close()


async def test_resharding_under_load_costs_nobody_a_call(cluster: RedisCluster) -> None:
    """MOVED, ASK and TRYAGAIN say that a command did not run: it goes where they say, and runs once."""
    name = name_at(0, 1)
    one, two = cluster.servers[0], cluster.servers[1]
    async with linked(cluster.url) as link:
        assert await run(link, INCR, [name], b"x") == [1, b"x"]
        cluster.move(slot_of(name), one, two, finish=False)  # half way: here until it is asked for there
        assert await run(link, INCR, [name], b"x") == [2, b"x"]
        one.ask("MIGRATE", "127.0.0.1", two.port, name, 0, 5_000)
        assert await run(link, INCR, [name], b"x") == [3, b"x"]  # ASK
        cluster.settle(slot_of(name), two)
        assert await run(link, INCR, [name], b"x") == [4, b"x"]  # MOVED
        replies = await _loaded(link, name, lambda: cluster.move(slot_of(name), two, one))
        assert sorted(reply[0] for reply in replies) == list(range(5, 5 + len(replies)))
        assert not any(link.errors.values())


async def _loaded(link: Link, name: bytes, work: object) -> list[list[int]]:
    """Call all the while that `work` is done on a thread; the replies."""
    assert callable(work)
    done = asyncio.ensure_future(asyncio.to_thread(work))
    replies: list[list[int]] = []
    while not done.done() or len(replies) < 50:
        replies += await asyncio.gather(*[run(link, INCR, [name], b"x") for _ in range(5)])
    await done
    return replies


async def test_two_names_that_are_moving_are_waited_for(cluster: RedisCluster) -> None:
    """TRYAGAIN: one of them is there, the other still here; soon both are at one place."""
    tag = name_at(0, 2)[len(NAMES.prefix) :].partition(b":")[0].decode().strip("{}")
    first, second = NAMES.key(tag, "key", "1"), NAMES.key(tag, "key", "2")
    one, two = cluster.servers[0], cluster.servers[1]
    async with linked(cluster.url) as link:
        await asyncio.gather(run(link, INCR, [first], b"x"), run(link, INCR, [second], b"x"))
        cluster.move(slot_of(first), one, two, finish=False)
        one.ask("MIGRATE", "127.0.0.1", two.port, first, 0, 5_000)
        asked = run(link, INCR, [first, second], b"x")
        await asyncio.sleep(0.015)
        one.ask("MIGRATE", "127.0.0.1", two.port, second, 0, 5_000)
        cluster.settle(slot_of(first), two)
        assert await asked == [2, b"x"]


def test_a_cluster_that_refuses_is_left_without_a_connection(cluster: RedisCluster) -> None:
    """A user without a right that the library needs fails late in its making; trying again leaves no sockets behind."""
    for server in cluster.servers:
        server.ask("ACL", "SETUSER", "poor", "on", ">p", "~*", "-@all", "+cluster|slots", "+client|setname")
    before = cluster.servers[1].clients
    for _ in range(3):
        with pytest.raises(redis.RedisError):
            open_client(StoreSection(url=cluster.url.replace("://", "://poor:p@")))
    assert cluster.servers[1].clients <= before


async def test_a_failover_under_load_is_followed(cluster: RedisCluster) -> None:
    """A primary dies: its names are answered at once, those of others as ever; its replica's promotion is found."""
    lost, kept = name_at(0, 3), name_at(2, 3)
    first, replica = cluster.servers[0], cluster.servers[3]
    async with linked(cluster.url) as link:
        await asyncio.gather(run(link, INCR, [lost], b"x"), run(link, INCR, [kept], b"x"))
        with first.client() as client:
            client.set(lost, 0)
            assert client.wait(1, 5_000) == 1
        first.kill()
        kinds = set()

        async def served() -> bool:
            reply = await run(link, INCR, [lost], b"x", within=0.05)
            if not isinstance(reply, list):
                kinds.add(reply.kind)
            return isinstance(reply, list)

        async with asyncio.timeout(8.0 + SLACK):
            while not await served():
                assert link.up
                await asyncio.sleep(0.005)
        assert "down" in kinds
        assert isinstance(await run(link, INCR, [kept], b"x"), list)
        assert replica.ask("GET", lost) is not None
        await until(lambda: link.connections == 3, "the dead one is left")
    first.start()
    await until(lambda: first.ask("ROLE")[0] == b"slave", "the old one is a replica")


async def test_a_place_that_is_none_is_no_end(redis_server: RedisServer) -> None:
    """A server that sends us where nobody can be: the call fails by kind, and others go on."""
    with FaultProxy(redis_server.address) as proxy:
        slots = b"*1\r\n*3\r\n:0\r\n:16383\r\n*3\r\n$9\r\n127.0.0.1\r\n:%d\r\n$1\r\nx\r\n" % proxy.port
        proxy.rewrite(lambda reply: slots if b"cluster support" in reply else reply)
        async with linked(f"redis+cluster://127.0.0.1:{proxy.port}") as link:
            assert await run(link, INCR, [name_at(0)], b"x") == [1, b"x"]
            for place in (b"127.0.0.1:99999", b"no\0where:1", b":1"):
                moved = b"-MOVED 1 %b\r\n" % place
                proxy.rewrite(lambda _, moved=moved: moved, fresh=False)  # type: ignore[misc]  # one of its own
                assert (await run(link, INCR, [name_at(0)], b"x", within=0.5)).kind in {"refused", "dns", "error"}
                proxy.rewrite(None, fresh=False)
                await until(lambda: len(link.nodes()) == 1, "the map is known again")
                await up(link)
                assert isinstance(await run(link, INCR, [name_at(0)], b"x"), list)


async def test_seeds_that_are_no_cluster_are_told(redis_server: RedisServer) -> None:
    """By kind; and the link is up by itself once there is one."""
    async with linked(f"redis+cluster://127.0.0.1:{redis_server.port}", wait=False) as link:
        await until(lambda: link.errors["error"], "counted")
        assert (await call(link, b"GET", b"x")).kind == "down"
        assert link.cause == "error"
