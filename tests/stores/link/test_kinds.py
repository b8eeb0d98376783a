"""Every way in which a store fails has a kind, is noticed by itself, and heals by itself (cases 61, 63, 65, 75)."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from gateway.stores.link import Link
from tests.gateway.proxy.certificates import Authority
from tests.stores.link.linked import ECHO, INCR, NAMES, linked, run, up
from tests.wire.faults import FaultProxy, Rewrite
from tests.wire.redis import RedisServer
from tests.wire.waiting import until

__all__: list[str] = []

A = NAMES.key("a", "key")


@pytest.fixture
def proxy(redis_server: RedisServer) -> Iterator[FaultProxy]:
    """Return a fault proxy before an empty server."""
    with FaultProxy(redis_server.address) as proxy:
        yield proxy


def saying(words: bytes) -> Rewrite:
    """Return what makes every reply an error."""
    return lambda _: b"-" + words + b"\r\n"


async def noticed(link: Link, kind: str) -> None:
    """Wait until the link is down for that reason; then it answers at once."""

    def asked() -> bool:
        link.run(ECHO, [A], [b"x"], lambda _: None, 20_000)
        return not link.up

    await until(asked, "the link is down")
    await until(lambda: link.errors[kind], f"counted as {kind}, found {link.errors}")
    assert run(link, ECHO, [A], b"x").done()


#: What is done to a link that is up, and the kind that is counted.
FAILURES: tuple[tuple[str, Callable[[FaultProxy], None], str], ...] = (
    ("refused", lambda proxy: proxy.down(), "refused"),
    ("freeze", lambda proxy: proxy.freeze(), "timeout"),
    ("dropped packets", lambda proxy: proxy.swallow(), "timeout"),
    ("slow", lambda proxy: proxy.delay(0.2), "timeout"),
    ("garbage", lambda proxy: proxy.rewrite(lambda _: b"HTTP/1.1 400 Bad Request\r\n\r\n"), "protocol"),
    ("oom", lambda proxy: proxy.rewrite(saying(b"OOM command not allowed when used memory > 'maxmemory'.")), "oom"),
    ("readonly", lambda proxy: proxy.rewrite(saying(b"READONLY You can't write against a read only replica.")),
     "readonly"),
    ("loading", lambda proxy: proxy.rewrite(saying(b"LOADING Redis is loading the dataset in memory")), "loading"),
    ("masterdown", lambda proxy: proxy.rewrite(saying(b"MASTERDOWN Link with MASTER is down")), "masterdown"),
    ("clusterdown", lambda proxy: proxy.rewrite(saying(b"CLUSTERDOWN The cluster is down")), "clusterdown"),
    ("busy", lambda proxy: proxy.rewrite(saying(b"BUSY Redis is busy running a script.")), "busy"),
)  # fmt: skip


@pytest.mark.parametrize(("fail", "kind"), [row[1:] for row in FAILURES], ids=[row[0] for row in FAILURES])
async def test_a_failure_is_noticed_and_heals(proxy: FaultProxy, fail: Callable[[FaultProxy], None], kind: str) -> None:
    """Down by its kind, at once from then on; up again within 2 s of the store's return."""
    async with linked(proxy.url) as link:
        fail(proxy)
        await noticed(link, kind)
        proxy.heal()
        await up(link)
        assert (await run(link, INCR, [A], b"x"))[1] == b"x"


async def test_a_reply_cut_short_is_no_reply(proxy: FaultProxy) -> None:
    """Whether it ran is not known: the caller learns that, and it is not sent again."""
    async with linked(proxy.url) as link:
        await run(link, INCR, [A], b"x")
        proxy.cut(3)
        assert (await run(link, INCR, [A], b"y")).kind == "reset"
        await up(link)
        assert await run(link, INCR, [A], b"z") == [3, b"z"]


async def test_idle_it_finds_out_by_itself(proxy: FaultProxy) -> None:
    """Nobody asks, and the store freezes: the link is down soon, by a probe each half second."""
    async with linked(proxy.url) as link:
        proxy.freeze()
        await until(lambda: not link.up, "the link is down")
        assert link.cause == "timeout"


FULL = b"-ERR max number of clients reached\r\n"

