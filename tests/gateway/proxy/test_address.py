"""Whose address a request is charged to."""

from __future__ import annotations

from ipaddress import ip_network

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.proxy.address import LONGEST_WALK, Addresses

TRUSTED = Addresses([ip_network("10.0.0.0/8"), ip_network("2001:db8:ffff::/48"), "unix"])
NOBODY = Addresses([])


def caller(peer: str, xff: str | None = None, forwarded: str | None = None, of: Addresses = TRUSTED) -> str:
    """Return who is charged for a request from `peer`."""
    fields = {b"x-forwarded-for": xff, b"forwarded": forwarded}
    return of.caller(peer, {name: value.encode("latin-1") for name, value in fields.items() if value is not None})


@pytest.mark.parametrize(
    ("peer", "xff", "expected"),
    [
        ("192.0.2.1", None, "192.0.2.1"),
        ("192.0.2.1", "203.0.113.9", "192.0.2.1"),
        ("10.0.0.1", None, "10.0.0.1"),
        ("10.0.0.1", "203.0.113.9", "203.0.113.9"),
        ("10.0.0.1", "198.51.100.1, 203.0.113.9", "203.0.113.9"),
        ("10.0.0.1", "198.51.100.1,203.0.113.9 , 10.1.1.1,10.2.2.2", "203.0.113.9"),
        ("10.0.0.1", "10.3.3.3, 10.1.1.1", "10.3.3.3"),
        ("10.0.0.1", "203.0.113.9:4711", "203.0.113.9"),
        ("10.0.0.1", "[2001:db8::1]:4711", "2001:db8::/64"),
        ("10.0.0.1", "2001:db8:0:5:1:2:3:4", "2001:db8:0:5::/64"),
        ("10.0.0.1", "::ffff:203.0.113.9", "203.0.113.9"),
        ("::ffff:10.0.0.1", "203.0.113.9", "203.0.113.9"),
        ("2001:db8:ffff::1", "203.0.113.9", "203.0.113.9"),
        ("unix", "203.0.113.9", "203.0.113.9"),
        ("unix", None, "unix"),
        ("10.0.0.1", "", "10.0.0.1"),
        ("10.0.0.1", "unknown", "10.0.0.1"),
        ("10.0.0.1", "203.0.113.9, junk", "10.0.0.1"),
        ("10.0.0.1", "junk, 10.1.1.1", "10.0.0.1"),
        ("10.0.0.1", "junk, 203.0.113.9", "203.0.113.9"),
        ("10.0.0.1", "203.0.113.9, ", "10.0.0.1"),
        ("10.0.0.1", "fe80::1%eth0", "10.0.0.1"),
        ("10.0.0.1", "0xcb007109", "10.0.0.1"),
        ("10.0.0.1", "203.0.113.09", "10.0.0.1"),
        ("10.0.0.1", "\xff", "10.0.0.1"),
    ],
)
def test_x_forwarded_for_is_walked_from_the_right(peer: str, xff: str | None, expected: str) -> None:
    """Only trusted peers are believed, the first address that is no proxy is the caller, junk ends the belief."""
    assert caller(peer, xff) == expected


@pytest.mark.parametrize(
    ("forwarded", "expected"),
    [
        ("for=203.0.113.9", "203.0.113.9"),
        ('For="203.0.113.9:80";proto=https;by=10.0.0.1', "203.0.113.9"),
        ('for="[2001:db8::1]:4711"', "2001:db8::/64"),
        ("for=198.51.100.1, for=203.0.113.9;proto=http", "203.0.113.9"),
        ("for=203.0.113.9, for=10.1.1.1", "203.0.113.9"),
        ("proto=https", "10.0.0.1"),
        ("for=_hidden", "10.0.0.1"),
        ("for=unknown", "10.0.0.1"),
        ("for=203.0.113.9;for=203.0.113.8", "10.0.0.1"),
        ('for="203.0.113.9,10.1.1.1"', "10.0.0.1"),
        ('for="203.0.113.9', "10.0.0.1"),
        ("", "10.0.0.1"),
    ],
)
def test_forwarded_is_walked_likewise(forwarded: str, expected: str) -> None:
    """RFC 7239 elements, nearest last; a node without an address ends the belief."""
    assert caller("10.0.0.1", None, forwarded) == expected


