"""What the resolver remembers: good tokens until they end, bad ones for a moment, none of them in full."""

from __future__ import annotations

from pathlib import Path

import pytest

from gateway.identity import keys
from gateway.identity.credentials import Presented
from gateway.identity.resolver import INVALID, build_resolver
from gateway.ports import Resolution, Resolver
from policies.units import SECOND
from tests.gateway.identity.configured import (
    ADDRESS,
    PAT_A,
    configured,
    flipped,
)
from tests.gateway.identity.tokens import NOW, ManualClock, claims, hs256

__all__: list[str] = []


class Counting:
    """Counts how often signatures are checked."""

    def __init__(self, resolver: Resolver, monkeypatch: pytest.MonkeyPatch) -> None:
        self.count = 0
        real = keys.Key.verify

        def verify(key: keys.Key, signed: bytes, signature: bytes) -> bool:
            self.count += 1
            return real(key, signed, signature)

        monkeypatch.setattr(keys.Key, "verify", verify)
        self.resolver = resolver

    def ask(self, token: bytes) -> Resolution:
        return self.resolver.resolve([(b"authorization", b"Bearer " + token)], ADDRESS, preflight=False)


def test_a_verified_token_is_remembered_until_it_ends(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One signature check for as long as `cache`, never beyond `exp`; the very same resolution each time."""
    clock = ManualClock()
    asked = Counting(build_resolver(configured(tmp_path, cache="60s"), clock), monkeypatch)
    token, brief = hs256(claims()), hs256(claims(exp=NOW + 10))
    first = asked.ask(token)
    assert asked.ask(token) is first
    assert asked.count == 1
    asked.ask(brief)
    clock.us += 10 * SECOND
    assert asked.ask(brief).rejection is INVALID
    assert asked.count == 2, "an expired token is refused before its signature is looked at"
    clock.us += 51 * SECOND
    assert asked.ask(token) == first
    assert asked.count == 3
    clock.us += 600 * SECOND
    assert asked.ask(token).rejection is INVALID


def test_a_bad_token_is_remembered_for_a_moment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever repeats it costs a hash; a token that was early becomes good within seconds."""
    clock = ManualClock()
    asked = Counting(build_resolver(configured(tmp_path), clock), monkeypatch)
    forged = flipped(hs256(claims()))
    for _ in range(5):
        assert asked.ask(forged).rejection is INVALID
    assert asked.count == 1
    early = hs256(claims(nbf=NOW + 33))
    assert asked.ask(early).rejection is INVALID
    clock.us += 5 * SECOND
    assert asked.ask(early).rejection is None


def test_bad_tokens_displace_no_good_ones_and_fill_no_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ten thousand different bad ones later the good one is still remembered, and they are not."""
    resolver = build_resolver(configured(tmp_path), ManualClock())
    asked = Counting(resolver, monkeypatch)
    token = hs256(claims())
    first = asked.ask(token)
    for n in range(10_000):
        asked.ask(b"opaque-%d" % n)
    assert asked.ask(token) is first
    assert len(resolver._bad) <= 4096
    assert len(resolver._good) == 1


def test_no_token_is_kept(tmp_path: Path) -> None:
    """Neither the resolver nor what it answers holds a token or a secret of a caller."""
    resolver = build_resolver(configured(tmp_path), ManualClock())
    tokens = [hs256(claims()), PAT_A.encode(), b"opaque-credential-of-somebody"]
    answers = [resolver.resolve([(b"x-api-key", token)], ADDRESS, preflight=False) for token in tokens]
    text = repr([*answers, resolver._good.young, resolver._bad._entries.young])
    for token in tokens:
        assert token.decode() not in text


def test_strangers_take_bounded_memory(tmp_path: Path) -> None:
    """One principal per address, as long as it is used."""
    resolver = build_resolver(configured(tmp_path), ManualClock())
    first = resolver.resolve([], ADDRESS, preflight=False)
    assert resolver.resolve([], ADDRESS, preflight=False) is first
    for n in range(9000):
        resolver.resolve([], f"10.{n >> 8}.{n & 255}.1", preflight=False)
    assert len(resolver._strangers[False][Presented.NOTHING]._known) <= 4096
