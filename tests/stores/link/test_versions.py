"""What real servers of several versions say when they fail, each by its kind."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from gateway.stores.link import Script
from tests.stores.link.linked import INCR, NAMES, linked, run
from tests.wire.redis import RedisServer, binaries

__all__: list[str] = []

A = NAMES.key("a", "key")
WRITE = Script.of("write", b"return redis.call('SET', KEYS[1], ARGV[1])")
#: What is done to the server by name, how it is undone, and the kind of the answer.
STATES: tuple[tuple[str, tuple[str, ...], tuple[str, ...], str], ...] = (
    ("memory full", ("CONFIG", "SET", "maxmemory", "1"), ("CONFIG", "SET", "maxmemory", "0"), "oom"),
    ("a replica", ("REPLICAOF", "127.0.0.1", "1"), ("REPLICAOF", "NO", "ONE"), "readonly"),
    ("a wrong type", ("HSET", A.decode(), "a", "1"), ("DEL", A.decode()), "wrongtype"),
)  # fmt: skip


@pytest.fixture(scope="module", params=binaries().items(), ids=list(binaries()))
def server(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RedisServer]:
    """Return a server of each version."""
    name, program = request.param
    with RedisServer(tmp_path_factory.mktemp(name), program=program) as server:
        yield server


async def test_failures_of_a_version_have_their_kind(server: RedisServer) -> None:
    """From inside a script, as our calls meet them: memory, replicas, types; and rights, of an ACL user."""
    url = f"redis://gateway:p@127.0.0.1:{server.port}"
    rights = ("+eval", "+evalsha", "+set", "+incr", "+client|setname")
    server.ask("ACL", "SETUSER", "gateway", "on", ">p", f"~{NAMES.prefix}*", *rights)
    for name, words, undo, kind in STATES:
        async with linked(url) as link:  # as soon as the last one is undone there is a link again
            server.ask(*words)
            answer = await run(link, INCR if kind == "wrongtype" else WRITE, [A], b"x")
            server.ask(*undo)
            assert answer.kind == kind, f"{name}: {answer}"
    async with linked(url) as link:
        assert await run(link, WRITE, [A], b"x") == b"OK"
        assert (await run(link, WRITE, [b"elsewhere"], b"x")).kind == "auth"
        server.ask("ACL", "SETUSER", "gateway", "-set")
        assert (await run(link, WRITE, [A], b"x")).kind == "auth"
