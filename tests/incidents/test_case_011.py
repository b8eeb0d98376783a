"""Case 11: forwarded addresses count only from configured peers, walked from the right."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from tests.wire.caller import call, request
from tests.wire.gateway import running
from tests.wire.ledger import balanced
from tests.wire.origin import Origin
from tests.wire.waiting import until

__all__: list[str] = []

FIVE = {"anonymous_quota": "1/h burst 5"}


def forged(draw: random.Random) -> list[tuple[str, str]]:
    """Return fields that claim other addresses, in every name that something somewhere believes."""
    one, two = (f"198.51.{draw.randrange(256)}.{draw.randrange(256)}" for _ in range(2))
    names = ("X-Forwarded-For", "X_Forwarded_For", "X-Real-IP", "X-Client-IP", "True-Client-IP", "CF-Connecting-IP")
    fields = [(name, f"{one}, {two}") for name in names]
    return [*fields, ("Forwarded", f'for={one};proto=https, for="[2001:db8::{draw.randrange(9999):x}]"')]


async def test_nobody_untrusted_chooses_its_address(tmp_path: Path, up: Origin) -> None:
    """100 requests with random claims are five of one address, and the upstream is told that address alone."""
    draw = random.Random(11)
    with running(tmp_path, up, {"auth": FIVE}) as gateway:
        async with balanced(gateway, up) as books:
            answers = [await call(gateway.address, request(fields=forged(draw))) for _ in range(100)]
            books.sent("anonymous", 100)
        warnings = gateway.ask("/readyz").json()["warnings"]
        said = "callers behind 127.0.0.1 share one address"
        await until(lambda: said in gateway.stderr, "it says so")
        assert gateway.stderr.count(said) == 1
    assert [answer.status for answer in answers] == [200] * 5 + [429] * 95
    assert {seen.header("x-forwarded-for") for seen in up.seen} == {"127.0.0.1"}
    for seen in up.seen:
        assert not seen.all("forwarded") + seen.all("x-real-ip")
        assert not [name for name, _ in seen.fields if b"_" in name]
    named = "127.0.0.1 sends Forwarded or X-Forwarded-For and is not in trusted_proxies"
    remedy = "callers behind 127.0.0.1 share one address; add it to trusted_proxies"
    assert [told for told in warnings if "trusted_proxies" in told] == [f"{named}: {remedy}"]


@pytest.mark.parametrize("name", ["X-Forwarded-For", "Forwarded"])
async def test_a_trusted_peer_is_walked_from_the_right(tmp_path: Path, up: Origin, name: str) -> None:
    """Whatever callers wrote to the left, the hop that the last proxy saw is who pays; the chain is rebuilt."""

    def chain(*hops: str) -> str:
        quoted = [f'"[{hop}]"' if ":" in hop else hop for hop in hops]
        return ", ".join(hops if name == "X-Forwarded-For" else [f"for={hop};proto=https" for hop in quoted])

    server = {"trusted_proxies": ["127.0.0.0/8", "10.0.0.0/8"]}
    with running(tmp_path, up, {"auth": FIVE, "server": server}) as gateway:
        async with balanced(gateway, up) as books:
            for left in range(10):
                fields = [(name, chain(f"1.1.1.{left}", "203.0.113.7", "10.9.9.9"))]
                status = (await call(gateway.address, request(fields=fields))).status
                assert status == (200 if left < 5 else 429), left
            other = await call(gateway.address, request(fields=[(name, chain("203.0.113.7", "203.0.113.8"))]))
            mapped = await call(gateway.address, request(fields=[(name, chain("::ffff:203.0.113.7"))]))
            assert (other.status, mapped.status) == (200, 429), "an IPv4 address in IPv6 is the IPv4 address"
            for junk in ("unknown", "_hidden", "999.1.1.1", "a b"):
                assert (await call(gateway.address, request(fields=[(name, chain(junk))]))).status == 200, junk
            six = [(name, chain(f"2001:db8:0:1::{host:x}")) for host in range(1, 8)]
            pays = [(await call(gateway.address, request(fields=[field]))).status for field in six]
            assert pays == [200] * 5 + [429] * 2, "one IPv6 network is one caller"
            books.sent("anonymous", 23)
    if name == "X-Forwarded-For":
        assert up.seen[0].header("x-forwarded-for") == "1.1.1.0, 203.0.113.7, 10.9.9.9, 127.0.0.1"
