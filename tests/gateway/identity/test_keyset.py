"""Key sets at an address: the last good one serves, and nobody waits for a fetch."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Iterator
from typing import Any

import orjson
import pytest

from gateway.identity import keyset
from gateway.identity.keyset import COOL_DOWN, REFRESH, UNKNOWN_FOR, KeySet
from policies.units import SECOND, Micros
from tests.gateway.identity.tokens import ManualClock, jwk_of, rsa_key
from tests.wire.origin import Origin, serving
from tests.wire.script import Answer

__all__: list[str] = []

STALE = 24 * 3600 * SECOND


def document(*kids: str) -> Answer:
    """Return an answer with a key for each of `kids`."""
    return Answer(body=orjson.dumps({"keys": [jwk_of(rsa_key(kid), kid=kid) for kid in kids]}))


@pytest.fixture
def up() -> Iterator[Origin]:
    """Run one server of keys."""
    with serving() as one:
        yield one


class Kept:
    """A key set being kept, its clock, and how often it said that it changed."""

    def __init__(self, up: Origin, stale_us: Micros = STALE) -> None:
        self.clock = ManualClock()
        self.changes = 0
        self.set = KeySet(
            "https://id.example.com",
            f"{up.address}/jwks",
            ["RS256"],
            stale_us=stale_us,
            allow_private=True,
            clock=self.clock,
            changed=self.change,
        )

    def change(self) -> None:
        self.changes += 1

    def has(self, kid: str | None = "k1") -> bool:
        return self.set.find(kid, "RS256") is not None


@contextlib.asynccontextmanager
async def kept(key_set: KeySet) -> AsyncIterator[None]:
    """Keep a set for the length of a `with`, after its first fetch."""
    key_set.tried.clear()
    task = asyncio.create_task(key_set.run())
    await key_set.tried.wait()
    try:
        yield
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def until(count: int, up: Origin) -> None:
    """Wait until `count` requests have arrived and been answered."""
    async with asyncio.timeout(30):
        while len(up.seen) < count:
            await asyncio.sleep(0.01)
        await asyncio.sleep(0.2)


async def test_keys_are_found_once_they_were_fetched(up: Origin) -> None:
    """Before that there are none; a key is found by its id and its one algorithm."""
    one = Kept(up)
    up.on("/jwks", document("k1"))
    assert not one.has()
    async with kept(one.set):
        assert one.has()
        assert not one.has("k2")
        assert one.set.find("k1", "HS256") is None
        assert one.has(None), "the only key there is"
    assert one.changes == 1
    assert one.set.warning() is None


async def test_the_last_good_set_serves_until_it_is_stale(up: Origin) -> None:
    """A fault wipes nothing; at `jwks_stale` the keys end, and come back with the next good answer."""
    one = Kept(up)
    up.on("/jwks", document("k1"))
    async with kept(one.set):
        assert one.has()
    for fault in (Answer(status=503), Answer(body=b"not json"), Answer(body=b"{}"), Answer(body=b'{"keys": [{}]}')):
        up.on("/jwks", fault)
        async with kept(one.set):
            assert one.has()
            assert "cannot be refreshed" in (one.set.warning() or "")
    one.clock.us += STALE - 1
    assert one.has()
    assert one.set.age_us() == STALE - 1
    one.clock.us += 1
    assert not one.has()
    assert "beyond jwks_stale" in (one.set.warning() or "")
    up.on("/jwks", document("k1"))
    async with kept(one.set):
        assert one.has()
    assert one.changes == 2, "what was remembered of tokens ended with the stale set"


async def test_going_stale_ends_what_was_remembered(up: Origin) -> None:
    """The keeper wakes up for it, though no fetch succeeds."""
    one = Kept(up, stale_us=300_000)
    one.clock = one.set._clock = RealTime()
    up.then(document("k1"))
    up.on("/jwks", Answer(status=503))
    async with kept(one.set):
        assert one.has()
        async with asyncio.timeout(30):
            while one.changes < 2:
                await asyncio.sleep(0.02)
        assert not one.has()


class RealTime(ManualClock):
    """A manual clock that moves by itself."""

    def now(self) -> Micros:
        return time.monotonic_ns() // 1000


async def test_a_withdrawn_key_ends_with_the_next_fetch(up: Origin) -> None:
    """And says so, so that tokens it verified are looked at again."""
    one = Kept(up)
    up.on("/jwks", document("k1", "k2"))
    async with kept(one.set):
        assert one.has("k2")
    up.on("/jwks", document("k1"))
    async with kept(one.set):
        assert one.has()
        assert not one.has("k2")
    assert one.changes == 2


async def test_an_unknown_kid_asks_for_a_refresh_once(up: Origin) -> None:
    """Within the cool-down no other does; the same kid does not again for a while; a new key is found by it."""
    one = Kept(up)
    up.then(document("k1"))
    up.on("/jwks", document("k1", "new"))
    async with kept(one.set):
        assert not one.has("new"), "the request itself waits for nothing"
        await until(2, up)
        assert one.has("new")
        for n in range(500):
            assert not one.has(f"made-up-{n}")
        await asyncio.sleep(0.1)
        assert len(up.seen) == 2, "the cool-down holds"
        one.clock.us += COOL_DOWN
        assert not one.has("made-up-0")
        await until(3, up)
        one.clock.us += COOL_DOWN
        assert not one.has("made-up-0")
        await asyncio.sleep(0.1)
        assert len(up.seen) == 3, "asked for before, and not there"
        one.clock.us += UNKNOWN_FOR
        assert not one.has("made-up-0")
        await until(4, up)


async def test_kids_that_nobody_would_use_ask_for_nothing(up: Origin) -> None:
    """100 kB of kid is neither looked for nor remembered."""
    one = Kept(up)
    up.on("/jwks", document("k1"))
    async with kept(one.set):
        assert not one.has("k" * 100_000)
        assert not one.has("")
        await until(2, up)
        assert len(one.set._unknown) == 1


async def test_a_failed_fetch_is_tried_again_soon(up: Origin, monkeypatch: pytest.MonkeyPatch) -> None:
    """With growing pauses, not only at the next refresh."""
    monkeypatch.setattr(keyset, "_FIRST_RETRY", 20_000)
    one = Kept(up)
    one.set._clock = RealTime()
    up.then(Answer(status=503), Answer(status=503), Answer(ending="reset", cut=0))
    up.on("/jwks", document("k1"))
    async with kept(one.set):
        assert not one.has()
        assert "there is none yet" in (one.set.warning() or "")
        await until(4, up)
        assert one.has()
    assert REFRESH > 60 * SECOND


@pytest.mark.parametrize(
    ("change", "taken"), [({}, True), ({"url": "/other"}, False), ({"algorithms": ["ES256"]}, False)]
)
async def test_a_reload_keeps_the_set_that_stays_the_same(up: Origin, change: dict[str, Any], taken: bool) -> None:
    """The same address and algorithms; then its own `jwks_stale` counts from when it was fetched."""
    one, other = Kept(up), Kept(up, stale_us=10 * SECOND)
    up.on("/jwks", document("k1"))
    async with kept(one.set):
        pass
    other.set._url = f"{up.address}{change.get('url', '/jwks')}"
    other.set._algorithms = tuple(change.get("algorithms", ["RS256"]))
    other.set.adopt(one.set)
    assert other.has() is taken
    other.clock.us += 10 * SECOND
    assert not other.has()
