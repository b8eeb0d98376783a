"""Opaque tokens known to another service: asked once, remembered, and its silence answered by the posture."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs

import httpx
import pytest

from gateway.clock import Clock
from gateway.identity import introspection as introspecting
from gateway.identity.background import Background
from gateway.identity.resolver import INVALID, UNAVAILABLE, CredentialResolver, build_resolver
from gateway.ports import Headers, Resolution
from policies.request import Kind, Principal
from policies.units import SECOND
from tests.clock import EPOCH, StandingClock
from tests.gateway.identity.configured import ADDRESS, PAT_A, configured
from tests.wire.origin import Origin, Seen, serving
from tests.wire.script import HANG, Answer
from tests.wire.waiting import until

__all__: list[str] = []

GOOD = {"active": True, "tenant": "acme", "sub": "svc"}


@pytest.fixture
def up() -> Iterator[Origin]:
    """Run one introspection service; it knows every token that begins with `good`."""
    with serving() as one:
        one.on("/introspect", knows)
        yield one


def knows(seen: Seen) -> Answer:
    """Answer as a service would, once the form has arrived."""

    def body() -> Iterator[bytes]:
        token = parse_qs(seen.body.decode())["token"][0]
        yield json.dumps(GOOD if token.startswith("good") else {"active": False}).encode()

    return Answer(body=body, framing="chunked")


@pytest.fixture(autouse=True)
def _patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a busy machine answer late."""
    monkeypatch.setattr(introspecting, "TIMEOUT_SECONDS", 30.0)


class Asked:
    """A resolver whose introspection runs, at a time that stands until a test moves it."""

    def __init__(self, resolver: CredentialResolver, clock: StandingClock) -> None:
        self.resolver, self.clock = resolver, clock

    async def who(self, token: str, address: str = ADDRESS) -> Resolution:
        """Return who presented `token`, having asked if need be."""
        headers = bearer(token)
        known = asyncio.Event()
        assert self.resolver.ask is not None
        if self.resolver.ask(headers, address, known.set) is not None:
            async with asyncio.timeout(60):
                await known.wait()
        return self.resolver.resolve(headers, address, preflight=False)


def bearer(token: str) -> Headers:
    """Return header fields with `token`."""
    return [(b"authorization", b"Bearer " + token.encode())]


@contextlib.asynccontextmanager
async def asking(tmp_path: Path, up: Origin, **section: Any) -> AsyncIterator[Asked]:
    """Run a resolver with introspection at `up` for the length of a `with`."""
    entry = {"url": f"{up.address}/introspect", "client_id": "evenhand", "client_secret": "s3cret"} | section
    clock = StandingClock()
    resolver = build_resolver(configured(tmp_path, introspection=entry), clock)
    background = Background("test")
    background.start()
    assert resolver.introspection is not None
    resolver.introspection.bind(background, asyncio.get_running_loop())
    background.serve([resolver.introspection.run])
    try:
        yield Asked(resolver, clock)
    finally:
        background.stop()
        await asyncio.sleep(0)


async def test_a_token_is_asked_about_once_and_remembered(tmp_path: Path, up: Origin) -> None:
    """RFC 7662: a form POST with our credentials; twenty at once are one question; then none until `cache` is over."""
    async with asking(tmp_path, up, cache="300ms") as asked:
        found = await asyncio.gather(*(asked.who("good-1") for _ in range(20)))
        assert {one.principal for one in found} == {Principal(Kind.USER, "acme", "svc", expires_us=9 * 10**15)}
        assert all(one.consumed and one.rejection is None for one in found)
        (seen,) = up.seen
        assert (seen.method, seen.header("content-type")) == ("POST", "application/x-www-form-urlencoded")
        assert parse_qs(seen.body.decode())["token"] == ["good-1"]
        assert seen.header("authorization") == httpx.BasicAuth("evenhand", "s3cret")._auth_header
        await asked.who("good-1")
        assert len(up.seen) == 1
        asked.clock.at += 350_000
        await asked.who("good-1")
        assert len(up.seen) == 2


