"""Case 107: no metric has a label that a caller or an upstream can choose."""

from __future__ import annotations

import asyncio
import random
import string
import time
from collections.abc import Iterator

import pytest

from tests.wire.caller import Caller, request
from tests.wire.gateway import Gateway, running, tenants, token
from tests.wire.ledger import Ledger, balanced
from tests.wire.origin import Origin, Seen
from tests.wire.script import Answer

__all__: list[str] = []

METHODS = [
    "GET",
    "POST",
    "PUT",
    "PATCH",
    "DELETE",
    "HEAD",
    "OPTIONS",
    "PROPFIND",
    "SEARCH",
    "LINK",
    "M-SEARCH",
    "PURGE",
]

MINE = f"Bearer {token('a')}\r\n".encode()


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory, origin: Origin) -> Iterator[Gateway]:
    """Run a gateway for A and for strangers."""
    config = {
        "tenants": tenants("a", quota="1000000/s"),
        "backstop": {"quota": "1000000/s"},
        "auth": {"anonymous_quota": "100000/s burst 100000", "rejected_quota": "100000/s burst 100000"},
        "telemetry": {"admit_sample": 0.0, "decision_log": "off"},
    }
    with running(tmp_path_factory.mktemp("gateway"), origin, config) as one:
        yield one


def status(seen: Seen) -> Answer:
    """Answer the status that the path names; what is not one becomes raw octets."""
    code = int(seen.target.split(b"/")[1])
    return Answer(code) if code >= 200 else Answer(raw=b"HTTP/1.1 %d X\r\nContent-Length: 0\r\n\r\n" % code)


def anything(draw: random.Random) -> bytes:
    """Return a request of which everything is random that a caller may choose."""

    def word() -> str:
        return "".join(draw.choices(string.ascii_letters + string.digits, k=draw.randrange(1, 24)))

    who = draw.choice([token("a"), None, f"evh_pat_{word()}", word()])
    fields = [
        ("User-Agent", word()),
        ("Evenhand-Class", word()),
        ("Evenhand-Tenant", word()),
        ("X-Forwarded-For", word()),
        (word(), word()),
    ]
    code = draw.choice([200, 204, 302, 404, 418, 500, 503, 599, draw.randrange(200, 600), 600, 700, 999])
    method = draw.choice(METHODS)
    return request(method, f"/{code}/{word()}?{word()}={word()}", token=who, fields=fields, host=f"{word()}.example")


@pytest.mark.soak
@pytest.mark.parametrize("number", range(8))
async def test_series_stay_as_many(gateway: Gateway, up: Origin, soak: bool, number: int) -> None:
    """However many paths, hosts, methods, tokens and statuses: fewer than 50 series more, and a quick scrape."""
    if number and not soak:
        pytest.skip("one round without --soak")
    up.on("/", status)
    # Eight rounds against one gateway are 200,000 requests.
    draw, count = random.Random(107 + number), 25_000 if soak else 2_000
    async with balanced(gateway, up) as books:
        await send(gateway, books, [anything(draw) for _ in range(64)])
        before = len(gateway.metrics().samples)
        left = count
        while left:
            await asyncio.gather(
                *(send(gateway, books, [anything(draw) for _ in range(min(left, 2000) // 8)]) for _ in range(8))
            )
            left -= min(left, 2000)
            books.forget()
            up.on("/", status)
    started = time.monotonic()
    after = len(gateway.metrics().samples)
    took = time.monotonic() - started
    assert abs(after - before) < 50, (before, after)
    if soak:
        assert took < 0.2
    labels = {key for _, given, _ in gateway.metrics().samples for key in given}
    assert not labels & {"path", "method", "host", "status", "address", "user_agent", "token"}


async def send(gateway: Gateway, books: Ledger, octets: list[bytes]) -> None:
    """Send each, on kept connections; A's and nobody's are owed a verdict, a token that proves nothing is rejected."""
    caller: Caller | None = None
    for one in octets:
        if caller is None or caller.closed:
            caller = await Caller.connect(gateway.address)
        await caller.send(one)
        if b"Authorization" not in one:
            books.sent("anonymous")
        elif MINE in one:
            books.sent("a")
        else:
            books.rejected()
        answer = await caller.response(one.split(b" ", 1)[0].decode())
        if (answer.header("connection") or "").lower() == "close" or not answer.complete:
            caller.close()
            caller = None
    if caller is not None:
        caller.close()
