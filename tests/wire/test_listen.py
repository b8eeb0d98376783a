"""Where a gateway process listens: unix sockets and TLS, what it tells its supervisor, what it asks of its system."""

from __future__ import annotations

import resource
import signal
import socket
import ssl
from pathlib import Path

import psutil
import pytest
from websockets.asyncio.client import connect
from websockets.exceptions import InvalidStatus

from tests.gateway.proxy.certificates import Authority
from tests.wire.caller import Caller, call, request
from tests.wire.gateway import Gateway, running, tenants, token
from tests.wire.origin import Origin, serving
from tests.wire.waiting import until

__all__: list[str] = []

CONFIG = {"tenants": tenants("a", quota="1000/s"), "auth": {"anonymous_quota": "1000/s burst 1000"}}


async def test_unix_socket(tmp_path: Path) -> None:
    """Callers come by a file, are one address named unix, and the file goes with the process."""
    path = tmp_path / "listen.sock"
    config = {**CONFIG, "server": {"listen": f"unix:{path}", "trusted_proxies": ["unix"]}}
    with serving() as up, running(tmp_path, up, config) as gateway:
        await through_unix(gateway, up, path)
    assert not path.exists()


async def through_unix(gateway: Gateway, up: Origin, path: Path) -> None:
    """Send one request, and one for somebody else."""
    assert (await call(f"unix:{path}", request(token=token("a")))).status == 200
    assert up.seen[0].header("x-forwarded-for") is None
    fields = [("X-Forwarded-For", "192.0.2.7"), ("X-Forwarded-Proto", "https")]
    assert (await call(f"unix:{path}", request(token=token("a"), fields=fields))).status == 200
    assert up.seen[1].header("x-forwarded-for") == "192.0.2.7"
    await until(lambda: len(gateway.log_lines()) == 2, "logged")
    assert [line["address"] for line in gateway.log_lines()] == ["unix", "192.0.2.7"]


async def test_tls_and_its_supervisor(tmp_path: Path) -> None:
    """READY once it serves, TLS on listen, a WebSocket under it, STOPPING when told to stop; exit code 0."""
    authority = Authority(tmp_path)
    pem = authority.issue("localhost")
    config = {**CONFIG, "server": {"tls_certificate": str(pem), "tls_key": str(pem)}}
    with serving() as up, socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as ear:
        ear.bind(str(tmp_path / "notify"))
        ear.settimeout(10)
        with running(tmp_path, up, config, {"NOTIFY_SOCKET": str(tmp_path / "notify")}) as gateway:
            assert ear.recv(64) == b"READY=1"
            context = ssl.create_default_context(cafile=authority.file)
            async with await Caller.connect(gateway.address, tls=context, name="localhost") as caller:
                await caller.send(request(token=token("a")))
                assert (await caller.response()).status == 200
            async with await Caller.connect(gateway.address) as plain:
                await plain.send(request(token=token("a")))
                assert (await plain.response()).status == 0
            with pytest.raises(InvalidStatus) as answered:
                await connect(f"wss://localhost:{gateway.address.rpartition(':')[2]}/", ssl=context, proxy=None)
            # The upstream speaks no WebSocket, and its answer came through.
            assert answered.value.response.status_code == 200
            gateway.signal(signal.SIGTERM)
            assert ear.recv(64) == b"STOPPING=1"
            await until(lambda: not gateway.running, "ended")
            assert gateway.end() == 0


def test_files_are_limited_by_the_hard_limit_alone(tmp_path: Path) -> None:
    """Whatever soft limit it was started with."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(soft, 1024), hard))
    try:
        with serving() as up, running(tmp_path, up, CONFIG) as gateway:
            assert psutil.Process(gateway.pid).rlimit(psutil.RLIMIT_NOFILE) == (hard, hard)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