#: A store that is not there, or not ours, when we start: what is done to the proxy, what the URL says, the kind.
STARTS: tuple[tuple[str, Callable[[FaultProxy], None] | None, str, str], ...] = (
    ("refused", lambda proxy: proxy.down(), "redis://127.0.0.1:{}", "refused"),
    ("frozen", lambda proxy: proxy.freeze(), "redis://127.0.0.1:{}", "timeout"),
    ("reset on connect", lambda proxy: proxy.accept_at_most(0), "redis://127.0.0.1:{}", "reset"),
    (
        "full",
        lambda proxy: proxy.greet(FULL),
        "redis://127.0.0.1:{}",
        "maxclients",
    ),
    ("unknown host", None, "redis://nobody.invalid", "dns"),
    ("wrong password", None, "redis://:hunter2@127.0.0.1:{}", "auth"),
    ("no such database", None, "redis://127.0.0.1:{}/999", "error"),
    ("no socket", None, "redis+unix:///nowhere/redis.sock", "refused"),
)


@pytest.mark.parametrize(("arrange", "url", "kind"), [row[1:] for row in STARTS], ids=[row[0] for row in STARTS])
async def test_a_store_that_is_not_there_is_no_reason_to_wait(
    proxy: FaultProxy, arrange: Callable[[FaultProxy], None] | None, url: str, kind: str
) -> None:
    """Starting takes no time, what is wrong has a kind, no text holds the password; a return is found (case 75)."""
    if arrange is not None:
        arrange(proxy)
    async with linked(url.format(proxy.port), wait=False) as link:
        await until(lambda: link.errors[kind], f"counted as {kind}, found {link.errors}")
        answer = await run(link, ECHO, [A], b"x", within=0.02)
        assert answer.kind in {"down", "timeout"}
        assert "hunter2" not in f"{answer} {link!r} {link.address!r} {vars(link)}"
        if arrange is not None:
            proxy.heal()
            await up(link)


async def test_a_password_that_becomes_right_is_taken(proxy: FaultProxy, redis_server: RedisServer) -> None:
    """The link keeps trying; an ACL user with rights to our names is all it needs."""
    url = f"redis://evenhand:p%40ss@127.0.0.1:{proxy.port}"
    async with linked(url, wait=False) as link:
        await until(lambda: link.errors["auth"], "counted")
        rights = ("+eval", "+evalsha", "+set", "+incr", "+client|setname")
        redis_server.ask("ACL", "SETUSER", "evenhand", "on", ">p@ss", f"~{NAMES.prefix}*", *rights)
        try:
            await up(link)
            assert await run(link, INCR, [A], b"x") == [1, b"x"]
        finally:
            redis_server.ask("ACL", "DELUSER", "evenhand")


async def test_tls_is_verified(redis_server: RedisServer, tmp_path: Path) -> None:
    """By the authority that `ca_file` names and by the name in the URL; another's certificate is refused."""
    ours, theirs = Authority(tmp_path), tmp_path / "theirs"
    theirs.mkdir()

    async def found(context: ssl.SSLContext, authority: Authority) -> Link:
        with FaultProxy(redis_server.address, context) as proxy:
            url = f"rediss://localhost:{proxy.port}"
            async with linked(url, wait=False, ca_file=str(authority.file)) as link:
                await until(lambda: link.up or link.errors["tls"], "an end")
                return link

    assert (await found(ours.serve("localhost"), ours)).errors["tls"] == 0
    assert (await found(ours.serve("localhost"), Authority(theirs))).errors["tls"] > 0
    assert (await found(ours.serve("elsewhere.example"), ours)).errors["tls"] > 0


async def test_a_demoted_primary_is_left(proxy: FaultProxy) -> None:
    """Case 61: existing connections answer READONLY and its like for ever, a new one reaches a healthy server."""
    async with linked(proxy.url) as link:
        for words in (b"READONLY You can't write", b"LOADING", b"MASTERDOWN Link", b"CLUSTERDOWN Hash slot not served"):
            await asyncio.sleep(0)
            proxy.rewrite(saying(words), fresh=False)
            assert (await run(link, INCR, [A], b"x")).kind == words.partition(b" ")[0].decode().lower()
            await up(link)
            assert (await run(link, INCR, [A], b"x"))[1] == b"x"
        assert link.connections == 1
