"""Case 111: a head is bounded in octets and fields while it arrives, however it arrives."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator

import pytest

from tests.wire.caller import Caller, call, request
from tests.wire.gateway import Gateway, running, tenants, token
from tests.wire.ledger import balanced
from tests.wire.origin import Origin

__all__: list[str] = []

LINE = b"GET /a HTTP/1.1\r\nHost: a\r\n"
VOLUMES = {
    "one field of 1 MB": (LINE + b"X: " + b"x" * (1 << 20) + b"\r\n\r\n", 431),
    "100,000 fields": (LINE + b"".join(b"X-%d: y\r\n" % number for number in range(100_000)) + b"\r\n", 431),
    "101 small fields": (LINE + b"X: y\r\n" * 101 + b"\r\n", 431),
    "a token of 2 MB": (LINE + b"Authorization: Bearer " + b"x" * (2 << 20) + b"\r\n\r\n", 431),
    "a request line of 10 MB": (b"GET /" + b"a" * (10 << 20) + b" HTTP/1.1\r\nHost: a\r\n\r\n", 414),
    "a method of 1 MB": (b"A" * (1 << 20) + b" / HTTP/1.1\r\n\r\n", 400),
    "a name of 1 MB": (LINE + b"x" * (1 << 20) + b": y\r\n\r\n", 431),
    "empty lines": (b"\r\n" * (1 << 18), 414),
    "spaces in front of a value": (LINE + b"X:" + b" " * (1 << 20) + b"y\r\n\r\n", 431),
}


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory, origin: Origin) -> Iterator[Gateway]:
    """Run a gateway with its defaults: 32 KiB and 100 fields."""
    config = {"tenants": tenants("a", quota="1000/s"), "auth": {"rejected_quota": "1000/s burst 1000"}}
    with running(tmp_path_factory.mktemp("gateway"), origin, config) as one:
        yield one


async def refused(gateway: Gateway, octets: bytes, status: int, **sending: float) -> float:
    """Send until it is refused; return how long after the last octet sent that was."""
    async with await Caller.connect(gateway.address) as caller:
        sending_it = asyncio.create_task(caller.send(octets, **sending))  # type: ignore[arg-type] # split, gap
        answer = await caller.response(within=30)
        # A head whose first octets are no request at all is malformed before it is long.
        assert answer.status in {status, 400, 414, 431}, answer
        assert answer.header("connection") == "close"
        started = time.monotonic()
        await caller.until_closed()
        sending_it.cancel()
        return time.monotonic() - started


@pytest.mark.parametrize("name", VOLUMES)
async def test_volume_is_refused_early(gateway: Gateway, up: Origin, name: str) -> None:
    """431, 414 or 400, the end of the connection, and hardly any memory."""
    octets, status = VOLUMES[name]
    before = gateway.memory()
    async with balanced(gateway, up) as books:
        for _ in range(3):
            await refused(gateway, octets, status)
            books.rejected()
    assert gateway.memory() - before < 15 << 20
    assert up.seen == []


@pytest.mark.parametrize("name", ["one field of 1 MB", "101 small fields", "empty lines"])
async def test_volume_in_single_octets(gateway: Gateway, up: Origin, name: str) -> None:
    """The bound is met at the octet that exceeds it, not once the head is complete."""
    octets, status = VOLUMES[name]
    async with balanced(gateway, up) as books:
        await refused(gateway, octets[: 33 * 1024 + 100], status, split=1 if name == "101 small fields" else 16)
        books.rejected()


async def test_what_is_allowed_passes(gateway: Gateway, up: Origin) -> None:
    """30 KiB of head in 90 fields is served, in one piece and in many."""
    fields = [(f"X-{number}", "y" * 330) for number in range(90)]
    octets = request(token=token("a"), fields=fields)
    assert 30_000 < len(octets) < 32 * 1024
    async with balanced(gateway, up) as books:
        assert (await call(gateway.address, octets)).status == 200
        async with await Caller.connect(gateway.address) as caller:
            await caller.send(octets, split=1000)
            assert (await caller.response()).status == 200
        books.sent("a", 2)
    assert [
        len([1 for name, _ in seen.fields if name.startswith(b"x-") and name[2:].isdigit()]) for seen in up.seen
    ] == [90, 90]
