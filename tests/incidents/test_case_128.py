"""Case 128: a gateway that points at itself, or at one that points back, sees the loop and charges once."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from pathlib import Path

from tests.wire.caller import call, request
from tests.wire.gateway import Gateway, free_port, running, tenants, token
from tests.wire.ledger import balanced
from tests.wire.origin import serving
from tests.wire.waiting import SLACK, until

__all__: list[str] = []


@contextlib.contextmanager
def looping(folder: Path, listen: str, upstream: str) -> Iterator[Gateway]:
    """Run a gateway at `listen` in front of `upstream`; the credential goes on."""
    config = {
        "server": {"listen": listen},
        "upstream": {"forward_credential": True},
        "tenants": tenants("a", quota="1000/s"),
    }
    folder.mkdir()
    gateway = Gateway(folder, f"http://{upstream}", config)
    gateway.start()
    try:
        yield gateway
    finally:
        assert gateway.end() == 0


async def test_itself(tmp_path: Path) -> None:
    """One hop, one charge, 508 within a moment."""
    listen = f"127.0.0.1:{free_port()}"
    with looping(tmp_path / "one", listen, listen) as gateway:
        async with balanced(gateway, None) as books:
            started = time.monotonic()
            answer = await call(listen, request(token=token("a")))
            assert time.monotonic() - started < 2 + SLACK
            # The second hop is a request of A's as well.
            books.sent("a", 2)
        assert answer.status == 508
        assert answer.json()["type"].endswith("loop-detected")
        await until(lambda: len(gateway.log_lines()) == 2, "logged")
        lines = gateway.log_lines()
        assert [line["status"] for line in lines] == [508, 508]
        assert (gateway.row("a") or {})["upstream_error"] == 2
        # The second hop was never sent on, so its charge went back: the first is the one that stays.
        assert sum(line["upstream_ms"] is not None for line in lines) == 1


async def test_through_another(tmp_path: Path) -> None:
    """Two gateways that point at each other: two hops, each charged once in its own books."""
    first, second = f"127.0.0.1:{free_port()}", f"127.0.0.1:{free_port()}"
    with looping(tmp_path / "one", first, second) as one, looping(tmp_path / "two", second, first) as two:
        async with balanced(one, None) as books, balanced(two, None) as theirs:
            answer = await call(first, request(token=token("a")))
            books.sent("a", 2)
            theirs.sent("a")
        assert answer.status == 508
        await until(lambda: (len(one.log_lines()), len(two.log_lines())) == (2, 1), "logged")


async def test_chain_without_a_loop(tmp_path: Path) -> None:
    """Via names who was passed; another gateway's name there is no loop."""
    with serving() as up:
        behind = {"tenants": tenants("a", quota="1000/s")}
        (tmp_path / "two").mkdir()
        with running(tmp_path / "two", up, behind) as two:
            front = {**behind, "upstream": {"forward_credential": True}}
            (tmp_path / "one").mkdir()
            with running(tmp_path / "one", f"http://{two.address}", front) as one:
                async with balanced(two, up) as theirs, balanced(one, None) as books:
                    assert (await call(one.address, request(token=token("a")))).status == 200
                    books.sent("a")
                    theirs.sent("a")
        via = up.seen[0].header("via") or ""
        assert via.count("evenhand-") == 2
