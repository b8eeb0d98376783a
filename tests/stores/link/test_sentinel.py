"""The link to whichever server the Sentinels name."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterator
from pathlib import Path

import pytest
import redis

from gateway.config.sections import StoreSection
from gateway.stores.link import single
from gateway.stores.link.sync import open_client
from tests.stores.link.linked import INCR, NAMES, linked, run
from tests.wire.redis import RedisServer, Sentinel
from tests.wire.waiting import SLACK, until

__all__: list[str] = []

A = NAMES.key("a", "key")


@pytest.fixture(scope="module")
def watched(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[RedisServer, RedisServer, Sentinel]]:
    """Return a primary, its replica, and the Sentinel that watches them."""
    folder = tmp_path_factory.mktemp("sentinel")
    replicates = ("--repl-diskless-sync-delay", "0", "--replicaof", "127.0.0.1")
    with (
        RedisServer(folder) as primary,
        RedisServer(folder, *replicates, str(primary.port)) as replica,
        Sentinel(folder, primary.port) as sentinel,
    ):
        yield primary, replica, sentinel


def url(*ports: int) -> str:
    """Return the address of a service behind Sentinels at `ports`."""
    return "redis+sentinel://" + ",".join(f"127.0.0.1:{port}" for port in ports) + "/main"


async def test_the_primary_is_found_and_followed(watched: tuple[RedisServer, RedisServer, Sentinel]) -> None:
    """By any Sentinel that answers; after a failover the link is at the new primary by itself, and so are threads."""
    primary, replica, sentinel = watched
    client = open_client(StoreSection(url=url(sentinel.port)))
    async with linked(url(1, sentinel.port)) as link:
        assert await run(link, INCR, [A], b"x") == [1, b"x"]
        assert primary.ask("GET", A) == client.get(A) == b"1"
        await until(lambda: replica.ask("GET", A) == b"1" and _failover(sentinel), "the Sentinel knows the replica", 60)
        await until(lambda: _promoted(replica), "the failover", 60)
        primary.kill()
        async with asyncio.timeout(3.0 + SLACK):
            while not isinstance(reply := await run(link, INCR, [A], b"x"), list):
                await asyncio.sleep(0.01)
        assert reply == [2, b"x"]
        assert replica.ask("GET", A) == b"2"
    client.close()


def _failover(sentinel: Sentinel) -> bool:
    """Have the Sentinel promote the replica, once it knows of it."""
    try:
        return bool(sentinel.ask("SENTINEL", "FAILOVER", "main"))
    except redis.ResponseError:
        return False


def _promoted(replica: RedisServer) -> bool:
    """Return whether it is the primary now; it closes every connection when it becomes that."""
    with contextlib.suppress(redis.ConnectionError):
        return bool(replica.ask("ROLE")[0] == b"master")
    return False


async def test_a_primary_that_was_replaced_is_left(
    tmp_path: Path, redis_server: RedisServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Cut off from the Sentinels it goes on answering us, and nobody else: they are asked while all is well."""
    monkeypatch.setattr(single, "CHECK", 0.05)
    with RedisServer(tmp_path) as other, Sentinel(tmp_path, redis_server.port) as sentinel:
        async with linked(url(sentinel.port)) as link:
            assert await run(link, INCR, [A], b"x") == [1, b"x"]
            sentinel.ask("SENTINEL", "REMOVE", "main")
            await asyncio.sleep(0.1)  # knowing none, they are not believed
            assert link.up
            sentinel.ask("SENTINEL", "MONITOR", "main", "127.0.0.1", other.port, 1)
            await until(lambda: link.errors["readonly"], "it is left")
            await until(lambda: other.ask("CLIENT", "LIST").count(b"evenhand"), "the other one is there")
            assert await run(link, INCR, [A], b"x") == [1, b"x"]
            assert redis_server.ask("GET", A) == b"1"


@pytest.mark.parametrize(("service", "kind"), (("other", "error"), ("main", "refused")))
async def test_what_is_wrong_with_sentinels_has_a_kind(
    watched: tuple[RedisServer, RedisServer, Sentinel], service: str, kind: str
) -> None:
    """They know no such service, or are not there."""
    port = watched[2].port if service == "other" else 1
    async with linked(f"redis+sentinel://127.0.0.1:{port}/{service}", wait=False) as link:
        await until(lambda: link.errors[kind], f"{kind}, found {link.errors}")
