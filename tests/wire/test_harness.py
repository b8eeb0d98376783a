"""The harness starts, reads, balances and stops a gateway, and notices each fault that it exists to notice."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from tests.wire import ledger
from tests.wire.caller import Caller, request
from tests.wire.gateway import Gateway, Metrics, running
from tests.wire.ledger import balanced
from tests.wire.load import at_once, offer
from tests.wire.origin import Origin, serving
from tests.wire.script import Answer

__all__: list[str] = []


@pytest.fixture
def up() -> Iterator[Origin]:
    """Run a scripted upstream."""
    with serving() as origin:
        yield origin


@pytest.fixture(autouse=True)
def _standin(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Gateway, "command", ("tests.wire.standin", "serve"))
    monkeypatch.setattr(ledger, "QUIET_SECONDS", 0.3)


async def send_two(gateway: Gateway) -> None:
    """Send two requests on one connection."""
    tally = await offer(gateway.address, request(), rate=100, seconds=0.02, connections=1)
    assert tally.admitted == 2


async def test_sound_gateway_balances_and_ends_well(tmp_path: Path, up: Origin) -> None:
    """What is served and counted adds up; the process ends with code 0."""
    with running(tmp_path, up, {}) as gateway:
        async with balanced(gateway, up) as books:
            await send_two(gateway)
            books.sent("a", 2)
        assert up.by_tenant() == {"a": 2}
        assert gateway.memory() > 0
        row = gateway.row("a")
        assert row is not None
        assert row["served"] == 2
        assert gateway.row("nobody") is None
    assert not gateway.running


@pytest.mark.parametrize("fault", ["lost", "invented", "stuck", "own-500", "traceback"])
async def test_ledger_notices(tmp_path: Path, up: Origin, fault: str) -> None:
    """Each part of the ledger rule fails on a gateway that breaks it."""

    async def case() -> None:
        with running(tmp_path, up, {}, {"STANDIN_FAULT": fault}) as gateway:
            async with balanced(gateway, up) as books:
                await send_two(gateway)
                books.sent("a", 2)

    with pytest.raises(AssertionError):
        await case()


async def test_ledger_notices_a_socket_left_open(tmp_path: Path, up: Origin) -> None:
    """A connection that outlives its case is found."""
    with running(tmp_path, up, {}) as gateway:
        before = ledger.Ledger(gateway, up)
        # More than one, since the one that asked whether it serves may just be closing.
        async with AsyncExitStack() as left_open:
            for _ in range(4):
                await left_open.enter_async_context(await Caller.connect(gateway.address))
            with pytest.raises(AssertionError, match="sockets open"):
                await before.balance()
        await before.balance()


def test_bad_exit_code_is_noticed(tmp_path: Path, up: Origin) -> None:
    """A process that ends with another code than 0 fails its test."""
    with pytest.raises(AssertionError, match="exit code 3"), running(tmp_path, up, {}, {"STANDIN_FAULT": "exit"}):
        pass


def test_gateway_that_never_starts_is_noticed_with_its_words(
    tmp_path: Path, up: Origin, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A start that ends at once fails with what the process said."""
    monkeypatch.setattr(Gateway, "command", ("no_such_module",))
    with pytest.raises(AssertionError, match="no_such_module"), running(tmp_path, up, {}):
        pass


async def test_barrier_and_pace(up: Origin) -> None:
    """Loads count what came back, by status and by second."""
    where = up.address.removeprefix("http://")
    up.on("/no", Answer(429, fields=(("Evenhand-Refused", "key"),)))
    burst = await at_once(where, [request(target="/no")] * 5 + [request()] * 5)
    assert (burst.statuses, burst.limits()) == ({200: 5, 429: 5}, {"key": 5})
    pace = await offer(where, lambda number: request(target=f"/{number}"), rate=50, seconds=1.2)
    assert pace.admitted == 60
    assert pace.elapsed > 1.1
    assert sum(pace.per_second()) == 60
    assert {seen.target for seen in up.seen} >= {b"/0", b"/59"}


def test_scrape_is_read_by_name_and_label() -> None:
    """Samples are summed by the labels that are given."""
    scrape = Metrics('# TYPE x counter\nx_total{a="1",b="1"} 2\nx_total{a="1",b="2"} 3\n# TYPE y gauge\ny 4\n')
    assert scrape.sum("x_total", a="1") == 5
    assert scrape.value("x_total", b="2") == 3
    assert (scrape.value("y"), scrape.value("z")) == (4, None)
    assert scrape.by("b", "x_total") == {"1": 2, "2": 3}
