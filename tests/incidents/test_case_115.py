"""Case 115: a body is bounded by what it declares and by what is counted; a lying one harms nobody else."""

from __future__ import annotations

import gzip
from collections.abc import Iterator

import pytest

from tests.wire.caller import Caller, call, request
from tests.wire.gateway import Gateway, running, tenants, token
from tests.wire.ledger import balanced
from tests.wire.origin import Origin

__all__: list[str] = []

MOST = 64 * 1024


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory, origin: Origin) -> Iterator[Gateway]:
    """Run a gateway that takes bodies of 64 KiB, and waits for them a second."""
    config = {
        "server": {"max_body_bytes": "64KiB", "body_timeout": "1s"},
        "tenants": tenants("a", "b", quota="1000/s"),
    }
    with running(tmp_path_factory.mktemp("gateway"), origin, config) as one:
        yield one


def announced(length: int) -> bytes:
    """Return the head of an upload of A's."""
    return request("POST", token=token("a"), fields=[("Content-Length", str(length))])


@pytest.mark.parametrize("length", [MOST + 1, 10 << 30])
async def test_declared_too_large(gateway: Gateway, up: Origin, length: int) -> None:
    """413 before an octet of it was sent; the upstream sees nothing, and nothing is charged."""
    async with balanced(gateway, up) as books:
        async with await Caller.connect(gateway.address) as caller:
            await caller.send(announced(length))
            answer = await caller.response("POST")
            assert (answer.status, answer.header("connection")) == (413, "close")
            assert await caller.until_closed() == "eof"
        books.rejected()
    assert up.seen == []


async def test_declared_as_large_as_allowed(gateway: Gateway, up: Origin) -> None:
    """Or the bound would be another one."""
    async with balanced(gateway, up) as books:
        answer = await call(gateway.address, request("POST", token=token("a"), body=b"x" * MOST))
        books.sent("a")
    assert answer.status == 200
    assert up.seen[-1].length == MOST


async def test_chunks_without_end(gateway: Gateway, up: Origin) -> None:
    """413 once more than the bound was counted; the upstream never sees a whole request."""
    async with balanced(gateway, up) as books:
        async with await Caller.connect(gateway.address) as caller:
            await caller.send(request("POST", token=token("a"), fields=[("Transfer-Encoding", "chunked")]))
            for _ in range(100):
                await caller.send(b"1000\r\n" + b"x" * 4096 + b"\r\n")
            answer = await caller.response("POST")
        books.rejected()
        books.turned_back = 1
    assert (answer.status, answer.header("connection")) == (413, "close")
    assert all(seen.ended is None for seen in up.seen)
    assert all(seen.length <= MOST for seen in up.seen)


async def test_one_octet_more_than_declared(gateway: Gateway, up: Origin) -> None:
    """It is no part of the body, and no request either: 400 behind the answer, and what B asks next is B's."""
    async with balanced(gateway, up) as books:
        async with await Caller.connect(gateway.address) as caller:
            await caller.send(announced(10) + b"0123456789")
            assert (await caller.response("POST")).status == 200
            await caller.send(b"\x01")
            assert (await caller.response()).status == 400
            await caller.until_closed()
        books.sent("a")
        books.rejected()
        assert (await call(gateway.address, request(target="/b", token=token("b")))).status == 200
        books.sent("b")
    assert [(seen.header("evenhand-tenant"), seen.target, seen.length) for seen in up.seen] == [
        ("a", b"/", 10),
        ("b", b"/b", 0),
    ]


async def test_one_octet_less_than_declared(gateway: Gateway, up: Origin) -> None:
    """408 after body_timeout; the upstream never sees a whole request, and B's connection is another one."""
    async with balanced(gateway, up) as books:
        async with await Caller.connect(gateway.address) as caller:
            await caller.send(announced(10) + b"012345678")
            answer = await caller.response("POST")
            assert (answer.status, answer.header("connection")) == (408, "close")
        books.rejected()
        books.turned_back = 1
        assert (await call(gateway.address, request(target="/b", token=token("b")))).status == 200
        books.sent("b")
    assert [seen.ended is not None for seen in up.seen] == [False, True]
    assert up.seen[0].connection is not up.seen[1].connection


@pytest.mark.parametrize("coding", ["gzip", "br", "x-unknown"])
@pytest.mark.parametrize("chunked", [False, True])
async def test_encoded_body_is_relayed_untouched(gateway: Gateway, up: Origin, coding: str, chunked: bool) -> None:
    """Bounded as it is sent, whatever it would become: 30 MB in 30 KB pass octet by octet."""
    body = gzip.compress(bytes(30 << 20))
    assert len(body) < MOST
    octets = request("POST", token=token("a"), fields=[("Content-Encoding", coding)], body=body, chunked=chunked)
    async with balanced(gateway, up) as books:
        assert (await call(gateway.address, octets)).status == 200
        books.sent("a")
    assert bytes(up.seen[-1].body) == body
    assert up.seen[-1].header("content-encoding") == coding
