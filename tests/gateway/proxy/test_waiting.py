"""A request whose caller is not known yet: it waits for that alone, and every way out of the wait is counted once."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from gateway.ports import Headers, Rejection, Resolution
from gateway.proxy.exchange import Exchange
from gateway.proxy.parse import Head
from tests.gateway.proxy.house import House, Told, head, write

__all__: list[str] = []


class Asking:
    """A resolver that must ask first; `answer` lets it find out."""

    def __init__(self, house: House) -> None:
        self._resolver = house.pipeline._resolver
        self.silent: Rejection | None = None
        self.waiting: list[Callable[[], None]] = []
        self.known = False

    def resolve(self, headers: Headers, address: str, *, preflight: bool) -> Resolution:
        found = self._resolver.resolve(headers, address, preflight=preflight)
        return found if self.silent is None else Resolution(found.principal, self.silent, posture="closed")

    def ask(self, headers: Headers, address: str, resume: Callable[[], None]) -> Callable[[], None] | None:
        if self.known:
            return None
        self.waiting.append(resume)
        return lambda: self.waiting.remove(resume)

    def answer(self, *, known: bool = True) -> None:
        self.known = known
        waiting, self.waiting = self.waiting, []
        for resume in waiting:
            resume()


@pytest.fixture
def house(tmp_path: Path) -> House:
    """Return a gateway that must ask about everybody."""
    one = House(write(tmp_path))
    one.pipeline.reload(one.policies, Asking(one))
    return one


def asking(house: House) -> Asking:
    """Return its resolver."""
    resolver = house.pipeline._resolver
    assert isinstance(resolver, Asking)
    return resolver


def begun(house: House, of: Head | None = None) -> tuple[Exchange, Told]:
    """Begin a request, which then waits."""
    exchange, told = house.begin(of or head())
    assert not exchange.over
    assert house.upstream.calls == []
    assert told.status == 0
    return exchange, told


def test_it_goes_on_when_the_caller_is_known(house: House) -> None:
    """As if it had just begun: charged, forwarded, settled once."""
    exchange, told = begun(house)
    asking(house).answer()
    house.call.respond()
    assert (told.status, exchange.over) == (200, True)
    assert house.books.ends == [("served", 200, "")]
    assert house.call.field("evenhand-tenant") == b"acme"
    assert house.pipeline.in_flight == 0


def test_a_body_that_came_meanwhile_is_passed_on(house: House) -> None:
    """The source keeps it, and says that it is complete once more when it is asked for."""
    exchange, told = begun(house, head("/", "POST", content_length="3"))
    exchange.body_end()
    asking(house).answer()
    assert told.wanted == [True]
    exchange.body(b"abc")
    exchange.body_end()
    assert (bytes(house.call.body), house.call.did) == (b"abc", ["finish"])
    house.call.respond()
    assert house.books.ends == [("served", 200, "")]


def test_a_reload_meanwhile_asks_anew(house: House) -> None:
    """By the resolver in force; nobody is answered for having waited through it."""
    _, told = begun(house)
    before = asking(house)
    house.pipeline.reload(house.policies, Asking(house))
    before.answer(known=False)
    assert told.status == 0
    assert len(asking(house).waiting) == 1
    asking(house).answer()
    house.call.respond()
    assert house.books.ends == [("served", 200, "")]


def test_a_caller_that_leaves_is_aborted_and_takes_its_wish_back(house: House) -> None:
    """Before a verdict; nobody was charged, for nobody knows who it was."""
    exchange, _ = begun(house)
    exchange.caller_gone()
    exchange.caller_gone()
    assert asking(house).waiting == []
    assert house.books.ends == [("aborted", 0, "")]
    assert house.books.settled[0].verdict is None
    assert house.pipeline.in_flight == 0


def test_a_body_that_stalls_meanwhile_is_answered(house: House) -> None:
    """The server's own fault with it counts as rejected, once."""
    exchange, told = begun(house, head("/", "POST", content_length="3"))
    exchange.turn_back(Rejection(408, "request-timeout", ""))
    asking(house).answer()
    assert told.status == 408
    assert house.books.ends == [("rejected", 408, "")]


def test_nobody_can_say_who_it_is(house: House) -> None:
    """503 and Retry-After, charged to nobody, counted as the service's failing and under its posture."""
    asking(house).silent = Rejection(503, "identity-unavailable", "Silent.")
    _, told = begun(house)
    asking(house).answer()
    assert (told.status, told.field("retry-after"), told.field("evenhand-refused")) == (503, "1", None)
    assert house.books.ends == [("upstream_error", 503, "")]
    (decision,) = house.books.settled
    assert decision.notes == {"posture": "closed"}
    assert decision.verdict is None


def test_a_bug_in_what_follows_is_one_answer(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    """As it would be had nobody waited."""
    _, told = begun(house)
    monkeypatch.setattr(house.front, "ways", ())
    asking(house).answer()
    assert told.status == 500
    assert house.books.ends == [("upstream_error", 500, "")]


def test_in_shadow_silence_refuses_nobody(tmp_path: Path) -> None:
    """It goes on as nobody's, and is counted as what it would have been."""
    house = House(write(tmp_path, server='mode = "shadow"'))
    resolver = Asking(house)
    house.pipeline.reload(house.policies, resolver)
    resolver.silent = Rejection(503, "identity-unavailable", "Silent.")
    begun(house)
    resolver.answer()
    house.call.respond()
    (decision,) = house.books.settled
    assert decision.notes == {"rejected": "identity-unavailable", "posture": "closed"}
    assert house.call.field("evenhand-tenant") is None
