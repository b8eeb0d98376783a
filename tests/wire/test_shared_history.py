"""Two gateways on one Redis: what one is told or counts, the other knows; and what becomes of it when one is killed."""

from __future__ import annotations

import asyncio
import json
import signal
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from threading import Thread
from typing import Any

import pytest

from tests.wire.caller import call, request
from tests.wire.gateway import Gateway, running, tenant, token
from tests.wire.origin import Origin, serving
from tests.wire.redis import RedisServer
from tests.wire.waiting import SLACK, until

__all__: list[str] = []


@pytest.fixture
def up() -> Iterator[Origin]:
    """Run a scripted upstream that must have met nothing it could not read."""
    with serving() as origin:
        yield origin
        assert origin.faults == []


def post(gateway: Gateway, path: str, **members: Any) -> dict[str, Any]:
    """Ask for something to be kept."""
    answer = gateway.ask(path, "POST", json.dumps(members).encode(), content_type="application/json")
    assert answer.status == 201, answer.body
    made: dict[str, Any] = answer.json()
    return made


def stored(gateway: Gateway) -> dict[str, Any]:
    """Return the stored figures of the last ten minutes."""
    start = datetime.fromtimestamp(time.time() - 600, UTC)
    answer = gateway.ask(f"/api/fairness?from={start:%Y-%m-%dT%H:%M:%SZ}")
    assert answer.status == 200, answer.body
    found: dict[str, Any] = answer.json()
    return found


async def status(gateway: Gateway, credential: str) -> int:
    """Return what a caller with a credential is answered."""
    return (await call(gateway.address, request(token=credential))).status


async def test_two_gateways_know_the_same(tmp_path: Path, up: Origin, redis_server: RedisServer) -> None:
    """Job tokens, pauses and counts; kill -9 of one takes nothing from what the other tells."""
    config = {
        "store": {"url": redis_server.url},
        "tenants": [tenant("acme", quota="1/h burst 6"), {**tenant("free"), "quota": "sized"}],
    }
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
    two = Gateway(tmp_path / "two", up.address, config)
    starting = Thread(target=two.start)
    starting.start()
    with running(tmp_path / "one", up, config) as one:
        starting.join()
        for gateway in (one, two):
            for _ in range(5):
                await status(gateway, token("acme"))
        job = post(one, "/api/jobs", tenant="free", project="web", job="7", ttl=600)
        pause = post(two, "/api/pause", match={"tenant": "free", "class": "batch"}, **{"for": "10m"})
        began = time.monotonic()
        while await status(two, job["token"]) == 401:
            assert time.monotonic() - began < 5 + SLACK
            await asyncio.sleep(0.05)
        await until(lambda: one.ask("/api/pause").json()["pauses"], "the pause is known")
        assert [kept["id"] for kept in one.ask("/api/pause").json()["pauses"]] == [pause["id"]]
        assert one.ask(f"/api/pause/{pause['id']}", "DELETE").status == 204
        assert one.ask(f"/api/jobs/{job['id']}", "DELETE").status == 204
        assert await status(one, job["token"]) == 401
        began = time.monotonic()
        while await status(two, job["token"]) != 401:
            assert time.monotonic() - began < 5 + SLACK
            await asyncio.sleep(0.05)
        assert two.ask("/api/pause").json()["pauses"] == []
        await until(lambda: _offered(one) == 10 == _offered(two), "both tell of all")
        two.end(signal.SIGKILL)
        (row,) = [row for row in stored(one)["tenants"] if row["tenant"] == "acme"]
        assert row["refused"] == {"key": 4}
        assert one.ask("/readyz").status == 200


def _offered(gateway: Gateway) -> int:
    return sum(row["offered"] for row in stored(gateway)["tenants"] if row["tenant"] == "acme")
