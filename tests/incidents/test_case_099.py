"""Case 99: what a caller names in Connection goes first, what the gateway adds comes last."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from tests.wire.caller import call, request
from tests.wire.gateway import Gateway, running, tenants, token
from tests.wire.ledger import balanced
from tests.wire.origin import Origin, Seen

__all__: list[str] = []

OURS = [
    "Via",
    "X-Forwarded-For",
    "X-Forwarded-Host",
    "X-Forwarded-Proto",
    "X-Request-Id",
    "Evenhand-Tenant",
    "Evenhand-Credential",
    "Evenhand-Class",
]


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory, origin: Origin) -> Iterator[Gateway]:
    """Run a gateway with plenty for A."""
    with running(tmp_path_factory.mktemp("gateway"), origin, {"tenants": tenants("a", quota="1000/s")}) as one:
        yield one


def odd(name: str) -> str:
    """Return `name` in odd case."""
    return "".join(letter.upper() if at % 2 else letter.lower() for at, letter in enumerate(name))


SPELLINGS: dict[str, Callable[[str], list[tuple[str, str]]]] = {
    "plain": lambda name: [("Connection", f"close, {name}")],
    "odd case": lambda name: [("cOnnection", f"CLOSE, {odd(name)}")],
    "two lines": lambda name: [("Connection", "close"), ("Connection", name)],
    "underscore": lambda name: [("Connection", name.replace("-", "_"))],
    "empty members": lambda name: [("Connection", f",, {name} ,")],
    "tab": lambda name: [("Connection", f"close,\t{name}\t")],
    "with a value": lambda name: [("Connection", name), (name, "forged"), (name.replace("-", "_"), "forged")],
}


@pytest.mark.parametrize("name", OURS)
async def test_no_field_of_ours_can_be_named_away(gateway: Gateway, up: Origin, name: str) -> None:
    """However Connection names it, every field that the gateway adds arrives once, with the gateway's value."""
    async with balanced(gateway, up) as books:
        for spelled in SPELLINGS.values():
            octets = request(target="/a", token=token("a"), fields=spelled(name))
            assert (await call(gateway.address, octets)).status == 200
            books.sent("a")
    assert len(up.seen) == len(SPELLINGS)
    for seen in up.seen:
        check(seen)


def check(seen: Seen) -> None:
    """Hold one request against what the gateway must have added."""
    found = {ours: seen.header(ours) for ours in OURS}
    assert all(found.values()), found
    assert (found["Evenhand-Tenant"], found["Evenhand-Credential"], found["Evenhand-Class"]) == (
        "a",
        "ci",
        "interactive",
    )
    assert (found["X-Forwarded-For"], found["X-Forwarded-Proto"]) == ("127.0.0.1", "http")
    # Via is continued; whoever comes from outside may write whatever it likes in front of us.
    assert b"forged" not in seen.raw.replace(b"via: forged, forged, ", b"via: ")
    assert seen.all("connection") == []


@pytest.mark.parametrize("name", ["Host", "Content-Length", "Authorization"])
async def test_nor_what_makes_it_a_request(gateway: Gateway, up: Origin, name: str) -> None:
    """Host and framing are written anew; the credential is consumed before anything is dropped."""
    async with balanced(gateway, up) as books:
        octets = request("POST", "/a", token=token("a"), body=b"hello", fields=[("Connection", name)])
        assert (await call(gateway.address, octets)).status == 200
        books.sent("a")
    assert (bytes(up.seen[0].body), up.seen[0].header("evenhand-tenant")) == (b"hello", "a")
