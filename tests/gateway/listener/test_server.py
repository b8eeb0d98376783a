"""A listener on unix sockets and under TLS, its certificate, and its drain; in the loop of the test."""

from __future__ import annotations

import asyncio
import contextlib
import os
import resource
import shutil
import socket
import ssl
from collections.abc import Iterator
from pathlib import Path

import pytest

from gateway.errors import GatewayError
from gateway.listener import accepting, tls
from gateway.listener.tls import Certificate
from policies.units import SECOND
from tests.gateway.proxy.certificates import Authority
from tests.gateway.proxy.house import A
from tests.gateway.proxy.reach import on_both_loops, until
from tests.gateway.proxy.wired import connections, wired
from tests.wire.caller import Caller, request
from tests.wire.origin import Origin, serving
from tests.wire.script import Answer

__all__: list[str] = []

T = A.token
GOOD = request(target="/good", token=T)


@pytest.fixture
def origin() -> Iterator[Origin]:
    """Run the scripted upstream."""
    with serving() as up:
        yield up


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    """Make an authority."""
    return Authority(tmp_path_factory.mktemp("authority"))


def trusting(authority: Authority) -> ssl.SSLContext:
    """Return what a caller trusts."""
    return ssl.create_default_context(cafile=authority.file)


def serial(caller: Caller) -> str:
    """Return the serial number of the certificate that was shown."""
    return str(caller.transport.get_extra_info("peercert")["serialNumber"])


@on_both_loops
async def test_requests_over_tls(tmp_path: Path, origin: Origin, authority: Authority) -> None:
    """HTTP/1.1 alone by ALPN, pipelined and with bodies; the upstream is told https."""
    path = authority.issue("localhost")
    async with wired(tmp_path, origin, certificate=Certificate(path, path), quota="1000/s burst 1000") as gateway:
        context = trusting(authority)
        context.set_alpn_protocols(["h2", "http/1.1"])
        async with await Caller.connect(gateway.address, tls=context, name="localhost") as caller:
            await caller.send(GOOD + request("POST", token=T, body=b"x" * 200_000))
            assert [(await caller.response()).status for _ in range(2)] == [200, 200]
            assert caller.transport.get_extra_info("ssl_object").selected_alpn_protocol() == "http/1.1"
    assert [seen.header("x-forwarded-proto") for seen in origin.seen] == ["https", "https"]
    assert origin.seen[1].length == 200_000


@on_both_loops
async def test_a_crowd_is_let_in_within_a_few_turns(tmp_path: Path, origin: Origin) -> None:
    """However long a turn takes: libuv by itself lets one in each time, and the last would wait for hundreds."""
    async with wired(tmp_path, origin) as gateway:
        host, _, port = gateway.address.rpartition(":")
        # The kernel connects them while the loop stands.
        crowd = [socket.create_connection((host, int(port))) for _ in range(300)]
        turns = 0
        while len(connections(gateway)) < len(crowd):
            turns += 1
            assert turns < 100, f"{len(connections(gateway))} of {len(crowd)} after {turns} turns"
            await asyncio.sleep(0)
        for one in crowd:
            one.close()
        await until(lambda: not connections(gateway))


@on_both_loops
async def test_closes_over_tls(tmp_path: Path, origin: Origin, authority: Authority) -> None:
    """An answer that closes arrives whole although more is sent; a caller that leaves ends its upstream call."""
    path = authority.issue("localhost")
    origin.on("/slow", Answer(delay=30))
    async with wired(tmp_path, origin, certificate=Certificate(path, path), quota="1000/s burst 1000") as gateway:
        async with await Caller.connect(gateway.address, tls=trusting(authority), name="localhost") as caller:
            await caller.send(request("POST", token=T, fields=[("Content-Length", "90000000000")]) + b"x" * 100_000)
            answer = await caller.response()
            assert (answer.status, answer.complete) == (413, True)
            await caller.until_closed()
        caller = await Caller.connect(gateway.address, tls=trusting(authority), name="localhost")
        await caller.send(request(target="/slow", token=T))
        await until(lambda: len(origin.seen) == 1)
        caller.close()
        await until(lambda: origin.open == 0)
        await gateway.settled(2)
        assert gateway.books.ends[1] == ("aborted", 0, "")


@on_both_loops
async def test_handshake_has_its_time(tmp_path: Path, origin: Origin, authority: Authority) -> None:
    """A caller that never shakes hands is closed."""
    path = authority.issue("localhost")
    certificate = Certificate(path, path)
    async with wired(tmp_path, origin, certificate=certificate, handshake_us=300_000) as gateway:
        caller = await Caller.connect(gateway.address)
        await caller.until_closed(8)


@on_both_loops
async def test_handshake_counts_for_its_address(tmp_path: Path, origin: Origin, authority: Authority) -> None:
    """From its start to its end, however that comes: one more is closed unanswered and counted, another one is not."""
    path = authority.issue("localhost")
    most = {"max_connections_per_address": 3}
    async with wired(tmp_path, origin, certificate=Certificate(path, path), limits=most) as gateway:
        post = gateway.door.post
        silent = [await Caller.connect(gateway.address) for _ in range(2)]
        async with await Caller.connect(gateway.address, tls=trusting(authority), name="localhost") as third:
            await until(lambda: post.connections == {"127.0.0.1": 3})
            assert gateway.server.held == 3
            late = await Caller.connect(gateway.address)
            await late.until_closed()
            assert late.raw == b""
            assert gateway.rejections[-1][1] == "too-many-connections"
            async with await Caller.connect(gateway.address, source="127.0.0.2") as other:
                await until(lambda: "127.0.0.2" in post.connections)
                other.reset()
            await third.send(GOOD)
            assert (await third.response()).status == 200
        await silent[0].send(b"GET / HTTP/1.1\r\n\r\n")
        await silent[0].until_closed()
        silent[1].reset()
        await until(lambda: post.connections == {})
        async with await Caller.connect(gateway.address, tls=trusting(authority), name="localhost") as again:
            await again.send(GOOD)
            assert (await again.response()).status == 200


