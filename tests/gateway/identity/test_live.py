"""Identity of one process: what runs beside requests begins, changes and ends with it."""

from __future__ import annotations

import asyncio
import json
import logging
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from gateway.clock import Clock
from gateway.config import Settings
from gateway.identity import background as background_module
from gateway.identity import live
from gateway.identity.background import Background
from gateway.identity.live import Identity
from policies.request import Kind
from tests.gateway.identity.tokens import AUDIENCE, ISSUER, claims, jwk_of, rs256, rsa_key
from tests.wire.origin import Origin, serving
from tests.wire.script import HANG, Answer
from tests.wire.waiting import SLACK

__all__: list[str] = []


@pytest.fixture
def up() -> Iterator[Origin]:
    """Run one server of keys."""
    with serving() as one:
        one.on("/jwks", Answer(body=json.dumps({"keys": [jwk_of(rsa_key("k1"), kid="k1")]}).encode()))
        yield one


def settings(tmp_path: Path, up: Origin, **auth: Any) -> Settings:
    """Return settings with a key set at `up` and a registry."""
    issuer = {"issuer": ISSUER, "audience": AUDIENCE, "jwks_url": f"{up.address}/jwks", "allow_private": True}
    return Settings.model_validate(
        {
            "upstream": {"url": "http://127.0.0.1:9"},
            "backstop": {"quota": "100/s"},
            "store": {"path": str(tmp_path / "e.sqlite3")},
            "auth": {"jwt": [issuer]} | auth,
        }
    )


def kind(identity: Identity, token: str) -> Kind:
    """Return what a bearer of `token` is."""
    headers = [(b"authorization", f"Bearer {token}".encode())]
    return identity.resolver.resolve(headers, "192.0.2.1", preflight=False).principal.kind


def signed() -> str:
    """Return a token that is good now."""
    return rs256(claims(exp=int(time.time()) + 600, iat=None), rsa_key("k1"), kid="k1").decode()


async def test_it_starts_with_its_keys_and_its_jobs(tmp_path: Path, up: Origin) -> None:
    """The first caller is known; a reload keeps what was fetched and registered; nothing runs after the stop."""
    one = Identity(settings(tmp_path, up), Clock())
    _, job = one.jobs.register("acme", "p", "1", 60_000_000)
    assert kind(one, signed()) is Kind.REJECTED, "nothing is fetched before the start"
    ran: list[str] = []
    one.minutely.append(lambda: ran.append(threading.current_thread().name))
    await one.start()
    assert (kind(one, signed()), kind(one, job)) == (Kind.USER, Kind.JOB)
    assert one.ages_seconds().keys() == {ISSUER}
    assert list(one.warnings()) == []
    assert ran == ["evenhand-identity"]
    up.on("/jwks", Answer(status=503))
    asked = {"url": f"{up.address}/introspect", "client_id": "e", "client_secret": "s"}
    one.follow(one.renewed(settings(tmp_path, up, introspection=asked, anonymous=False)))
    assert (kind(one, signed()), kind(one, job)) == (Kind.USER, Kind.JOB), "no outage by a reload"
    async with asyncio.timeout(30):
        while not list(one.warnings()):
            await asyncio.sleep(0.01)
    one.stop()
    one.stop()
    assert not [thread for thread in threading.enumerate() if thread.name == "evenhand-identity"]
    again = Identity(settings(tmp_path, up), Clock())
    await again.start()
    assert kind(again, job) is Kind.JOB
    again.stop()


async def test_a_start_waits_no_longer_than_it_must(
    tmp_path: Path, up: Origin, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An issuer that hangs keeps nobody else out."""
    monkeypatch.setattr(live, "FIRST_SECONDS", 0.2)
    up.on("/jwks", HANG)
    one = Identity(settings(tmp_path, up), Clock())
    began = time.monotonic()
    await one.start()
    assert time.monotonic() - began < 2 + SLACK
    assert kind(one, signed()) is Kind.REJECTED
    one.stop()


async def test_a_job_that_fails_begins_again(caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is told, and the others go on."""
    monkeypatch.setattr(background_module, "_AGAIN_SECONDS", 0.01)
    runs: list[int] = []

    async def fails() -> None:
        runs.append(1)
        raise ValueError("a bug")

    background = Background("test-background")
    background.start()
    with caplog.at_level(logging.ERROR):
        background.serve([fails])
        async with asyncio.timeout(30):
            while len(runs) < 3:
                await asyncio.sleep(0.01)
        background.stop()
    assert "begins again" in caplog.text
    Background("never-started").stop()
