"""Case 81: every acquired seat is returned on every exit."""

from __future__ import annotations

import asyncio
import random
from pathlib import Path

import pytest

from tests.wire.caller import Caller, request
from tests.wire.gateway import running, tenants, token
from tests.wire.ledger import balanced
from tests.wire.load import at_once
from tests.wire.origin import Origin
from tests.wire.script import HANG, Answer
from tests.wire.waiting import until

__all__: list[str] = []

SEATS = 3


def endless() -> list[bytes]:
    """Return the pieces of a stream that outlasts the test."""
    return [b"x" * 100] * 100_000


#: How a call ends, and the statuses that its caller may see; 0 where the caller leaves.
EXITS = {
    "leaves at a random octet": {0, 200, 400},
    "leaves while waiting": {0},
    "upstream hangs": {504},
    "upstream resets": {502},
    "upstream breaks off": {200},
    "stream without end": {200},
}


async def leave(gateway_address: str, name: str, dice: random.Random) -> int:
    """Make one call of A that ends as `name` says; return the status that was seen."""
    octets = request("POST", f"/{name.replace(' ', '-')}", token=token("a"), body=b"y" * 200)
    caller = await Caller.connect(gateway_address)
    status = 0
    if name == "leaves at a random octet":
        await caller.send(octets[: dice.randrange(len(octets) + 1)])
        dice.choice((caller.reset, caller.close))()
    elif name == "leaves while waiting":
        await caller.send(octets)
        await asyncio.sleep(dice.random() * 0.05)
        caller.reset()
    else:
        await caller.send(octets)
        found = await (caller.head() if name.startswith("stream") else caller.response("POST"))
        status = found.status
        assert name in {"upstream hangs", "upstream resets"} or not found.complete
        caller.reset()
    await caller.until_closed()
    return status


@pytest.mark.soak
@pytest.mark.parametrize("name", EXITS)
async def test_seats_come_back(tmp_path: Path, up: Origin, soak: bool, name: str) -> None:
    """3 seats, and call after call that ends badly: then three calls at once succeed, and a fourth has no seat."""
    count, dice = 999 if soak else 60, random.Random(81)
    up.on("/leaves", HANG)
    up.on("/upstream-hangs", HANG)
    up.on("/upstream-resets", Answer(raw=b"", ending="reset"))
    up.on("/upstream-breaks", Answer(declared=100, ending="close"))
    up.on("/stream", Answer(body=endless, framing="chunked", gap=0.005))
    config = {
        "upstream": {"first_byte_timeout": "150ms" if "hangs" in name else "30s", "retry_budget": 0.0},
        "backstop": {"quota": "100000/s"},
        "tenants": tenants("a", quota="100000/s", concurrency=SEATS),
    }
    with running(tmp_path, up, config) as gateway:
        async with balanced(gateway, up) as books:
            for _ in range(count // SEATS):
                seen = await asyncio.gather(*(leave(gateway.address, name, dice) for _ in range(SEATS)))
                assert set(seen) <= EXITS[name]
                await until(lambda: gateway.metrics().sum("evenhand_in_flight") == 0, "all seats are free")
            up.on("/hold", Answer(held=True))
            asked = at_once(gateway.address, [request(target="/hold", token=token("a"))] * 4)
            answering = asyncio.ensure_future(asked)
            await until(lambda: gateway.metrics().sum("evenhand_requests_total", outcome="refused") == 1, "a refusal")
            up.release()
            four = await answering
            assert four.statuses == {200: SEATS, 429: 1}
            row = gateway.row("a", "24h")
            assert row is not None
            if name == "leaves at a random octet":
                # Who leaves inside the head has asked for nothing yet.
                books.sent("a", row["offered"])
                books.rejected(round(gateway.metrics().sum("evenhand_requests_total", outcome="rejected")))
            else:
                books.sent("a", count + 4)
            assert row["refused"] == {"concurrency": 1}
