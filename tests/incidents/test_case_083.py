"""Case 83: a broken upstream body ends in a broken downstream body, and is the upstream's error."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.wire.caller import Caller, call, request
from tests.wire.gateway import Gateway, running, tenants, token
from tests.wire.ledger import balanced
from tests.wire.origin import Origin
from tests.wire.script import Answer, Ending

__all__: list[str] = []

BODY = b"0123456789" * 100
HEADS = {
    "length": b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n",
    "chunked": b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n",
}
BODIES = {"length": BODY, "chunked": b"".join(b"64\r\n%b\r\n" % BODY[at : at + 100] for at in range(0, 1000, 100))}
#: How much of the body is sent; None is all but the end of it: the last octet, or the last chunk.
PARTS = (0.0, 0.01, 0.5, 0.99, None)


def cut(framing: str, part: float | None, ending: Ending) -> Answer:
    """Return an answer that stops after `part` of its body."""
    head, body = HEADS[framing], BODIES[framing]
    last = 1 if framing == "length" else 0
    sent = body[: len(body) - last if part is None else int(part * len(body))]
    return Answer(raw=head + sent, cut=len(head + sent), ending=ending)


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory, origin: Origin) -> Iterator[Gateway]:
    """Run a gateway whose tenant has plenty."""
    with running(tmp_path_factory.mktemp("gateway"), origin, {"tenants": tenants("a", quota="1000/s")}) as one:
        yield one


@pytest.mark.parametrize("ending", ["reset", "close"])
@pytest.mark.parametrize("part", PARTS)
@pytest.mark.parametrize("framing", HEADS)
async def test_cut_answer_is_never_complete(
    gateway: Gateway, up: Origin, framing: str, part: float | None, ending: Ending
) -> None:
    """Reset or closed after 0, 1, 50, 99 % or just before the end: an error, or a transfer broken in its framing."""
    up.on("/", cut(framing, part, ending))
    before = (gateway.row("a", "24h") or {}).get("upstream_error", 0)
    async with balanced(gateway, up) as books:
        async with await Caller.connect(gateway.address) as caller:
            await caller.send(request("POST", token=token("a"), body=b""))
            answer = await caller.response("POST")
            assert not answer.complete or answer.status == 502
            assert not caller.raw.endswith(b"0\r\n\r\n") or answer.status == 502
            assert answer.status == 502 or BODY.startswith(answer.body)
            if answer.status != 502:
                assert await caller.until_closed()
        books.sent("a")
    row = gateway.row("a", "24h")
    assert row is not None
    assert row["upstream_error"] - before == 1


@pytest.mark.parametrize("framing", HEADS)
async def test_complete_answer_is_complete(gateway: Gateway, up: Origin, framing: str) -> None:
    """Or the cases above would prove nothing."""
    end = b"0\r\n\r\n" if framing == "chunked" else b""
    up.on("/", Answer(raw=HEADS[framing] + BODIES[framing] + end))
    async with balanced(gateway, up) as books:
        answer = await call(gateway.address, request(token=token("a")))
        books.sent("a")
    assert (answer.complete, answer.body) == (True, BODY)


@pytest.mark.parametrize("part", [0.5, None])
async def test_old_caller_sees_a_reset(gateway: Gateway, up: Origin, part: float | None) -> None:
    """To HTTP/1.0 a chunked answer ends with the connection: an end that is not one must not look like it."""
    up.on("/", cut("chunked", part, "reset"))
    octets = request("POST", token=token("a"), body=b"").replace(b"HTTP/1.1", b"HTTP/1.0")
    async with balanced(gateway, up) as books:
        async with await Caller.connect(gateway.address) as caller:
            await caller.send(octets)
            assert await caller.until_closed() == "reset"
        books.sent("a")
