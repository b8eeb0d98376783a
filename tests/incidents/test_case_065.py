"""Case 65: every failure of the store under every posture gives what is documented, and none a 500."""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import redis

from gateway.stores.names import Names
from policies.request import Kind, Principal
from tests.wire.faults import FaultProxy
from tests.wire.gateway import running, tenants
from tests.wire.lost import NAMESPACE, POSTURES, Lost, refused, routes
from tests.wire.waiting import SLACK, until

__all__: list[str] = []

Failing = Callable[[Lost], contextlib.AbstractContextManager[None]]


@contextlib.contextmanager
def is_refused(lost: Lost) -> Iterator[None]:
    """Listen no more."""
    lost.proxy.down()
    yield


@contextlib.contextmanager
def reset_on_connect(lost: Lost) -> Iterator[None]:
    """Reset every connection, old and new."""
    lost.proxy.accept_at_most(0)
    lost.proxy.reset()
    yield


@contextlib.contextmanager
def cut_mid_reply(lost: Lost) -> Iterator[None]:
    """End each connection within its next reply; new ones are served."""
    lost.proxy.cut(2)
    yield


@contextlib.contextmanager
def frozen(lost: Lost) -> Iterator[None]:
    """Accept, and never answer."""
    lost.proxy.freeze()
    yield


@contextlib.contextmanager
def wrong_password(lost: Lost) -> Iterator[None]:
    """Want a password that nobody gave us."""
    lost.server.ask("CONFIG", "SET", "requirepass", "changed")
    lost.proxy.reset()
    try:
        yield
    finally:
        with lost.server.client(password="changed") as client:
            client.config_set("requirepass", "")


@contextlib.contextmanager
def wrong_type(lost: Lost) -> Iterator[None]:
    """Say of every record that it is not what it should be."""
    lost.proxy.rewrite(lambda _: b"-WRONGTYPE Operation against a key holding the wrong kind of value\r\n")
    try:
        yield
    finally:
        lost.proxy.rewrite(None)


@contextlib.contextmanager
def out_of_memory(lost: Lost) -> Iterator[None]:
    """Fill the server's memory."""
    lost.server.ask("CONFIG", "SET", "maxmemory", "1")
    try:
        yield
    finally:
        lost.server.ask("CONFIG", "SET", "maxmemory", "0")


@contextlib.contextmanager
def busy(lost: Lost) -> Iterator[None]:
    """Be in a script that does not end."""
    lost.server.ask("CONFIG", "SET", "lua-time-limit", "1")
    script = threading.Thread(target=_for_ever, args=(lost,))
    script.start()
    try:
        while not _is_busy(lost):
            time.sleep(0.001)
        yield
    finally:
        lost.server.ask("SCRIPT", "KILL")
        script.join()
        lost.server.ask("CONFIG", "SET", "lua-time-limit", "5000")


def _is_busy(lost: Lost) -> bool:
    try:
        lost.server.ask("PING")
    except redis.ResponseError as error:
        return "BUSY" in str(error)
    return False


def _for_ever(lost: Lost) -> None:
    with contextlib.suppress(redis.ResponseError):
        lost.server.ask("EVAL", "while true do end", 0)


@contextlib.contextmanager
def garbage(lost: Lost) -> Iterator[None]:
    """Answer what is no reply."""
    lost.proxy.rewrite(lambda _: b"\x00\xffHTTP/1.1 200 OK\r\n")
    yield


@contextlib.contextmanager
def too_many_clients(lost: Lost) -> Iterator[None]:
    """Take no more connections."""
    lost.proxy.greet(b"-ERR max number of clients reached\r\n")
    lost.proxy.reset()
    yield


