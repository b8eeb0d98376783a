"""Several upstreams by route, through a real gateway: which one, under which path, within which time."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.wire.caller import Caller, call, request
from tests.wire.gateway import Gateway, free_port, running, tenants, token
from tests.wire.ledger import balanced
from tests.wire.origin import Origin, serving
from tests.wire.script import HANG, Answer
from tests.wire.waiting import until

__all__: list[str] = []


@pytest.fixture(scope="module")
def origins(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Origin, Origin, Origin]]:
    """Run the default upstream, one under a base path, and one on a unix socket."""
    path = tmp_path_factory.mktemp("unix") / "up.sock"
    with serving() as up, serving() as reports, serving(Origin(unix=path)) as local:
        yield up, reports, local


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory, origins: tuple[Origin, Origin, Origin]) -> Iterator[Gateway]:
    """Run a gateway in front of all three, and of one that is not there."""
    up, reports, local = origins
    config = {
        "upstreams": {
            "reports": {"url": f"{reports.address}/base", "keepalive_timeout": "250ms"},
            "local": {"urls": [local.address], "keepalive_timeout": "250ms"},
            "down": {"url": f"http://127.0.0.1:{free_port()}"},
        },
        "routes": [
            {"name": "exports", "path": "/v1/exports/**", "upstream": "reports", "strip_prefix": "/v1"},
            {"name": "plain", "path": "/reports/**", "upstream": "reports"},
            {"name": "local", "path": "/local/**", "upstream": "local", "strip_prefix": "/local"},
            {"name": "hasty", "path": "/hasty", "first_byte_timeout": "150ms"},
            {"name": "patient", "path": "/patient"},
            {"name": "down", "path": "/down", "upstream": "down"},
        ],
        "tenants": tenants("a", quota="1000/s"),
    }
    with running(tmp_path_factory.mktemp("gateway"), up, config) as one:
        yield one


@pytest.fixture(autouse=True)
def _fresh(origins: tuple[Origin, Origin, Origin]) -> None:
    for origin in origins:
        origin.forget()


@pytest.mark.parametrize(
    ("target", "which", "arrives"),
    (
        ("/v1/exports/a%2Fb?x=%20&y", 1, b"/base/exports/a%2Fb?x=%20&y"),
        ("/reports/2026", 1, b"/base/reports/2026"),
        ("/local/x", 2, b"/x"),
        ("/v2/exports/x", 0, b"/v2/exports/x"),
        ("/v1/exportsx", 0, b"/v1/exportsx"),
    ),
)
async def test_route_chooses_upstream_and_path(
    gateway: Gateway, origins: tuple[Origin, Origin, Origin], target: str, which: int, arrives: bytes
) -> None:
    """`strip_prefix` takes off what stands before, the base path comes in front, all else is byte for byte the same."""
    async with balanced(gateway, origins[which]) as books:
        assert (await call(gateway.address, request(target=target, token=token("a")))).status == 200
        books.sent("a")
    assert [[seen.target for seen in origin.seen] for origin in origins] == [
        [arrives] if number == which else [] for number in range(3)
    ]


async def test_route_has_a_time_out_of_its_own(gateway: Gateway, origins: tuple[Origin, Origin, Origin]) -> None:
    """504 after the route's first_byte_timeout; beside it another route waits on."""
    up = origins[0]
    up.on("/hasty", HANG)
    up.on("/patient", Answer(held=True))
    async with balanced(gateway, up) as books:
        waiting = asyncio.ensure_future(call(gateway.address, request(target="/patient", token=token("a"))))
        await until(lambda: len(up.seen) == 1, "the patient one arrives")
        hasty = await call(gateway.address, request(target="/hasty", token=token("a")))
        up.release()
        patient = await waiting
        books.sent("a", 2)
    assert (hasty.status, patient.status) == (504, 200)


async def test_upstream_that_is_not_there_harms_no_other(
    gateway: Gateway, origins: tuple[Origin, Origin, Origin]
) -> None:
    """502 where it is asked for, and the others go on."""
    async with balanced(gateway, origins[0]) as books:
        down = [await call(gateway.address, request(target="/down", token=token("a"))) for _ in range(3)]
        assert (await call(gateway.address, request(target="/", token=token("a")))).status == 200
        books.sent("a", 4)
    assert [answer.status for answer in down] == [502] * 3


async def test_first_event_arrives_before_the_second_is_made(
    gateway: Gateway, origins: tuple[Origin, Origin, Origin]
) -> None:
    """A stream of events is passed on as it comes: the upstream waits for the test to have seen the first."""
    up, seen_first = origins[0], asyncio.Event()
    loop, made = asyncio.get_running_loop(), list[float]()

    def events() -> Iterator[bytes]:
        yield b"data: 1\n\n"
        # In the upstream's thread: the second is not there until the first was read.
        assert asyncio.run_coroutine_threadsafe(seen_first.wait(), loop).result(30)
        made.append(time.monotonic())
        yield b"data: 2\n\n"

    up.on("/", Answer(fields=(("Content-Type", "text/event-stream"),), framing="chunked", body=events))
    async with balanced(gateway, up) as books:
        async with await Caller.connect(gateway.address) as caller:
            await caller.send(request(token=token("a"), fields=[("Accept", "text/event-stream")]))
            await until(lambda: b"data: 1" in caller.raw, "the first event is here")
            assert not made
            seen_first.set()
            answer = await caller.response()
        books.sent("a")
    assert (answer.complete, answer.body) == (True, b"data: 1\n\ndata: 2\n\n")
    assert answer.header("content-type") == "text/event-stream"


async def test_address_that_is_down_is_left_out(tmp_path: Path, origins: tuple[Origin, Origin, Origin]) -> None:
    """Two addresses, one of them not there: no request fails for it."""
    up = origins[0]
    config = {
        "upstreams": {
            "pair": {"urls": [f"http://127.0.0.1:{free_port()}", up.address], "keepalive_timeout": "250ms"},
        },
        "routes": [{"name": "pair", "path": "/pair/**", "upstream": "pair"}],
        "tenants": tenants("a", quota="1000/s"),
    }
    with running(tmp_path, up, config) as gateway:
        async with balanced(gateway, up) as books:
            for number in range(10):
                answer = await call(gateway.address, request(target=f"/pair/{number}", token=token("a")))
                assert answer.status == 200
            books.sent("a", 10)