async def test_a_revoked_token_lives_no_longer_than_the_cache(tmp_path: Path, up: Origin) -> None:
    """And what is not active is 401, remembered as long."""
    async with asking(tmp_path, up, cache="200ms") as asked:
        assert (await asked.who("good")).rejection is None
        up.on("/introspect", Answer(body=b'{"active": false}'))
        asked.clock.at += 250_000
        assert (await asked.who("good")).rejection is INVALID
        assert (await asked.who("good")).rejection is INVALID
        assert len(up.seen) == 2


@pytest.mark.parametrize(
    "answer",
    [
        {"active": True},
        GOOD | {"tenant": "other"},
        GOOD | {"tenant": 7},
        GOOD | {"sub": ""},
        GOOD | {"sub": "a\nb"},
        GOOD | {"tenant": "unheard-of"},
        GOOD | {"exp": 1},
        GOOD | {"exp": "tomorrow"},
        GOOD | {"exp": True},
        GOOD | {"exp": -1e308},
        {"active": False, "tenant": "acme", "sub": "svc"},
    ],
)
async def test_what_the_answer_does_not_say_is_not_believed(tmp_path: Path, up: Origin, answer: dict[str, Any]) -> None:
    """Ids as everywhere, only the tenants it may speak for, and nothing that has ended."""
    up.on("/introspect", Answer(body=json.dumps(answer).encode()))
    async with asking(tmp_path, up, tenants=["acme"]) as asked:
        assert (await asked.who("good")).rejection is INVALID
        assert asked.resolver.introspection is not None
        assert asked.resolver.introspection.warning() is None


