"""Case 97: an expectation is met here, once the request is admitted; what is left of a body is never a request."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest

from tests.wire.caller import Caller, request
from tests.wire.gateway import Gateway, running, tenant, tenants, token
from tests.wire.ledger import balanced
from tests.wire.origin import Origin
from tests.wire.script import Answer
from tests.wire.waiting import until

__all__: list[str] = []

#: A body that would be a request, if somebody took it for one.
BODY = b"GET /forbidden HTTP/1.1\r\nHost: a\r\n\r\n".ljust(200)
EXPECT = ("Expect", "100-continue")


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory, origin: Origin) -> Iterator[Gateway]:
    """Run a gateway with a key that is refused and one that is not."""
    config = {"tenants": [tenant("refused", quota="0/s"), *tenants("a", quota="1000/s")]}
    with running(tmp_path_factory.mktemp("gateway"), origin, config) as one:
        yield one


def head(who: str, length: int = len(BODY), method: str = "POST", expect: tuple[str, str] = EXPECT) -> bytes:
    """Return a head that announces a body and expects."""
    return request(method, "/a", token=token(who), fields=[expect, ("Content-Length", str(length))])


@pytest.mark.parametrize("method", ["POST", "GET", "PUT"])
async def test_refused_key_gets_no_100(gateway: Gateway, up: Origin, method: str) -> None:
    """429 and the end of the connection; the body that comes all the same is nobody's request."""
    async with balanced(gateway, up) as books:
        async with await Caller.connect(gateway.address) as caller:
            await caller.send(head("refused", method=method))
            answer = await caller.response(method)
            assert (answer.status, answer.interim, answer.header("connection")) == (429, [], "close")
            await caller.send(BODY)
            await caller.until_closed()
        books.sent("refused")
    assert up.seen == []


async def test_admitted_key_gets_one_100(gateway: Gateway, up: Origin) -> None:
    """Before its body, once; a body that comes unasked needs none."""
    async with balanced(gateway, up) as books, await Caller.connect(gateway.address) as caller:
        await caller.send(head("a"))
        await until(lambda: b"100 Continue" in caller.raw, "a 100")
        await caller.send(BODY)
        answer = await caller.response()
        assert (answer.status, [one.start.split()[1] for one in answer.interim]) == (200, [b"100"])
        await caller.send(head("a") + BODY)
        assert (await caller.response()).interim == []
        books.sent("a", 2)
    assert [bytes(seen.body) for seen in up.seen] == [BODY, BODY]
    assert all(seen.all("expect") == [] for seen in up.seen)


@pytest.mark.parametrize("status", [413, 429, 200])
@pytest.mark.parametrize("sends", [True, False])
async def test_early_answer_of_the_upstream(gateway: Gateway, up: Origin, status: int, sends: bool) -> None:
    """It is passed on; a body sent after it is discarded, one never sent ends with the connection."""
    up.then(Answer(status, early=True, ending="close"))
    async with balanced(gateway, up) as books, await Caller.connect(gateway.address) as caller:
        await caller.send(head("a"))
        assert (await caller.response()).status == status
        books.sent("a")
        if sends:
            await caller.send(BODY + request(target="/next", token=token("a")))
            answer = await caller.response()
            if answer.status:
                # The connection was kept: the next request is the next request.
                assert answer.status == 200
                books.sent("a")
    assert b"/forbidden" not in [seen.target for seen in up.seen]
    assert len(up.seen) <= 2


@pytest.mark.parametrize("expect", ["y 100-continue", "100-continue, 100-continue", "200-ok", "100-Continue;x"])
async def test_other_expectations(gateway: Gateway, up: Origin, expect: str) -> None:
    """417, and nothing of the body is read as a request."""
    async with balanced(gateway, up) as books:
        async with await Caller.connect(gateway.address) as caller:
            await caller.send(head("a", expect=("Expect", expect)) + BODY)
            answer = await caller.response()
            assert answer.status == 417
            await asyncio.sleep(0.05)
            assert caller.raw.count(b"HTTP/1.1 4") == 1
        books.rejected()
    assert up.seen == []


async def test_without_a_body_there_is_nothing_to_expect(gateway: Gateway, up: Origin) -> None:
    """RFC 9110 section 10.1.1: a request with no content is answered, without a 100."""
    async with balanced(gateway, up) as books:
        async with await Caller.connect(gateway.address) as caller:
            await caller.send(head("a", 0, "GET"))
            answer = await caller.response()
            assert (answer.status, answer.interim) == (200, [])
        books.sent("a")
