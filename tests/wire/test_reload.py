"""Reload of a serving gateway: by signal, by a changed file, by the admin API; good files and bad ones."""

from __future__ import annotations

import asyncio
import http.client
import json
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.wire.caller import Caller, call, request
from tests.wire.gateway import Gateway, running, tenant, token
from tests.wire.load import offer
from tests.wire.origin import Origin, serving
from tests.wire.script import Answer
from tests.wire.toml import merged, written
from tests.wire.waiting import until

__all__: list[str] = []


@pytest.fixture
def up() -> Iterator[Origin]:
    """Run a scripted upstream that must have met nothing it could not read."""
    with serving() as origin:
        yield origin
        assert origin.faults == []


def rewrite(gateway: Gateway, **config: Any) -> None:
    """Replace the file in one step, as an editor or a deployment does."""
    made = gateway.file.with_suffix(".new")
    made.write_text(written(merged(gateway.config, config)), encoding="utf-8")
    made.replace(gateway.file)


async def status(gateway: Gateway, who: str) -> int:
    """Return what a request of a tenant's credential is answered."""
    return (await call(gateway.address, request(token=token(who)))).status


def reload(gateway: Gateway) -> tuple[int, dict[str, Any]]:
    """Ask for a reload, which takes as long as the file is long."""
    connection = http.client.HTTPConnection(gateway.admin, timeout=60)
    try:
        connection.request("POST", "/api/reload")
        answer = connection.getresponse()
        return answer.status, json.loads(answer.read())
    finally:
        connection.close()


def last_reload(gateway: Gateway) -> list[float]:
    """Return what is measured of the last reload: nothing before the first."""
    lines = gateway.ask("/metrics").body.decode().splitlines()
    return [float(line.split()[1]) for line in lines if line.startswith("evenhand_config_last_reload_ok ")]


async def test_the_api_reloads(tmp_path: Path, up: Origin) -> None:
    """Tenants come and go, quotas change, at once; a removed PAT is good for nothing."""
    with running(tmp_path, up, {"tenants": [tenant("a"), tenant("b")]}) as gateway:
        assert [await status(gateway, name) for name in ("a", "b", "c")] == [200, 200, 401]
        rewrite(gateway, tenants=[tenant("a", quota="0/s"), tenant("c")])
        assert reload(gateway) == (200, {"reloaded": True, "warnings": []})
        assert [await status(gateway, name) for name in ("a", "b", "c")] == [429, 401, 200]


@pytest.mark.parametrize("how", ["signal", "file"])
async def test_signal_and_file_reload_too(how: str, tmp_path: Path, up: Origin) -> None:
    """SIGHUP at once, a changed file when it has stood still."""
    with running(tmp_path, up, {"tenants": [tenant("a")]}) as gateway:
        rewrite(gateway, tenants=[tenant("a"), tenant("b")])
        if how == "signal":
            gateway.signal(signal.SIGHUP)
        await until(lambda: "reloaded /" in gateway.stderr, "a reload", 10)
        assert await status(gateway, "b") == 200


BAD: list[tuple[str, str]] = [
    ('[[tenants]]\nid = ""\n', "tenants[0].id"),
    ("[[tenants]]\n", "tenants[0].id"),
    ('[[tenants]]\nid = "a"\nquota = 7\n', "tenants[0].quota"),
    ('[[tenants]]\nid = "a"\nweight = "x"\n', "tenants[0].weight"),
    ('[[tenants]]\nid = "a"\nquotas = "7/s"\n', "tenants[0].quotas"),
    ("[backstop\n", "gateway.toml"),
    ('[[tenants]]\nid = "' + "x" * 10_000_000 + '"\n', "tenants[0].id"),
    ("", "backstop.quota"),
    ('include = ["gateway.toml", "nowhere.toml"]\n', "include[1]"),
    ("\0", "gateway.toml"),
]


async def test_case_49_a_blank_record_takes_nothing_down(tmp_path: Path, up: Origin) -> None:
    """Null, missing, empty, of a wrong type, 10 MB, of itself: 409 with the place, the last good one keeps serving."""
    with running(tmp_path, up, {"tenants": [tenant("a")]}) as gateway:
        good = gateway.file.read_text(encoding="utf-8")
        pid = gateway.pid
        assert last_reload(gateway) == []
        for text, place in BAD:
            gateway.file.write_text(text + ("" if not text or "include" not in text else good), encoding="utf-8")
            code, members = reload(gateway)
            assert (code, members["status"]) == (409, 409)
            assert members["type"] == "https://evenhand.dev/problems/configuration-rejected"
            assert any(place in f"{error['path']} {error['message']}" for error in members["errors"]), (
                text[:40],
                members,
            )
            await until(lambda: "not reloaded" in gateway.stderr, "it says so")
            assert last_reload(gateway) == [0]
            assert await status(gateway, "a") == 200
            assert any("stays in force" in warning for warning in gateway.ask("/readyz").json()["warnings"])
        gateway.file.unlink()
        assert reload(gateway)[0] == 409
        gateway.file.write_text(good, encoding="utf-8")
        assert reload(gateway)[0] == 200
        assert gateway.ask("/readyz").json()["warnings"] == []
        assert last_reload(gateway) == [1]
        assert gateway.pid == pid