def test_fields_that_disagree_are_not_believed() -> None:
    """A proxy that writes one field passes the other on as a caller wrote it: the peer is charged then."""
    assert caller("10.0.0.1", "203.0.113.9", "for=203.0.113.9") == "203.0.113.9"
    assert caller("10.0.0.1", "203.0.113.9", "for=198.51.100.1") == "10.0.0.1"
    assert caller("10.0.0.1", "203.0.113.9", "for=_x") == "10.0.0.1"
    assert caller("10.0.0.1", "_x", "for=203.0.113.9") == "10.0.0.1"


@pytest.mark.parametrize(
    ("peer", "fields", "doubted"),
    [
        ("10.0.0.1", {}, []),
        ("10.0.0.1", {b"x-forwarded-for": b"203.0.113.9"}, []),
        ("10.0.0.1", {b"x-forwarded-for": b"203.0.113.9", b"forwarded": b"for=203.0.113.9"}, []),
        ("10.0.0.1", {b"x-forwarded-for": b"203.0.113.9", b"forwarded": b"for=198.51.100.1"}, ["10.0.0.1"]),
        ("10.0.0.1", {b"x-forwarded-for": b"unknown"}, ["10.0.0.1"]),
        ("203.0.113.1", {b"x-forwarded-for": b"unknown", b"forwarded": b"for=198.51.100.1"}, []),
    ],
)
def test_a_trusted_proxy_that_tells_of_nobody_is_noticed(
    peer: str, fields: dict[bytes, bytes], doubted: list[str]
) -> None:
    """Its callers share its address, which an operator has to know of; what others send is no news."""
    told: list[str] = []
    Addresses((ip_network("10.0.0.0/8"),), 64, told.append).caller(peer, fields)
    assert told == doubted


@pytest.mark.parametrize(
    ("peer", "prefix", "expected"),
    [
        ("2001:db8:1:2:3::4", 64, "2001:db8:1:2::/64"),
        ("2001:db8:1:2:3::4", 48, "2001:db8:1::/48"),
        ("2001:db8:1:2:3::4", 128, "2001:db8:1:2:3::4"),
        ("::ffff:192.0.2.1", 64, "192.0.2.1"),
        ("192.0.2.1", 64, "192.0.2.1"),
        ("unix", 64, "unix"),
    ],
)
def test_an_ipv6_caller_is_its_prefix(peer: str, prefix: int, expected: str) -> None:
    """One subscriber has 2^64 addresses and one bucket; an IPv4 address in IPv6 clothes is the IPv4 address."""
    assert caller(peer, of=Addresses([], prefix)) == expected
    assert caller(peer, of=Addresses([ip_network("10.0.0.0/8")], prefix)) == expected


def test_who_is_trusted() -> None:
    """Networks and, if named, unix sockets; nobody without a word."""
    assert [TRUSTED.trusts(peer) for peer in ("10.9.9.9", "192.0.2.1", "unix", "unknown")] == [True, False, True, False]
    assert not any(NOBODY.trusts(peer) for peer in ("10.9.9.9", "unix", "127.0.0.1"))
    assert not Addresses([ip_network("10.0.0.0/8")]).trusts("unix")


def test_a_long_chain_costs_no_more() -> None:
    """Entries beyond the bound are not looked at, and a trusted chain that long names its farthest hop."""
    assert caller("10.0.0.1", "203.0.113.9," + ",".join(["10.1.1.1"] * LONGEST_WALK)) == "10.1.1.1"
    assert caller("10.0.0.1", "junk," * 10_000 + "203.0.113.9") == "203.0.113.9"


@given(st.sampled_from(["10.0.0.1", "192.0.2.1", "unix"]), st.text(max_size=80), st.text(max_size=80))
def test_any_text_leaves_somebody_to_charge(peer: str, xff: str, forwarded: str) -> None:
    """Whatever is claimed, the caller is an address or the peer itself."""
    xff, forwarded = (text.encode("latin-1", "replace").decode("latin-1") for text in (xff, forwarded))
    assert caller(peer, xff, forwarded)
    assert caller(peer, xff, of=NOBODY) == peer
