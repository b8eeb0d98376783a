"""Who goes when there are more connections than descriptors; with guests that say how long they have waited."""

from __future__ import annotations

from ipaddress import ip_network

import pytest

from gateway.proxy.address import Addresses
from gateway.proxy.crowd import LOOK, Crowd, room

__all__: list[str] = []


class Guest:
    """A connection that has waited since `since`, or is busy (0.0). `looks` counts how often anybody was asked."""

    looks = 0

    def __init__(self, peer: str, since: float = 0.0) -> None:
        self.peer = peer
        self.since = since
        self.gone = False

    def waits_since(self) -> float:
        Guest.looks += 1
        return self.since

    def shed(self) -> None:
        self.gone = True


def crowd(most: int = 0, trusted: str = "10.0.0.1/32") -> Crowd:
    """Return one that may be `most`."""
    addresses = Addresses([ip_network(trusted)])
    made = Crowd(addresses.name, addresses.trusts)
    made.most = most
    return made


def enter(of: Crowd, *guests: Guest, cap: int = 0, now: float = 100.0) -> list[bool]:
    """Let some in, one after another; whoever is turned away leaves, as a connection that is closed does."""
    found = []
    for guest in guests:
        found.append(of.enter(guest, cap, now))
        if not found[-1]:
            of.leave(guest)
    return found


def test_a_subscriber_is_one_address() -> None:
    """Of IPv6 the prefix counts; an IPv4 address is the same however it is written."""
    held = crowd()
    assert enter(held, *[Guest(f"2001:db8::{number}") for number in range(1, 5)], cap=2) == [True, True, False, False]
    assert enter(held, Guest("2001:db8:0:1::1"), Guest("::ffff:192.0.2.1"), Guest("192.0.2.1"), cap=1) == [
        True,
        True,
        False,
    ]
    assert held.counts() == {"2001:db8::/64": 2, "2001:db8:0:1::/64": 1, "192.0.2.1": 1}


def test_the_longest_waiting_of_the_fullest_goes() -> None:
    """The address that holds most loses, its longest idle first; others keep theirs, however long idle."""
    held = crowd(most=4)
    old = Guest("192.0.2.1", 1.0)
    many = [Guest("192.0.2.2", since) for since in (5.0, 3.0, 4.0)]
    assert enter(held, old, *many, Guest("192.0.2.3"), Guest("192.0.2.4")) == [True] * 6
    assert [guest.gone for guest in (old, *many)] == [False, False, True, True]
    assert (len(held), held.shed) == (4, 2)


def test_who_is_owed_something_stays() -> None:
    """Where all that the fullest holds is busy the next fullest loses, where all is busy the new one goes."""
    held = crowd(most=5)
    idle = [Guest("192.0.2.2", 2.0), Guest("192.0.2.2", 1.0)]
    assert enter(held, *[Guest("192.0.2.1") for _ in range(3)], *idle, Guest("192.0.2.3")) == [True] * 6
    assert [guest.gone for guest in idle] == [False, True]
    idle[0].since = 0.0
    assert enter(held, Guest("192.0.2.4"), now=101.0) == [False]
    assert len(held) == 5


def test_nobody_loses_one_to_whoever_holds_more() -> None:
    """An address whose own connections are all busy takes none from those that have fewer."""
    held = crowd(most=4)
    idle = Guest("192.0.2.2", 1.0)
    assert enter(held, *[Guest("192.0.2.1") for _ in range(3)], idle, Guest("192.0.2.1")) == [True] * 4 + [False]
    assert not idle.gone


def test_of_equals_the_one_that_never_asked_goes() -> None:
    """A thousand addresses of one caller that ask for nothing do not push out who was served, though idle longer."""
    held = crowd(most=40)
    served = [Guest(f"192.0.2.{number}", 1.0) for number in range(20)]
    assert all(enter(held, *served))
    for guest in served:
        held.proven(guest)
    for number in range(1000):
        guest = Guest(f"198.51.{number >> 8}.{number & 255}", 50.0 + number)
        assert enter(held, guest, now=100.0 + number) == [True]
    assert not any(guest.gone for guest in served)


def test_proxies_go_last() -> None:
    """A proxy of ours speaks for many: it has no cap, and loses an idle connection only where nobody else has one."""
    held = crowd(most=4)
    proxied = [Guest("10.0.0.1", 1.0) for _ in range(3)]
    other = Guest("192.0.2.1", 2.0)
    assert enter(held, *proxied, other, Guest("192.0.2.2"), cap=1) == [True] * 5
    assert other.gone
    assert enter(held, Guest("192.0.2.3"), cap=1) == [True]
    assert sum(guest.gone for guest in proxied) == 1


def test_a_websocket_counts_twice() -> None:
    """Its upstream has a connection that is no pool's; both are counted out with it, once."""
    held = crowd()
    guest = Guest("192.0.2.1")
    enter(held, guest)
    held.doubled(guest)
    assert len(held) == 2
    held.leave(guest)
    held.leave(guest)
    held.doubled(guest)
    assert (len(held), held.counts()) == (0, {})


@pytest.mark.parametrize("busy", [False, True])
def test_a_flood_at_the_cap_is_little_work(busy: bool) -> None:
    """A newcomer costs a few looks on average, whether the fullest address has idle connections or only busy ones."""
    held = crowd(most=4000)
    enter(held, *[Guest("192.0.2.1", 0.0 if busy else 1.0 + number) for number in range(4000)])
    Guest.looks = 0
    enter(held, *[Guest(f"198.51.{number >> 8}.{number & 255}") for number in range(1000)])
    assert Guest.looks <= 1000 * 2 * (LOOK + 2) + 4000


@pytest.mark.parametrize(
    ("files", "pooled", "most"),
    [(1_048_576, 512, 1_047_936), (1024, 512, 448), (1024, 100, 796), (300, 512, 113), (8, 512, 3)],
)
def test_room_is_kept_for_the_rest(files: int, pooled: int, most: int) -> None:
    """Descriptors for listeners, files and pools; half is enough for pools, since a request takes two."""
    assert room(files, pooled) == most
    assert most > 0
