"""A reload that fails by a fault of ours, and what a front takes over."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from websockets.asyncio.server import serve

from gateway import reload as reloading
from gateway.app import Gateway, compose
from gateway.config import load
from gateway.proxy import front as fronts
from gateway.proxy.parse import Head
from gateway.proxy.websocket import websocket
from gateway.reload import Reloader, Source
from tests.gateway.proxy.peers import UPGRADE, Peer
from tests.wire.waiting import until

__all__: list[str] = []

TOML = """
[upstream]
url = "http://127.0.0.1:9"
[backstop]
quota = "100/s"
"""


def write(folder: Path, more: str = "") -> Path:
    """Write a configuration, and return its path."""
    path = folder / "gateway.toml"
    path.write_text(TOML + more, encoding="utf-8")
    return path


def last_ok(gateway: Gateway) -> bool | None:
    """Return what is measured of the last reload."""
    told = gateway.telemetry.gauges.config_last_reload_ok
    assert told is not None
    return told()


@contextlib.asynccontextmanager
async def started(path: Path) -> AsyncIterator[Gateway]:
    """Run a gateway that nothing listens for."""
    gateway = compose(load(path, {}))
    await gateway.start()
    try:
        yield gateway
    finally:
        await gateway.stop()


@pytest.mark.parametrize("how", ["api", "signal", "file"])
async def test_fault_of_ours_is_told(
    how: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """However it was asked for: log, `/readyz` and metric tell of it, and it can be tried again."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(reloading, "WATCH_SECONDS", 0.01)
    path = write(tmp_path)
    async with started(path) as gateway:
        reloader = Reloader(gateway, Source(path, {}))
        adopt = gateway.adopt

        def broken(*_: Any) -> None:
            raise AttributeError("a bug")

        monkeypatch.setattr(gateway, "adopt", broken)
        reloader.start()
        with caplog.at_level(logging.ERROR, "evenhand.reload"):
            if how == "api":
                with pytest.raises(AttributeError):
                    await asyncio.to_thread(reloader.reload)
            elif how == "signal":
                reloader.asked()
            else:
                write(tmp_path, "# changed\n")
            await until(lambda: caplog.records, "it is logged")
        assert (caplog.records[0].exc_info or (None,))[0] is AttributeError
        assert ["restart it" in warning for warning in reloader.warnings()] == [True]
        assert last_ok(gateway) is False
        monkeypatch.setattr(gateway, "adopt", adopt)
        write(tmp_path, "# changed again, and the watch still runs\n")
        await until(lambda: last_ok(gateway) is True, "the watch reads it again")
        assert reloader.warnings() == []
        reloader.stop()


async def test_front_becomes_all_of_the_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing that a front consists of stays behind at a reload, compiled or not."""
    monkeypatch.chdir(tmp_path)
    path = write(tmp_path)
    async with started(path) as gateway:
        one = gateway.door.front
        other = gateway._front(gateway.settings, gateway.pipeline.policies, gateway._upstreams)
    had = {name: getattr(one, name) for name in dir(one) if not name.startswith("__")}
    parts = [name for name, value in had.items() if not callable(value) or name in fronts._PARTS]
    assert sorted(parts) == sorted(fronts._PARTS)
    one.become(other)
    assert [name for name in parts if getattr(one, name) != getattr(other, name)] == []


async def test_handshake_goes_where_it_was_decided_to(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A reload that moves routes moves no handshake that was decided, but has not reached its upstream."""
    monkeypatch.chdir(tmp_path)
    one, two = Peer(), Peer()
    async with (
        serve(one.handle, "127.0.0.1", 0, process_request=one.look) as first,
        serve(two.handle, "127.0.0.1", 0, process_request=two.look) as second,
    ):
        one.listens(first)
        two.listens(second)
        upstreams = "".join(f'[upstreams.{name}]\nurl = "{peer.address}"\n' for name, peer in (("1", one), ("2", two)))
        routes = [f'[[routes]]\nname = "{n}"\npath = "/{n}"\nupstream = "{n}"\n' for n in ("1", "2")]
        async with started(write(tmp_path, upstreams + "".join(routes))) as gateway:
            moved = load(write(tmp_path, upstreams + "".join(reversed(routes))), {})
            heard = asyncio.Queue[dict[str, Any]]()

            async def receive() -> dict[str, Any]:
                if not one.seen and gateway.pipeline.in_flight:
                    gateway.adopt(moved, gateway.identity.renewed(moved.settings))
                    heard.put_nowait({"type": "websocket.connect"})
                return await heard.get()

            async def send(message: Any) -> None:
                if message["type"] == "websocket.accept":
                    heard.put_nowait({"type": "websocket.disconnect", "code": 1001})

            fields = [(name.lower().encode(), value.encode()) for name, value in UPGRADE]
            head = Head(b"GET", b"/1", [(b"host", b"a"), *fields], "127.0.0.1", "http", "1.1")
            await websocket(gateway.door.front, gateway.sockets, {"type": "websocket"}, receive, send, head)
    assert ([asked.path for asked in one.seen], two.seen) == (["/1"], [])
