"""Whatever is rejected before it is decided is somebody's: the books say whose, and what was asked for."""

from __future__ import annotations

from pathlib import Path
from typing import NoReturn

import pytest

from gateway.ports import Rejection
from gateway.proxy.exchange import Exchange
from gateway.proxy.guard import Limits
from gateway.proxy.lane import Door
from gateway.proxy.parse import Head
from tests.gateway.proxy.house import House, head, write

__all__: list[str] = []


@pytest.fixture
def house(tmp_path: Path) -> House:
    """Return a gateway that trusts a load balancer."""
    return House(write(tmp_path, server='trusted_proxies = ["10.0.0.0/8"]'))


LB = "10.0.0.1"
FOR = ("x-forwarded-for", "203.0.113.9, 10.0.0.2")
AT = ("host", "api.example.com")


@pytest.mark.parametrize(
    ("line", "fields", "rejected", "seen"),
    [
        (("GET", "/\\a", "1.1"), (AT, FOR), 400, ("203.0.113.9", "GET", "/%5Ca")),
        (("GET", "//?token=secret", "1.1"), (AT, FOR), 400, ("203.0.113.9", "GET", "//")),
        (("GET", "/\\a", "1.1"), (AT, FOR, ("forwarded", "for=192.0.2.1")), 400, (LB, "GET", "/%5Ca")),
        (("GET", "/\\a", "1.1"), (AT,), 400, (LB, "GET", "/%5Ca")),
        (("GET", "http://user:secret@a/b", "1.1"), (AT, FOR), 400, ("203.0.113.9", "GET", "")),
        (("GET", "*", "1.1"), (AT, FOR), 400, ("203.0.113.9", "GET", "*")),
        (("GE T", "/a", "1.1"), (AT, FOR), 400, ("203.0.113.9", "", "/a")),
        (("CONNECT", "a:443", "1.1"), (AT, FOR), 405, ("203.0.113.9", "CONNECT", "")),
        (("GET", "/a", "1.2"), (AT, FOR), 505, ("203.0.113.9", "GET", "/a")),
        (("GET", "/" + "a" * 40_000, "1.1"), (AT, FOR), 414, ("203.0.113.9", "GET", "/" + "a" * 1023)),
        (("GET", "/a", "1.1"), (AT, FOR, ("x", "a" * 40_000)), 431, ("203.0.113.9", "GET", "/a")),
        (("GET", "/a", "1.1"), (AT, *[("x-forwarded-for", LB)] * 101), 431, (LB, "GET", "/a")),
        (("GET", "/a", "1.1"), (FOR,), 400, ("203.0.113.9", "GET", "/a")),
        (("GET", "/a", "1.1"), (AT, FOR, ("content-length", "+1")), 400, ("203.0.113.9", "GET", "/a")),
    ],
)
def test_whatever_is_rejected_is_somebodys(
    house: House, line: tuple[str, str, str], fields: tuple[tuple[str, str], ...], rejected: int,
    seen: tuple[str, str, str],
) -> None:  # fmt: skip
    """The books have the address, by the rules for trusted proxies, and of the line what can be told."""
    method, target, version = line
    listed = [(name.encode(), value.encode()) for name, value in fields]
    told = house.ask(Head(method.encode(), target.encode(), listed, LB, version=version))
    [decision] = house.books.settled
    facts = decision.facts
    assert (told.status, decision.principal.credential) == (rejected, seen[0])
    assert (facts.address, facts.method, facts.path) == seen
    assert told.field("x-request-id") == decision.request_id


@pytest.mark.interpreted
def test_a_bug_before_anything_is_known_is_somebodys_too(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    """The answer and the books name the same request, and the peer."""

    def broken(*_: object) -> NoReturn:
        raise RuntimeError("broken")

    monkeypatch.setattr(Exchange, "_begin", broken)
    _, told = house.begin(head("/a?b"))
    [decision] = house.books.settled
    assert (told.status, decision.facts.address, decision.facts.path) == (500, "192.0.2.7", "/a")
    assert told.field("x-request-id") == decision.request_id


@pytest.mark.parametrize(("peer", "named"), [("192.0.2.7", "192.0.2.7"), ("2001:db8::7", "2001:db8::/64")])
def test_a_fault_of_a_connection_is_its_peers(house: House, peer: str, named: str) -> None:
    """By the name under which its requests are charged, an IPv6 one by its prefix."""
    post = Door(house.front, Limits(1, 1, 1, 1, 1, 0)).post
    post.faulty(Rejection(400, "bad-framing", ""), peer)
    post.turned_away(peer)
    assert [one.facts.address for one in house.books.settled] == [named, named]
