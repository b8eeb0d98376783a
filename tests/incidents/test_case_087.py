"""Case 87: a caller that leaves ends its upstream call, wherever that is; half a close is no leaving."""

from __future__ import annotations

import contextlib
import socket
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.wire.caller import Caller, request
from tests.wire.gateway import Gateway, running, tenants, token
from tests.wire.ledger import balanced
from tests.wire.origin import Origin
from tests.wire.script import HANG, Answer
from tests.wire.waiting import SLACK, until

__all__: list[str] = []

OCTETS = request(token=token("a"))
LEAVING: dict[str, Callable[[Caller], None]] = {"closes": Caller.close, "resets": Caller.reset}


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory, origin: Origin) -> Iterator[Gateway]:
    """Run a gateway whose tenant has two seats."""
    config = {"tenants": tenants("a", quota="1000/s", concurrency=2)}
    with running(tmp_path_factory.mktemp("gateway"), origin, config) as one:
        yield one


async def ended(up: Origin) -> None:
    """Wait until the connection of the last request is closed by the gateway."""
    connection = up.seen[-1].connection
    await until(lambda: connection.closed in {"eof", "reset"}, "the upstream call ends", 1.0 + SLACK)


async def logged(gateway: Gateway, so_far: int = 0) -> tuple[str, int]:
    """Wait for the line of the log after `so_far` ones; return the outcome and status it tells."""
    await until(lambda: len(gateway.log_lines()) > so_far, "it is logged")
    line = gateway.log_lines()[so_far]
    return line["outcome"], line["status"]


@pytest.mark.parametrize("leaving", LEAVING)
@pytest.mark.parametrize("body", [None, b"x" * 1000])
async def test_gone_before_the_head(gateway: Gateway, up: Origin, leaving: str, body: bytes | None) -> None:
    """The upstream is silent: its connection closes at once, the seat is free, the books say aborted."""
    up.on("/", HANG)
    lines = len(gateway.log_lines())
    async with balanced(gateway, up) as books:
        async with await Caller.connect(gateway.address) as caller:
            await caller.send(request("POST" if body else "GET", token=token("a"), body=body))
            await until(lambda: up.seen and (not body or up.seen[-1].ended), "the request is upstream")
            LEAVING[leaving](caller)
            await ended(up)
            await until(lambda: gateway.metrics().sum("evenhand_in_flight") == 0, "its seat is free")
        books.sent("a")
    assert (await logged(gateway, lines))[0] == "aborted"


@pytest.mark.parametrize("leaving", LEAVING)
async def test_gone_inside_its_own_body(gateway: Gateway, up: Origin, leaving: str) -> None:
    """Half of the announced body came: the upstream never sees a whole request."""
    lines = len(gateway.log_lines())
    async with balanced(gateway, up) as books:
        async with await Caller.connect(gateway.address) as caller:
            await caller.send(request("POST", token=token("a"), body=b"x" * 1000)[:-500])
            await until(lambda: up.seen and up.seen[-1].length == 500, "half of it is upstream")
            LEAVING[leaving](caller)
            await ended(up)
        books.sent("a")
    assert up.seen[-1].ended is None
    assert (await logged(gateway, lines))[0] == "aborted"


@pytest.mark.parametrize("leaving", LEAVING)
async def test_gone_inside_the_answer(gateway: Gateway, up: Origin, leaving: str) -> None:
    """After receiving some of a stream: the upstream call ends at once, and the request was served."""
    up.on("/", Answer(body=lambda: [b"x" * 100] * 100_000, framing="chunked", gap=0.01))
    lines = len(gateway.log_lines())
    async with balanced(gateway, up) as books:
        async with await Caller.connect(gateway.address) as caller:
            await caller.send(OCTETS)
            await caller.head()
            LEAVING[leaving](caller)
            await ended(up)
        books.sent("a")
    assert await logged(gateway, lines) == ("served", 200)


async def test_gone_while_nothing_is_read_of_it(gateway: Gateway, up: Origin) -> None:
    """A stream that its caller does not read, so that we do not read the caller either: leaving is still seen."""
    up.on("/", Answer(body=lambda: [b"x" * 65536] * 10_000, framing="chunked"))
    lines = len(gateway.log_lines())
    async with balanced(gateway, up) as books:
        async with await Caller.connect(gateway.address) as caller:
            await caller.send(OCTETS)
            await caller.head()
            caller.pause()
            await until(lambda: quiet(up), "back-pressure reaches the upstream")
            caller.reset()
            await ended(up)
        books.sent("a")
    assert await logged(gateway, lines) == ("served", 200)


def quiet(up: Origin) -> bool:
    """Return whether a peer of the upstream has octets that it cannot send."""
    return any(peer.stuck for peer in list(up.peers))


async def test_half_a_close_is_no_goodbye(gateway: Gateway, up: Origin) -> None:
    """Who only ends its sending side gets its answer."""
    up.on("/", Answer(delay=0.3, body=b"after all"))
    lines = len(gateway.log_lines())
    async with balanced(gateway, up) as books:
        async with await Caller.connect(gateway.address) as caller:
            await caller.send(OCTETS)
            caller.half_close()
            answer = await caller.response()
        books.sent("a")
    assert (answer.complete, answer.body) == (True, b"after all")
    assert await logged(gateway, lines) == ("served", 200)


@contextlib.contextmanager
def deaf() -> Iterator[str]:
    """Listen without ever taking a connection, the backlog full: whoever connects waits."""
    with contextlib.ExitStack() as stack:
        listener = stack.enter_context(socket.socket())
        listener.bind(("127.0.0.1", 0))
        listener.listen(0)
        for _ in range(4):
            filler = stack.enter_context(socket.socket())
            filler.setblocking(False)
            filler.connect_ex(listener.getsockname())
        time.sleep(0.05)
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"


@pytest.mark.parametrize("leaving", LEAVING)
async def test_gone_while_connecting(tmp_path: Path, up: Origin, leaving: str) -> None:
    """No connection stands yet: the attempt ends, the seat is free, and the charge is given back."""
    with deaf() as address:
        config = {
            "upstream": {"connect_timeout": "20s"},
            "upstreams": {"ok": {"url": up.address}},
            "routes": [{"name": "ok", "path": "/ok", "upstream": "ok"}],
            "tenants": tenants("a", quota="1/h burst 1", concurrency=1),
        }
        with running(tmp_path, address, config) as gateway:
            async with balanced(gateway, up) as books:
                async with await Caller.connect(gateway.address) as caller:
                    await caller.send(OCTETS)
                    await until(lambda: gateway.metrics().sum("evenhand_in_flight") == 1, "it is connecting")
                    LEAVING[leaving](caller)
                    await until(lambda: gateway.metrics().sum("evenhand_in_flight") == 0, "it ends", 1.0 + SLACK)
                books.sent("a", 2)
                assert (await logged(gateway))[0] == "aborted"
                async with await Caller.connect(gateway.address) as caller:
                    await caller.send(request(target="/ok", token=token("a")))
                    assert (await caller.response()).status == 200