async def test_what_needs_a_restart_keeps_its_value(tmp_path: Path, up: Origin) -> None:
    """`listen`, `admin`, `workers` and how the store is reached stay, with a warning each; the rest is taken over."""
    with running(tmp_path, up, {"tenants": [tenant("a")]}) as gateway:
        server = {"listen": "127.0.0.1:1", "admin": "127.0.0.1:2", "workers": 2}
        store = {"url": "redis://127.0.0.1:3", "namespace": "other", "deadline": "1s", "max_connections": 9}
        rewrite(gateway, server=server, store=store, tenants=[tenant("b")])
        code, members = reload(gateway)
        assert code == 200
        told = {warning["path"] for warning in members["warnings"] if "restart" in warning["message"]}
        assert told == {"server.listen", "server.admin", "server.workers", *(f"store.{key}" for key in store)}
        assert [await status(gateway, name) for name in ("a", "b")] == [401, 200]


async def test_requests_under_way_end_as_they_began(tmp_path: Path, up: Origin) -> None:
    """A slow answer from an upstream that the new file no longer names comes whole."""
    with serving() as other, running(tmp_path, up, {"tenants": [tenant("a")]}) as gateway:
        up.then(Answer(body=b"late", delay=1.0))
        async with await Caller.connect(gateway.address) as caller:
            await caller.send(request(token=token("a")))
            await until(lambda: len(up.seen) == 1, "the request")
            rewrite(gateway, upstream={"url": other.address})
            assert reload(gateway)[0] == 200
            assert await status(gateway, "a") == 200
            assert len(other.seen) == 1
            assert (await caller.response()).body == b"late"
        await until(lambda: all(connection.closed for connection in up.connections), "the old pool is closed")


async def test_routes_and_their_upstreams_move_together(tmp_path: Path, up: Origin) -> None:
    """However many routes come before it, a path goes to its own route's upstream, stripped as that says."""
    near = {"name": "near", "path": "/near/**", "upstream": "near", "strip_prefix": "/near"}
    own = [{"name": f"own{number}", "path": f"/own{number}"} for number in range(3)]
    with serving() as other:
        config = {"tenants": [tenant("a")], "upstreams": {"near": {"url": other.address}}, "routes": [near]}
        with running(tmp_path, up, config) as gateway:
            for routes in ([near], [*own, near], [own[0], near, own[1]], []):
                rewrite(gateway, routes=routes)
                assert reload(gateway)[0] == 200
                for target in ("/near/x", "/own0", "/y"):
                    assert (await call(gateway.address, request(target=target, token=token("a")))).status == 200
            assert [seen.target for seen in other.seen] == [b"/x"] * 3
            assert [seen.target for seen in up.seen] == [b"/own0", b"/y"] * 3 + [b"/near/x", b"/own0", b"/y"]


async def test_a_reload_mints_no_token(tmp_path: Path, up: Origin) -> None:
    """A bucket keeps its level through changes of its quota, scaled, and through its entry going and coming."""
    entry = tenant("a", quota="1/h burst 40")
    with running(tmp_path, up, {"tenants": [entry]}) as gateway:
        spent = [await status(gateway, "a") for _ in range(41)]
        assert spent == [200] * 40 + [429]
        for turn in range(10):
            for tenants in ([tenant("a", quota=f"{2 + turn}/h burst {80 + turn}")], [tenant("b")], [entry]):
                rewrite(gateway, tenants=tenants)
                assert reload(gateway)[0] == 200
                if tenants[0]["id"] == "a":
                    assert await status(gateway, "a") == 429


@pytest.mark.soak
async def test_a_storm_of_reloads(tmp_path: Path, up: Origin, soak: bool) -> None:
    """Under load, some of the files bad: every request is answered, no more is admitted than the quota, memory flat."""
    times, rate = (200, 200.0) if soak else (30, 60.0)
    seconds = times * 0.1 + 1
    limited = tenant("limited", quota="5/s burst 10")
    busy = tenant("busy", quota="1000/s")
    base = {"tenants": [limited, busy], "backstop": {"quota": "5000/s"}}
    with running(tmp_path, up, base) as gateway:
        rewrite(gateway, tenants=[limited, busy])
        reload(gateway)
        before = psutil.Process(gateway.pid).memory_info().rss
        answered = asyncio.gather(
            offer(gateway.address, request(token=token("busy")), rate=rate, seconds=seconds),
            offer(gateway.address, request(token=token("limited")), rate=40, seconds=seconds),
        )
        good = 0
        for turn in range(times):
            if turn % 5 == 4:
                await asyncio.to_thread(gateway.file.write_text, f"[upstream]\nurl = {turn}\n")
            else:
                others = [tenant(f"t{turn}-{n}") for n in range(20)]
                changed = tenant("limited", quota="5/s burst 10", entry={"weight": 1.0 + turn % 3})
                rewrite(gateway, tenants=[changed, tenant("busy", quota=f"{900 + turn}/s"), *others])
            code, _ = await asyncio.to_thread(reload, gateway)
            assert code == (409 if turn % 5 == 4 else 200)
            good += code == 200
            await asyncio.sleep(0.05)
        free, held = await answered
        grown = psutil.Process(gateway.pid).memory_info().rss - before
    assert set(free.statuses) == {200}
    assert set(held.statuses) == {200, 429}
    assert held.admitted <= 10 + 5 * held.elapsed + 1
    assert good == times - times // 5
    assert grown < 30_000_000, grown