#: Each with the kinds it may be counted as, and whether it is known to be down soon.
FAILURES: dict[str, tuple[Failing, set[str], bool]] = {
    "refused": (is_refused, {"refused", "reset"}, True),
    "reset on connect": (reset_on_connect, {"reset", "refused"}, True),
    "reset mid-reply": (cut_mid_reply, {"reset"}, False),
    "freeze": (frozen, {"timeout"}, True),
    "wrong password": (wrong_password, {"auth", "reset"}, True),
    "wrong type": (wrong_type, {"wrongtype"}, False),
    "oom": (out_of_memory, {"oom"}, False),
    "busy": (busy, {"busy", "timeout"}, True),
    "garbage": (garbage, {"protocol"}, True),
    "max clients": (too_many_clients, {"maxclients", "reset"}, True),
}


async def cells(lost: Lost, failing: Failing) -> None:
    """Ask on every route, and hold the answers to the table."""
    for posture in POSTURES:
        with failing(lost):
            (answer,) = await lost.ask(posture)
        if posture != "deny:30":
            assert refused(answer) is (posture == "closed"), posture


@pytest.mark.parametrize("name", FAILURES)
async def test_every_cell(lost: Lost, name: str) -> None:
    """Served or refused as the posture says, marked, counted by kind and posture; whoever is unaffected is served."""
    failing, kinds, goes_down = FAILURES[name]
    before, errors = lost.decided(), lost.gateway.metrics().by("kind", "evenhand_store_errors_total")
    if goes_down:
        with failing(lost):
            await _all_postures(lost)
            await lost.lost()
            await _all_postures(lost)
        lost.proxy.heal()
    else:
        await cells(lost, failing)
    await lost.heal(within=5.0 + SLACK)
    refusals = len(await lost.counting(within=2.0 + SLACK))
    after = lost.gateway.metrics().by("kind", "evenhand_store_errors_total")
    assert {kind for kind in after if after[kind] > errors[kind]} & kinds
    expected = dict.fromkeys(POSTURES, 2 if goes_down else 1)
    expected["closed"] += refusals
    assert {name: lost.decided()[name] - before.get(name, 0.0) for name in POSTURES} == expected


async def _all_postures(lost: Lost) -> None:
    """Ask once on each route, all at the same time."""
    answers = await asyncio.gather(*(lost.ask(posture) for posture in POSTURES))
    found = dict(zip(POSTURES, (refused(answer) for (answer,) in answers), strict=True))
    assert (found["open"], found["closed"], found["safe-capacity"]) == (False, True, False)


async def test_a_record_of_another_type_is_replaced(lost: Lost) -> None:
    """Whoever planted it is no reason to decide without the store."""
    tenant = lost.fresh()
    bucket = f"limit=key,{Principal(Kind.USER, tenant, 'ci').name}"
    lost.server.ask("SADD", Names(NAMESPACE).key(tenant, "own", bucket), "x")
    (answer,) = await lost.ask("closed", 1, tenant)
    assert (answer.status, answer.header("evenhand-degraded")) == (200, None)


@pytest.mark.parametrize("kind", ["dns", "tls"])
async def test_what_an_address_alone_can_do_wrong(tmp_path: Path, losing_store: Lost, kind: str) -> None:
    """A name that is unknown, a server that does not speak TLS: the gateway starts, and answers by its postures."""
    with FaultProxy(losing_store.server.address) as proxy:
        proxy.greet(b"-ERR\r\n")
        url = f"rediss://127.0.0.1:{proxy.port}" if kind == "tls" else "redis://nowhere.invalid:6379"
        config = {
            "store": {"url": url, "path": str(tmp_path / "evenhand.sqlite3")},
            "routes": routes(),
            "tenants": tenants(*(f"t{number}" for number in range(len(POSTURES)))),
        }
        with running(tmp_path, losing_store.up, config) as gateway:
            lost = Lost(gateway, proxy, losing_store.server, losing_store.up)
            await _all_postures(lost)
            await until(lambda: lost.standing()["cause"] == kind, "the kind is told")
            assert gateway.metrics().value("evenhand_store_errors_total", kind=kind)
            assert sum(lost.decided().values()) == len(POSTURES)
            assert gateway.ask("/readyz").status == 200
