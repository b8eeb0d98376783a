"""Case 95: a chunk ends in CR LF exactly; extensions and trailers are bounded, dropped, and never fields."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import pytest

from tests.wire.caller import Caller, call, request
from tests.wire.gateway import Gateway, running, tenants, token
from tests.wire.ledger import balanced
from tests.wire.origin import Origin
from tests.wire.waiting import SLACK

__all__: list[str] = []

GOOD = b"5\r\nhello\r\n6;a=b\r\n world\r\n0\r\n\r\n"


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory, origin: Origin) -> Iterator[Gateway]:
    """Run a gateway with plenty for A."""
    config = {"tenants": tenants("a", quota="100000/s burst 100000"), "server": {"body_timeout": "1s"}}
    with running(tmp_path_factory.mktemp("gateway"), origin, config) as one:
        yield one


def chunked(body: bytes) -> bytes:
    """Return a request of A's with a chunked body as given."""
    octets = request("POST", "/a", token=token("a"), fields=[("Transfer-Encoding", "chunked")])
    return octets + body


@pytest.mark.parametrize("ending", [b"XX", b"\n\n", b"\r\r", b"", b"\n", b"\r", b"\n\r", b"\r\n\r\n", b"\x00\x00"])
async def test_every_line_end_is_cr_lf(gateway: Gateway, up: Origin, ending: bytes) -> None:
    """Any other octets in its place are 400, and the upstream never has a whole request."""
    async with balanced(gateway, up) as books:
        for place in [at for at in range(len(GOOD)) if GOOD[at : at + 2] == b"\r\n"][:4]:
            answer = await call(gateway.address, chunked(GOOD[:place] + ending + GOOD[place + 2 :]))
            assert (answer.status, answer.header("connection")) == (400, "close")
            books.rejected()
    assert [seen for seen in up.seen if seen.ended] == []


async def test_however_it_is_cut(gateway: Gateway, up: Origin) -> None:
    """The same body in all splits of two arrives as the same octets, extensions dropped."""
    async with balanced(gateway, up) as books:
        octets = chunked(GOOD)
        start = len(octets) - len(GOOD)
        async with await Caller.connect(gateway.address) as caller:
            for at in range(start, len(octets)):
                await caller.send(octets, split=[at])
                assert (await caller.response()).status == 200
                books.sent("a")
    assert {bytes(seen.body) for seen in up.seen} == {b"hello world"}
    assert b"a=b" not in b"".join(bytes(one.raw) for one in up.connections)


@pytest.mark.parametrize(
    "body",
    [
        b"5;" + b"x" * (1 << 20) + b"\r\nhello\r\n0\r\n\r\n",
        b"5\r\nhello\r\n0\r\n" + b"".join(b"X-%d: %b\r\n" % (n, b"y" * 100) for n in range(1000)) + b"\r\n",
        b"5\r\nhello\r\n0\r\nX: " + b"y" * (1 << 20) + b"\r\n\r\n",
    ],
    ids=["extension", "many trailers", "one trailer"],
)
async def test_beside_a_body_there_is_a_bound(gateway: Gateway, up: Origin, body: bytes) -> None:
    """A megabyte of anything but body is 431 within a second."""
    async with balanced(gateway, up) as books:
        async with await Caller.connect(gateway.address) as caller:
            await caller.send(chunked(b""))
            await caller.send(body, split=8192)
            assert (await caller.response(within=3 + SLACK)).status == 431
        books.rejected()
        # Its head was with the upstream when it turned out to be none.
        books.retries = 1
    assert [seen for seen in up.seen if seen.ended] == []


TRAILERS = ["Authorization: Bearer other", "Host: evil", "X-Forwarded-For: 1.2.3.4", "Evenhand-Tenant: b", "X: y"]


async def test_trailers_are_nobodys_fields(gateway: Gateway, up: Origin) -> None:
    """One by one and all together, they change neither who asks nor what arrives."""
    async with balanced(gateway, up) as books:
        for count in (1, len(TRAILERS)):
            for lines in itertools.islice(itertools.combinations(TRAILERS, count), 5):
                trailers = "".join(f"{line}\r\n" for line in lines).encode()
                assert (await call(gateway.address, chunked(b"5\r\nhello\r\n0\r\n" + trailers + b"\r\n"))).status == 200
                books.sent("a")
    for seen in up.seen:
        assert (seen.header("evenhand-tenant"), seen.trailers, bytes(seen.body)) == ("a", [], b"hello")
        assert seen.all("x") == seen.all("authorization") == []
