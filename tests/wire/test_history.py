"""History of a serving gateway: what is stored, what survives, and what becomes of a file that is damaged."""

from __future__ import annotations

import asyncio
import signal
import sqlite3
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from tests.wire.caller import call, request
from tests.wire.gateway import Gateway, running, tenant, token
from tests.wire.origin import Origin, serving
from tests.wire.waiting import until

__all__: list[str] = []

FILE = "evenhand-history.sqlite3"


@pytest.fixture
def up() -> Iterator[Origin]:
    """Run a scripted upstream that must have met nothing it could not read."""
    with serving() as origin:
        yield origin
        assert origin.faults == []


def config() -> dict[str, Any]:
    """Return two tenants, one of them sized."""
    return {"tenants": [tenant("acme", quota="1/h burst 5"), {**tenant("free"), "quota": "sized"}]}


async def spend(gateway: Gateway, who: str, times: int) -> None:
    """Ask as a tenant's credential."""
    for _ in range(times):
        await call(gateway.address, request(token=token(who)))


def stored(gateway: Gateway, path: str, seconds: int = 600) -> dict[str, Any]:
    """Ask for a stored series of the last seconds."""
    start = datetime.fromtimestamp(time.time() - seconds, UTC)
    answer = gateway.ask(f"{path}?from={start:%Y-%m-%dT%H:%M:%SZ}")
    assert answer.status == 200, answer.body
    found: dict[str, Any] = answer.json()
    return found


def written(folder: Path) -> int:
    """Return how many requests the file holds."""
    with sqlite3.connect(folder / FILE) as connection:
        return int(connection.execute("SELECT count(*) FROM slot").fetchone()[0])


async def test_what_was_shed_is_asked_of_the_past(tmp_path: Path, up: Origin) -> None:
    """By tenant, by limit, by credential, over a restart; addresses are nowhere."""
    with running(tmp_path, up, config()) as gateway:
        await spend(gateway, "acme", 8)
        await call(gateway.address, request())
    with running(tmp_path, up, config()) as gateway:
        await spend(gateway, "acme", 2)
        await until(lambda: stored(gateway, "/api/fairness")["aggregate"]["offered"] == 11, "all stored")
        found = stored(gateway, "/api/fairness")
        rows = {row["tenant"]: row for row in found["tenants"]}
        assert rows["acme"]["refused"] == {"key": 3}
        assert (rows["acme"]["offered"], rows["anonymous"]["served"]) == (10, 1)
        assert "incomplete" not in found
        history = stored(gateway, "/api/tenants/acme")["history"]
        assert history["total"]["refused"] == {"key": 3}
        assert history["step_seconds"] == 10
        assert sum(point["offered"] for point in history["points"]) == 10
        (credential,) = history["credentials"]
        assert (credential["credential"], credential["identity"]) == ("ci", "user")
        assert credential["total"]["refused"] == {"key": 3}
        with sqlite3.connect(tmp_path / FILE) as connection:
            names = {name for (name,) in connection.execute("SELECT name FROM key")}
        assert names == {"tenant=acme", "tenant=acme,credential=ci", "tenant=anonymous"}


async def test_kill_loses_ten_seconds_at_most_and_says_so(tmp_path: Path, up: Origin) -> None:
    """What is older than that is there; the next start logs it, and the span that holds the gap is marked."""
    gateway = Gateway(tmp_path, up.address, config())
    gateway.start()
    await spend(gateway, "acme", 8)
    await asyncio.sleep(9)  # a slot is written in its seventh second for the first time
    await spend(gateway, "acme", 1)
    gateway.end(signal.SIGKILL)
    with running(tmp_path, up, config()) as again:
        await until(lambda: "ended without a stop" in again.stderr, "it says so")
        found = stored(again, "/api/fairness")
        assert 8 <= found["tenants"][0]["offered"] <= 9
        assert set(found["incomplete"]) == {"from", "to"}


@pytest.mark.parametrize("damage", ["noise", "torn", "newer"])
async def test_a_damaged_file_is_set_aside(damage: str, tmp_path: Path, up: Origin) -> None:
    """Loudly, with its bytes kept; the gateway serves on and begins a new one."""
    with running(tmp_path, up, config()) as gateway:
        await spend(gateway, "acme", 3)
    file = tmp_path / FILE
    if damage == "newer":
        with sqlite3.connect(file) as connection:
            connection.execute("PRAGMA user_version = 99")
        connection.close()
    else:
        octets = file.read_bytes()
        half = len(octets) // 2
        file.write_bytes(b"noise" * 5000 if damage == "noise" else octets[:half] + b"\xff" * (len(octets) - half))
    bad = file.read_bytes()
    with running(tmp_path, up, config()) as gateway:
        await spend(gateway, "acme", 1)
        (warning,) = gateway.ask("/readyz").json()["warnings"]
        assert "set aside" in warning
        await until(lambda: "set aside" in gateway.stderr, "it says so")
        (aside,) = tmp_path.glob(f"{FILE}.damaged-*")
        assert aside.read_bytes() == bad
        await until(lambda: written(tmp_path) > 0, "the new file is written")
    assert up.seen


async def test_a_second_process_keeps_its_own_in_memory(tmp_path: Path, up: Origin) -> None:
    """Two writers would tear each other's numbers; the second says so, and answers no stored series."""
    with running(tmp_path, up, config()):
        other = tmp_path / "other"
        other.mkdir()
        with running(other, up, config() | {"store": {"path": str(tmp_path / "evenhand.sqlite3")}}) as second:
            warnings = second.ask("/readyz").json()["warnings"]
            assert any("another process writes" in warning for warning in warnings), warnings
            assert second.ask("/api/fairness?from=2026-01-01T00:00:00Z").status in {400, 503}
            assert second.ask("/api/tenants/acme?to=2099-01-01T00:00:00Z").status in {400, 503}


SPANS = (
    "from=yesterday",
    "to=2026-13-01T00:00:00Z",
    "from=2001-01-01T00:00:00Z",
    "from=2099-01-01T00:00:00Z",
    "to=9999-12-31T23:59:59Z",
    "to=9999-12-31T23:59:59-23:59",
    "to=0001-01-01T00:00:00%2B23:59",
    "from=0001-01-01T00:00:00%2B23:59",
)


async def test_a_span_that_cannot_be(tmp_path: Path, up: Origin) -> None:
    """400, in a sentence."""
    with running(tmp_path, up, config()) as gateway:
        paths = [f"{path}?{span}" for span in SPANS for path in ("/api/fairness", "/api/tenants/acme")]
        assert {path: gateway.ask(path).status for path in paths} == dict.fromkeys(paths, 400)
