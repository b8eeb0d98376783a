"""Case 103: what is forwarded is the target as it came, but for a documented prefix."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.wire.caller import Caller, request
from tests.wire.gateway import Gateway, running, tenants, token
from tests.wire.ledger import balanced
from tests.wire.origin import Origin

__all__: list[str] = []

TARGETS = [
    "/", "/a", "/a/", "/a/b/c", "/a%2Fb", "/a%2fb", "/a%25b", "/a%252fb", "/a%20b+c", "/%41%7e%7E-._~", "/caf%C3%A9",
    "/caf%c3%a9", "/a;b=c/d;e", "/*'()!$&,=:@", "/a?", "/a?b", "/a?b=", "/a?=b", "/a?b=1&b=2&b", "/a?b&&c", "/a?;c;d",
    "/a?b=%2F%2f%25%00", "/a?b=c?d=/../e//f", "/a?%", "/a?%zz", "/a?" + "q" * 4096, "/" + "x/" * 200, "/a?b=%C3%A9+%20",
    "/.a", "/a.", "/...", "/a/...", "/%2e%2ea", "/a%2e",
]  # fmt: skip


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory, origin: Origin) -> Iterator[Gateway]:
    """Run a gateway without routes."""
    with running(tmp_path_factory.mktemp("gateway"), origin, {"tenants": tenants("a", quota="100000/s")}) as one:
        yield one


@pytest.fixture(scope="module")
def prefixed(tmp_path_factory: pytest.TempPathFactory, origin: Origin) -> Iterator[Gateway]:
    """Run one that strips a prefix, in front of an upstream with a base path."""
    config = {
        "routes": [{"name": "v1", "path": "/v1/**", "strip_prefix": "/v1"}],
        "tenants": tenants("a", quota="100000/s"),
    }
    with running(tmp_path_factory.mktemp("prefixed"), origin.address + "/base", config) as one:
        yield one


async def arrived(gateway: Gateway, up: Origin, targets: list[str]) -> list[str]:
    """Send each of `targets` on one connection; return what arrived."""
    async with balanced(gateway, up) as books, await Caller.connect(gateway.address) as caller:
        for target in targets:
            await caller.send(request(target=target, token=token("a")))
            assert (await caller.response()).status == 200, target
            books.sent("a")
    return [seen.target.decode() for seen in up.seen]


async def test_target_is_forwarded_octet_for_octet(gateway: Gateway, up: Origin) -> None:
    """Escapes, their case, empty and repeated parameters, all of it."""
    assert await arrived(gateway, up, TARGETS) == TARGETS


async def test_target_that_is_split_is_the_same(gateway: Gateway, up: Origin) -> None:
    """Whatever the packets."""
    async with balanced(gateway, up) as books, await Caller.connect(gateway.address) as caller:
        for target in TARGETS[:12]:
            await caller.send(request(target=target, token=token("a")), split=3)
            assert (await caller.response()).status == 200
            books.sent("a")
    assert [seen.target.decode() for seen in up.seen] == TARGETS[:12]


async def test_prefix_is_all_that_changes(prefixed: Gateway, up: Origin) -> None:
    """A stripped prefix goes, a base path comes, and the rest is what it was."""
    targets = [target for target in TARGETS if target != "/"]
    seen = await arrived(prefixed, up, ["/v1" + target for target in targets])
    assert seen == ["/base" + target for target in targets]