async def test_exp_ends_it_before_the_cache_does(tmp_path: Path, up: Origin) -> None:
    """A remembered answer is not used beyond the token's own end."""
    up.on("/introspect", Answer(body=json.dumps(GOOD | {"exp": EPOCH // SECOND + 1}).encode()))
    async with asking(tmp_path, up, cache="1h") as asked:
        assert (await asked.who("good")).rejection is None
        asked.clock.at += 1_100_000
        up.on("/introspect", Answer(body=b'{"active": false}'))
        assert (await asked.who("good")).rejection is INVALID


SILENCE = [
    HANG,
    Answer(status=500),
    Answer(status=401),
    Answer(status=307, fields=(("Location", "/elsewhere"),)),
    Answer(body=b"nonsense"),
    Answer(body=b"[]"),
    Answer(body=b'{"active": "yes"}'),
    Answer(cut=0, ending="reset"),
    Answer(body=b"x" * 300_000),
]


@pytest.mark.parametrize("silence", SILENCE)
async def test_silence_is_bounded_and_told(
    tmp_path: Path, up: Origin, silence: Answer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever goes wrong there, closed is 503 here: the token may be good. It is nobody's failed attempt."""
    monkeypatch.setattr(introspecting, "TIMEOUT_SECONDS", 0.3 if silence is HANG else 30.0)
    up.on("/introspect", silence)
    async with asking(tmp_path, up) as asked:
        found = await asked.who("good")
        assert found.rejection is UNAVAILABLE
        assert (found.principal.kind, found.posture) == (Kind.REJECTED, "closed")
        arrived = len(up.seen)
        assert (await asked.who("good")).rejection is UNAVAILABLE
        assert len(up.seen) == arrived, "for a moment after its failure a token is left alone"
        assert asked.resolver.introspection is not None
        assert "posture closed decides" in (asked.resolver.introspection.warning() or "")
        up.on("/introspect", knows)
        monkeypatch.setattr(introspecting, "TIMEOUT_SECONDS", 30.0)
        asked.clock.at += introspecting._DOWN
        assert (await asked.who("good")).rejection is None
        assert asked.resolver.introspection.warning() is None


async def test_postures(tmp_path: Path, up: Origin) -> None:
    """Open goes on as nobody, its credential left; deny:N closes to N per cent; safe-capacity keeps the last known."""
    down = Answer(status=500)
    up.on("/introspect", down)
    for posture in ("open", "deny:0"):
        async with asking(tmp_path, up, posture=posture) as asked:
            found = await asked.who("good")
            assert (found.principal.kind, found.rejection, found.consumed) == (Kind.ANONYMOUS, None, False)
            assert (found.principal.credential, found.posture) == (ADDRESS, posture)
    async with asking(tmp_path, up, posture="deny:30") as asked:
        closed = [(await asked.who(f"good-{n}")).rejection for n in range(400)]
        assert 80 <= closed.count(UNAVAILABLE) <= 160
        assert [(await asked.who(f"good-{n}")).rejection for n in range(400)] == closed
    up.on("/introspect", knows)
    async with asking(tmp_path, up, posture="safe-capacity", cache="0s") as asked:
        known = await asked.who("good")
        await asked.who("bad")
        up.on("/introspect", down)
        asked.clock.at += 100_000
        assert (await asked.who("good")).principal == known.principal
        assert (await asked.who("bad")).rejection is UNAVAILABLE
        assert (await asked.who("good-2")).rejection is UNAVAILABLE


async def test_one_address_keeps_nobody_elses_token_from_being_asked_about(tmp_path: Path, up: Origin) -> None:
    """Sixteen tokens of one address wait at a time; the rest of its flood is answered by the posture at once."""
    up.on("/introspect", lambda seen: replace(knows(seen), delay=0.3))
    async with asking(tmp_path, up) as asked:
        flood = [asyncio.create_task(asked.who(f"made-up-{n}", "192.0.2.66")) for n in range(200)]
        await asyncio.sleep(0)
        assert (await asked.who("good")).rejection is None
        refused = [one.rejection for one in await asyncio.gather(*flood)]
        assert (refused.count(INVALID), refused.count(UNAVAILABLE)) == (16, 184)
        assert len(up.seen) == 17


@pytest.mark.parametrize("status", [400, 401, 404, 413, 414, 422])
async def test_an_odd_token_is_its_own_trouble(tmp_path: Path, up: Origin, status: int) -> None:
    """From however many addresses: what the service makes of one token says nothing of the next."""
    up.on("/introspect", odd(Answer(status=status)))
    async with asking(tmp_path, up) as asked:
        for number in range(12):
            assert (await asked.who(f"odd-{number}", f"192.0.2.{number}")).rejection is UNAVAILABLE
        assert (await asked.who("good" * 10)).rejection is None


def odd(answer: Answer) -> Callable[[Seen], Answer]:
    """Return a service that answers so while an odd token was the last to be seen, told by its length."""
    return lambda seen: knows(seen) if int(seen.header("content-length") or 0) > 70 else answer


@pytest.mark.parametrize("status", [500, 503, 429])
async def test_an_outage_is_what_several_addresses_meet(tmp_path: Path, up: Origin, status: int) -> None:
    """One stranger cannot make it; then nobody is asked for a moment, and the first answer ends it."""
    up.on("/introspect", odd(Answer(status=status)))
    good = "good" * 10
    async with asking(tmp_path, up) as asked:
        for number in range(12):
            await asked.who(f"odd-{number}", "192.0.2.66")
        assert (await asked.who(good)).rejection is None
        for number in range(3):
            await asked.who(f"odder-{number}", f"192.0.2.{number}")
        arrived = len(up.seen)
        assert (await asked.who(good + "2")).rejection is UNAVAILABLE
        assert len(up.seen) == arrived
        asked.clock.at += introspecting._DOWN
        assert (await asked.who(good + "2")).rejection is None
        assert (await asked.who(good + "3")).rejection is None


async def test_a_token_in_use_waits_for_no_second_answer(tmp_path: Path, up: Origin) -> None:
    """It is asked about again before its answer ends; revoked, it is refused by then."""
    async with asking(tmp_path, up, cache="400ms") as asked:
        await asked.who("good")
        ask, introspection = asked.resolver.ask, asked.resolver.introspection
        assert ask is not None
        assert introspection is not None
        for number in range(60):
            assert ask(bearer("good"), ADDRESS, lambda: None) is None, number
            assert asked.resolver.resolve(bearer("good"), ADDRESS, preflight=False).rejection is None
            await until(lambda: not introspection._waiting, "it was asked about again")
            asked.clock.at += 20_000
        assert len(up.seen) >= 4
        up.on("/introspect", Answer(body=b'{"active": false}'))
        asked.clock.at += 400_000
        assert (await asked.who("good")).rejection is INVALID


async def test_what_was_good_does_not_stand_behind_strangers(tmp_path: Path, up: Origin) -> None:
    """Forty addresses keep every turn busy with tokens that are slow to judge; a known one is judged before them."""
    async with asking(tmp_path, up, cache="0s") as asked:
        good = "good" * 10
        assert (await asked.who(good)).rejection is None
        up.on("/introspect", odd(Answer(body=b'{"active": false}', held=True)))
        asked.clock.at += 200_000
        flood = [asyncio.create_task(asked.who(f"odd-{n}", f"192.0.2.{n}")) for n in range(40)]
        await asyncio.sleep(0.2)
        assert (await asked.who(good)).rejection is None
        assert not any(one.done() for one in flood)
        up.release()
        assert {one.rejection for one in await asyncio.gather(*flood)} == {INVALID}


async def test_only_what_nobody_else_knows_is_asked_about(tmp_path: Path, up: Origin) -> None:
    """Our own tokens, tokens of configured issuers, two credentials, none, and what is no token stay here."""
    async with asking(tmp_path, up) as asked:
        ask = asked.resolver.ask
        assert ask is not None
        jwt_of_ours = "eyJhbGciOiJIUzI1NiJ9.eyJpc3MiOiJodHRwczovL2lkLmV4YW1wbGUuY29tIn0.AAAA"
        for headers in (
            *map(bearer, (PAT_A, PAT_A[:-1], "evh_job_x", jwt_of_ours, "x" * 20_000, "caf\u00e9")),
            [],
            [*bearer("good-1"), (b"x-api-key", b"good-2")],
        ):
            assert ask(headers, ADDRESS, lambda: None) is None, headers
        assert asked.resolver.resolve(bearer("x" * 20_000), ADDRESS, preflight=False).rejection is INVALID
        assert (await asked.who("eyJhbGciOiJub25lIn0.eyJpc3MiOiJlbHNld2hlcmUifQ.")).rejection is INVALID
        assert len(up.seen) == 1, "a JWT of an issuer that is not configured may be known there"


async def test_a_wish_can_be_taken_back(tmp_path: Path, up: Origin) -> None:
    """Who leaves is not called; the answer is remembered all the same."""
    up.on("/introspect", Answer(body=json.dumps(GOOD).encode(), delay=0.2))
    called: list[int] = []
    async with asking(tmp_path, up) as asked:
        assert asked.resolver.ask is not None
        cancel = asked.resolver.ask(bearer("good"), ADDRESS, lambda: called.append(1))
        assert cancel is not None
        cancel()
        cancel()
        await asyncio.sleep(0.4)
        assert called == []
        assert (await asked.who("good")).rejection is None
        assert len(up.seen) == 1


def test_without_anybody_to_ask_nobody_waits(tmp_path: Path) -> None:
    """A resolver that was only built, as by `evenhand check`, answers by the posture."""
    entry = {"url": "http://127.0.0.1:9/", "client_id": "e", "client_secret": "s"}
    resolver = build_resolver(configured(tmp_path, introspection=entry), Clock())
    assert resolver.ask is not None
    assert resolver.ask(bearer("good"), ADDRESS, lambda: None) is None
    assert resolver.resolve(bearer("good"), ADDRESS, preflight=False).rejection is UNAVAILABLE
    assert build_resolver(configured(tmp_path), Clock()).ask is None
