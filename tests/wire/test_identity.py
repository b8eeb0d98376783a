"""Identities that need more than the file: jobs that come and go, tokens another service knows, preflights."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs

import pytest

from tests.wire.caller import Caller, call, request
from tests.wire.gateway import Gateway, running, tenants, token
from tests.wire.ledger import balanced
from tests.wire.load import at_once
from tests.wire.origin import Origin, Seen, serving
from tests.wire.script import HANG, Answer
from tests.wire.toml import merged, written
from tests.wire.waiting import SLACK, until

__all__: list[str] = []


@pytest.fixture
def up() -> Iterator[Origin]:
    """Run one upstream; whatever reaches it must be strictly readable."""
    with serving() as one:
        yield one
        assert one.faults == []


def registered(gateway: Gateway, project: str, **more: Any) -> dict[str, str]:
    """Register a job and return what was told of it."""
    body = {"tenant": "acme", "project": project, "job": "7", "ttl": "1h"} | more
    answer = gateway.ask("/api/jobs", "POST", json.dumps(body).encode())
    assert answer.status == 201, answer
    told: dict[str, str] = answer.json()
    return told


async def test_a_job_token_lives_with_its_job_and_survives_a_restart(tmp_path: Path, up: Origin) -> None:
    """A bucket for each project, class batch, the parent tenant; ended it is 401 at once, also after a restart."""
    listed = [{**entry, "quota": "1000/s burst 1000"} for entry in tenants("acme")]
    config = {"tenants": listed, "sizing": {"initial": "5/s burst 5"}}
    with running(tmp_path, up, config) as gateway:
        async with balanced(gateway, up) as books:
            kept, ended, other = (registered(gateway, project) for project in ("acme/web", "acme/web", "acme/api"))
            for told, project in ((kept, "acme%2Fweb"), (ended, "acme%2Fweb"), (other, "acme%2Fapi")):
                assert (await call(gateway.address, request(token=told["token"]))).status == 200
                assert up.seen[-1].header("evenhand-credential") == project
                assert up.seen[-1].header("evenhand-class") == "batch"
            assert gateway.ask(f"/api/jobs/{ended['id']}", "DELETE").status == 204
            assert (await call(gateway.address, request(token=ended["token"]))).status == 401
            books.sent("acme", 3)
            books.rejected()

        def logged() -> list[str]:
            return [line["identity"] for line in gateway.log_lines() if line.get("tenant") == "acme"]

        await until(lambda: len(logged()) >= 3, "all are logged")
        assert set(logged()) == {"job"}
        assert kept["token"] not in gateway.log.read_text() + gateway.stderr
        gateway.stop()
        gateway.start()
        up.forget()
        async with balanced(gateway, up) as books:
            assert (await call(gateway.address, request(token=kept["token"]))).status == 200
            assert (await call(gateway.address, request(token=ended["token"]))).status == 401
            assert gateway.ask(f"/api/jobs/{kept['id']}", "DELETE").status == 204
            assert (await call(gateway.address, request(token=kept["token"]))).status == 401
            books.sent("acme")
            books.rejected(2)


def knows(seen: Seen) -> Answer:
    """Answer as an introspection service does: `opaque-TENANT` is a token of that tenant."""

    def body() -> Iterator[bytes]:
        name, _, tenant = parse_qs(seen.body.decode())["token"][0].partition("-")
        known = {"active": name == "opaque", "tenant": tenant, "sub": "svc"}
        yield json.dumps(known).encode()

    return Answer(fields=(("Connection", "close"),), body=body, framing="chunked", delay=0.2, ending="close")


def introspecting(at: Origin, **section: Any) -> dict[str, Any]:
    """Return a configuration that asks `at`."""
    entry = {"url": f"{at.address}/introspect", "client_id": "evenhand", "client_secret": "s" * 16, "tenants": ["a*"]}
    auth = {"introspection": entry | section, "rejected_quota": "1000/s burst 1000"}
    return {"auth": auth, "tenants": tenants("acme", quota="1000/s burst 1000")}


async def test_an_opaque_token_is_asked_about_once(tmp_path: Path, up: Origin) -> None:
    """Those who come with it meanwhile wait, bodies and all; others are not held up by it; who leaves is counted."""
    with serving() as service:
        service.on("/introspect", lambda seen: replace(knows(seen), held=True))
        with running(tmp_path, up, introspecting(service, cache="1m")) as gateway:
            async with balanced(gateway, up) as books:
                waiting = asyncio.create_task(
                    at_once(gateway.address, [request("POST", token="opaque-acme", body=b"x" * 100_000)] * 10)
                )
                await until(lambda: len(service.seen) == 1, "it is asked about")
                assert (await call(gateway.address, request(token=token("acme")))).status == 200
                assert not waiting.done()
                service.release()
                assert (await waiting).statuses == {200: 10}
                assert len(service.seen) == 1
                chunked = request("POST", token="opaque-acme", body=b"", chunked=True)
                assert (await call(gateway.address, chunked)).status == 200
                assert (await call(gateway.address, request(token="made-up"))).status == 401
                assert (await call(gateway.address, request(token="opaque-beta"))).status == 401
                books.sent("acme", 12)
                books.rejected(2)
            assert len(service.seen) == 3
    assert [seen.length for seen in up.seen if seen.method == "POST"] == [100_000] * 10 + [0]
    assert {seen.header("evenhand-credential") for seen in up.seen} == {"ci", "svc"}


async def test_who_leaves_while_it_is_asked_is_aborted(tmp_path: Path, up: Origin) -> None:
    """Under `rejected`, for nobody knows whose the token was; nothing reaches the upstream."""
    with serving() as service:
        service.on("/introspect", knows)
        with running(tmp_path, up, introspecting(service)) as gateway:
            caller = await Caller.connect(gateway.address)
            await caller.send(request(token="opaque-acme"))
            await until(lambda: len(service.seen) == 1, "it is asked about")
            caller.reset()
            await until(lambda: (gateway.row("rejected") or {}).get("aborted") == 1, "it is aborted")
            assert gateway.metrics().value("evenhand_in_flight") == 0
    assert up.seen == []


async def test_a_silent_service_is_answered_by_its_posture(tmp_path: Path, up: Origin) -> None:
    """Closed: 503 within two seconds, then at once, `upstream_error`, charged to nobody; PATs do not notice."""
    with serving() as service:
        service.on("/introspect", HANG)
        with running(tmp_path, up, introspecting(service)) as gateway:
            tally = await at_once(gateway.address, [request(token="opaque-acme")] * 20)
            assert tally.statuses == {503: 20}
            assert tally.elapsed < 5 + SLACK
            answered, asked = min(answer.ended for _, answer in tally.answers), len(service.seen)
            (_, answer), *_ = tally.answers
            assert answer.json()["type"] == "https://evenhand.dev/problems/identity-unavailable"
            assert (answer.header("retry-after"), answer.header("evenhand-refused")) == ("1", None)
            assert (await call(gateway.address, request(token="opaque-acme"))).status == 503
            # At once is without asking, for a second.
            assert len(service.seen) == asked or time.monotonic() - answered > 0.9
            assert (await call(gateway.address, request(token=token("acme")))).status == 200
            metrics = gateway.metrics()
            assert metrics.sum("evenhand_requests_total", tenant="rejected", outcome="upstream_error") == 21
            assert metrics.value("evenhand_posture_decisions_total", posture="closed", outcome="upstream_error") == 21
            (warning,) = gateway.ask("/readyz").json()["warnings"]
            assert warning.startswith("introspection fails: ")
    assert len(up.seen) == 1


async def test_a_reload_loses_nobody(tmp_path: Path, up: Origin) -> None:
    """Who waits to be known waits on, by whoever is to be asked now; jobs and keys stay."""
    with serving() as service:
        service.on("/introspect", lambda seen: replace(knows(seen), held=True))
        with running(tmp_path, up, introspecting(service)) as gateway:
            job = registered(gateway, "acme/web")
            waiting = asyncio.create_task(at_once(gateway.address, [request(token="opaque-acme")] * 10))
            await until(lambda: len(service.seen) == 1, "it is asked about")
            section = introspecting(service, cache="2s")["auth"]["introspection"]
            changed = merged(gateway.config, {"auth": {"introspection": section}})
            gateway.file.write_text(written(changed), encoding="utf-8")
            assert gateway.ask("/api/reload", "POST").status == 200
            service.release()
            assert (await waiting).statuses == {200: 10}
            assert (await call(gateway.address, request(token=job["token"]))).status == 200
            assert (await call(gateway.address, request(token="opaque-acme"))).status == 200
            assert gateway.ask("/readyz").json()["warnings"] == []


async def test_a_preflight_is_answered_where_anonymous_callers_are_not(tmp_path: Path, up: Origin) -> None:
    """A browser sends none of the page's credentials with it; it has a bounded policy of its own."""
    asks = [("Origin", "https://app.example.com"), ("Access-Control-Request-Method", "PUT")]
    config = {"auth": {"anonymous": False, "preflight_quota": "1/h burst 5"}, "tenants": tenants("acme")}
    with running(tmp_path, up, config) as gateway:
        async with balanced(gateway, up) as books:
            tally = await at_once(gateway.address, [request("OPTIONS", fields=asks)] * 8)
            assert tally.statuses == {200: 5, 429: 3}
            assert (await call(gateway.address, request("OPTIONS"))).status == 401
            assert (await call(gateway.address, request())).status == 401
            assert (await call(gateway.address, request(token=token("acme")))).status == 200
            books.sent("anonymous", 8)
            books.sent("acme")
            books.rejected(2)
