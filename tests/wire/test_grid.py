"""The grid: nothing that is malformed or ambiguous reaches the upstream as another request, alone or behind a good one.

Every row runs against one gateway, twice: on a connection of its own, and in one piece behind a good request. What the
upstream recorded is compared octet for octet, and in the end the ledger must balance.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterator

import pytest

from tests.wire.caller import Caller
from tests.wire.gateway import Gateway, running, tenant, token
from tests.wire.grid import GRID, Row
from tests.wire.ledger import Ledger, balanced
from tests.wire.origin import Origin, Seen, serving

__all__: list[str] = []

TENANT = "grid"
GOOD = b"GET /good HTTP/1.1\r\nHost: api.example.com\r\nAuthorization: Bearer {T}\r\n\r\n"


@pytest.fixture(scope="module")
def up() -> Iterator[Origin]:
    """Run the scripted upstream."""
    with serving() as origin:
        yield origin


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory, up: Origin) -> Iterator[Gateway]:
    """Run a gateway."""
    config = {
        "tenants": [tenant(TENANT, quota="100000/s burst 100000")],
        "backstop": {"quota": "100000/s burst 100000"},
        "auth": {"rejected_quota": "100000/s burst 100000"},
    }
    with running(tmp_path_factory.mktemp("gateway"), up, config) as one:
        yield one


def filled(octets: bytes) -> bytes:
    """Return `octets` with the token."""
    return octets.replace(b"{T}", token(TENANT).encode())


def expected(row: Row, up: Origin, *, good: bool = False) -> bytes:
    """Return the head that the upstream must see, its request id masked."""
    host = b"api.example.com"
    fields = [] if good else list(row.fields)
    for field in list(fields):
        if field.startswith(b"@host: "):
            host = field.removeprefix(b"@host: ")
            fields.remove(field)
    version = b"1.1"
    lines = [
        b"GET /good HTTP/1.1" if good else row.method.encode() + b" " + row.target + b" HTTP/1.1",
        b"host: " + up.address.removeprefix("http://").encode(),
        *fields,
        b"via: " + version + b" *",
        b"x-forwarded-for: 127.0.0.1",
        b"x-forwarded-host: " + host,
        b"x-forwarded-proto: http",
        b"x-request-id: *",
        b"evenhand-tenant: grid",
        b"evenhand-credential: ci",
        b"evenhand-class: interactive",
    ]
    if not good and re.search(rb"(?i)\ntransfer-encoding:[ \t]*chunked[ \t]*\r\n", row.octets):
        lines.append(b"transfer-encoding: chunked")
    elif not good and (row.body or row.method == "POST"):
        lines.append(b"content-length: %d" % len(row.body))
    return b"\r\n".join([*lines, b"", b""])


def masked(seen: Seen) -> bytes:
    """Return the head that was seen, without what differs each time."""
    return re.sub(rb"(x-request-id: |via: 1\.[01] )[^\r]+", rb"\1*", seen.raw)


async def answers(gateway: Gateway, row: Row, octets: bytes, count: int) -> list[int]:
    """Send `octets` at once and return the statuses of `count` answers; a refusal must end the connection."""
    async with await Caller.connect(gateway.address) as caller:
        await caller.send(octets)
        found = [await caller.response(row.method, 5) for _ in range(count)]
        if row.end.startswith("cut"):
            assert found[-1].header("connection") == "close", row.name
            await caller.until_closed()
            assert len(re.findall(rb"HTTP/1\.1 [1-5]\d\d ", caller.raw)) == count, row.name
        assert all(answer.complete for answer in found), (row.name, found)
        return [answer.status for answer in found]


async def check(gateway: Gateway, up: Origin, row: Row, books: Ledger, *, behind: bool) -> None:
    """Run one row and hold the upstream's record against it."""
    before = len(up.seen)
    cut = row.end.startswith("cut")
    octets = filled(GOOD + row.octets if behind else row.octets)
    good = behind and not cut
    statuses = await answers(gateway, row, octets, 1 + good)
    assert statuses == [200] * good + [row.status], row.name
    seen = up.seen[before:]
    assert [masked(one) for one in seen] == [expected(row, up, good=True)] * good + [expected(row, up)] * row.passes
    assert [bytes(one.body) for one in seen[good:]] == [row.body] * row.passes
    assert up.faults == [], row.name
    note(row, books, good=good)


def note(row: Row, books: Ledger, *, good: bool) -> None:
    """Write down what was sent."""
    books.sent(TENANT, good + row.passes)
    if not row.passes:
        books.rejected()


@pytest.mark.parametrize("behind", [False, True], ids=["alone", "behind a good one"])
async def test_grid(gateway: Gateway, up: Origin, behind: bool) -> None:
    """Every row ends as the grid says, and the upstream saw what the grid says and nothing else."""
    assert len({row.name for row in GRID}) == len(GRID) > 200
    wrong = []
    async with balanced(gateway, up) as books:
        for row in GRID:
            try:
                await check(gateway, up, row, books, behind=behind)
            except (AssertionError, TimeoutError) as fault:
                wrong.append(f"{row.name} ({row.clause}): {str(fault)[:900] or 'no answer'}")
                note(row, books, good=False)
        assert not wrong, f"{len(wrong)} rows:\n" + "\n".join(wrong)


@pytest.mark.parametrize("split", [1, 7])
async def test_grid_in_pieces(gateway: Gateway, up: Origin, split: int) -> None:
    """However the octets are cut, a row that may not pass does not, and one that may passes as itself."""
    wrong = []
    for row in GRID[:: 1 if split == 7 else 4]:
        before = len(up.seen)
        async with await Caller.connect(gateway.address) as caller:
            await caller.send(filled(row.octets), split=split)
            answer = await caller.response(row.method, 5)
        # The head of what turned out malformed only later may be there; a whole request may not.
        whole = [one for one in up.seen[before:] if one.ended is not None]
        seen = [masked(one) for one in whole if one.target != b"/hidden"]
        hidden = len(whole) - len(seen)
        if answer.status != row.status or seen != [expected(row, up)] * row.passes or hidden:
            wrong.append(f"{row.name}: {answer.status}, {seen}, {hidden} hidden")
    assert not wrong, "\n".join(wrong)
    await asyncio.sleep(0.1)