@on_both_loops
async def test_handshake_is_broken_off_by_a_stop(tmp_path: Path, origin: Origin, authority: Authority) -> None:
    """The drain waits for it no longer than for a request."""
    path = authority.issue("localhost")
    async with wired(tmp_path, origin, certificate=Certificate(path, path)) as gateway:
        silent = await Caller.connect(gateway.address)
        await until(lambda: gateway.server.held == 1)
        gateway.server.should_exit = True
        await silent.until_closed(8)
        await until(lambda: gateway.door.post.connections == {})


@on_both_loops
async def test_accepting_rests_when_files_run_out(
    tmp_path: Path, origin: Origin, authority: Authority, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And goes on afterwards: whoever waited is served."""
    monkeypatch.setattr(accepting, "REST_SECONDS", 0.2)
    path = authority.issue("localhost")
    async with wired(tmp_path, origin, certificate=Certificate(path, path)) as gateway:
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        client = socket.socket()
        try:
            # Descriptors are given lowest first: none is left below the bound.
            resource.setrlimit(resource.RLIMIT_NOFILE, (client.fileno() + 1, hard))
            held = []
            with contextlib.suppress(OSError):
                while True:
                    held.append(socket.socket())
            client.connect(("127.0.0.1", int(gateway.address.rpartition(":")[2])))
            await asyncio.sleep(0.05)
            assert gateway.server.held == 0
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
            for one in held:
                one.close()
        await until(lambda: gateway.server.held == 1)
        client.close()


def put(source: Path, place: Path) -> None:
    """Replace a file in one step, as tools that renew certificates do."""
    shutil.copy(source, place.with_suffix(".new"))
    os.replace(place.with_suffix(".new"), place)  # noqa: PTH105 - the one that is atomic is meant


@on_both_loops
async def test_certificate_follows_its_file(
    tmp_path: Path, origin: Origin, authority: Authority, monkeypatch: pytest.MonkeyPatch
) -> None:
    """New connections get the new one, those that stand keep theirs; a bad file changes nothing."""
    monkeypatch.setattr(tls, "WATCH_SECONDS", 0.05)
    place = tmp_path / "server.pem"
    put(authority.issue("localhost"), place)
    certificate = Certificate(place, place)
    async with wired(tmp_path, origin, certificate=certificate, quota="1000/s burst 1000") as gateway:

        async def shown() -> tuple[Caller, str]:
            caller = await Caller.connect(gateway.address, tls=trusting(authority), name="localhost")
            return caller, serial(caller)

        old, first = await shown()
        place.write_text("nonsense", encoding="ascii")
        await asyncio.sleep(0.3)
        another, still = await shown()
        assert still == first
        put(authority.issue("localhost"), place)
        second = first
        for _ in range(500):
            newer, second = await shown()
            newer.close()
            if second != first:
                break
            await asyncio.sleep(0.02)
        assert second != first
        await old.send(GOOD)
        assert (await old.response()).status == 200
        for caller in (old, another):
            caller.close()


def test_certificate_is_tried_apart(tmp_path: Path, authority: Authority, caplog: pytest.LogCaptureFixture) -> None:
    """What does not load, does not fit, or is gone, is told of once; the same file again changes nothing."""
    place = tmp_path / "server.pem"
    put(authority.issue("localhost"), place)
    certificate = Certificate(place, place)
    assert not certificate.renew()
    place.write_text("nonsense", encoding="ascii")
    assert [certificate.renew() for _ in range(3)] == [False] * 3
    place.unlink()
    assert [certificate.renew() for _ in range(3)] == [False] * 3
    assert len([record for record in caplog.records if "the old one stays" in record.message]) == 2
    put(authority.issue("localhost"), place)
    assert certificate.renew()
    assert not certificate.renew()


def test_certificate_must_be_one_to_begin_with(tmp_path: Path) -> None:
    """One sentence otherwise."""
    place = tmp_path / "server.pem"
    place.write_text("nonsense", encoding="ascii")
    with pytest.raises(GatewayError, match=r"cannot use .* for TLS"):
        Certificate(place, place)


@on_both_loops
async def test_connections_that_wait_are_taken_by_the_drain(tmp_path: Path, origin: Origin) -> None:
    """A burst that connects while the listener closes is answered to the last of those that were let in."""
    async with wired(tmp_path, origin, quota="100000/s burst 100000", drain_us=30 * SECOND) as gateway:
        callers: list[Caller] = []

        async def knock() -> None:
            for _ in range(200):
                try:
                    async with asyncio.timeout(0.5):
                        callers.append(await Caller.connect(gateway.address))
                except OSError:
                    return
                await callers[-1].send(GOOD)

        knocking = [asyncio.create_task(knock()) for _ in range(4)]
        await until(lambda: len(callers) > 8)
        gateway.server.should_exit = True
        await asyncio.gather(*knocking)
        assert len(callers) > 4
        for caller in callers:
            answer = await caller.response()
            assert (answer.status, answer.complete) == (200, True)
            caller.close()
