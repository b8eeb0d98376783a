"""The scripts as shipped, on a real server and its clock: records are true, or become so, and never stay for ever."""

from __future__ import annotations

import time
from math import inf, nan
from random import Random
from struct import pack, unpack
from typing import Any

import pytest
import redis

from gateway.stores.leased.codec import Claim, lease_call, read_grants, read_rooms, seats_call
from gateway.stores.link import load_script
from policies.kernels.lease import Grant, Want
from policies.kernels.seats import Room
from policies.units import NEVER, SECOND
from tests.stores.lua.twins import CLOCK
from tests.wire.redis import RedisServer

__all__: list[str] = []

RATE_US = 1e-5
BURST = 10.0
ONE = Want(high=1.0, high_cost=1.0)
DAY = 86_400 * SECOND


def _lease(client: redis.Redis, wants: dict[str, Want], rate_us: float = RATE_US, process: int = 1) -> list[Grant]:
    keys, args = lease_call([(key.encode(), rate_us, BURST, want) for key, want in wants.items()], process, 1.0)
    return read_grants(client.eval(load_script("lease").source.decode(), len(keys), *keys, *args), len(keys))


def _seats(client: redis.Redis, *claims: Claim, process: int = 1, ttl_us: int = 3 * SECOND) -> list[Room]:
    keys, args = seats_call(claims, process, ttl_us)
    return read_rooms(client.eval(load_script("seats").source.decode(), len(keys), *keys, *args), len(keys))


def _now(client: redis.Redis) -> int:
    seconds, micros = client.time()
    return int(seconds) * SECOND + int(micros)


def _get(client: redis.Redis, key: str) -> bytes:
    value = client.get(key)
    assert isinstance(value, bytes)
    return value


def _record(
    now: int, *, level: float = 0.0, ahead: int = 0, low_until: float = 0.0, asker: tuple[float, ...] = ()
) -> bytes:
    """Return a record of 10/s burst 10 written by a clock that is `ahead`; the asker's instant counts from then."""
    seen = now + ahead
    numbers = [RATE_US, BURST, level, seen, seen - 2 * SECOND, low_until, 0.0, low_until, 0.0, 0.0, seen, *asker]
    if asker:
        numbers[-1] += seen
    return pack(f"<{len(numbers)}d", *numbers)


#: What is no record at all, as the words that plant it.
STRANGE: dict[str, tuple[str | bytes, ...]] = {
    "text": ("SET", "k", "999999999"),
    "nothing": ("SET", "k", ""),
    "hash": ("HSET", "k", "count", "999999999"),
    "list": ("RPUSH", "k", "1", "2", "3"),
    "zeros": ("SET", "k", bytes(88)),
    "noise": ("SET", "k", Random(1).randbytes(88)),
    "noise with an asker": ("SET", "k", Random(2).randbytes(128)),
    "cut off": ("SET", "k", _record(0)[:-1]),
    "far too long": ("SET", "k", _record(0) * 20),
}

#: What reads like a record and cannot be true.
UNTRUE: dict[str, dict[str, Any]] = {
    "huge count": {"level": 1e15},
    "not a number": {"level": nan},
    "endless": {"level": inf},
    "negative": {"level": -1e9},
    "empty, from the future": {"level": BURST, "ahead": 2 * DAY},
    "empty, from the end of time": {"level": BURST, "ahead": 10**17},
    "low asks wait for ever": {"low_until": 1e300},
    "another asks for ever": {"asker": (7.0, 1e9, 1e9, 1e9, DAY)},
    "another lacks more than it wants": {"asker": (7.0, 1.0, 9.0, 9.0, 0.0)},
    "another wants nothing": {"asker": (7.0, -1.0, -1.0, 9.0, 0.0)},
}


@pytest.mark.parametrize("planted", [*STRANGE, *UNTRUE])
def test_case_033_a_planted_record_heals(client: redis.Redis, lua_server: RedisServer, planted: str) -> None:
    """Whatever lies under the name, without an expiry: the next step is true, has one, and waits burst / rate at most.

    The other record of the call is not concerned.
    """
    lua_server.ask(*STRANGE.get(planted) or ("SET", "k", _record(_now(client), **UNTRUE[planted])))
    grant, other = _lease(client, {"k": ONE, "other": ONE})
    assert grant.high == 1.0 or 0 < grant.high_wait_us <= BURST / RATE_US
    assert grant.left_high <= BURST - grant.high
    assert other == (1.0, 0.0, 0, 0, 9.0, 9.0)
    assert 0 < client.pttl("k") <= 12_000
    assert len(_get(client, "k")) == 88 + 40


def test_a_record_that_is_gone_heals_by_what_the_process_knew(client: redis.Redis) -> None:
    """`seed` counts only where there is no record."""
    assert _lease(client, {"k": Want(seed=7.0)})[0].left_high == 3.0
    assert _lease(client, {"k": Want(seed=0.0)})[0].left_high == pytest.approx(3.0, abs=1.0)


def test_the_clock_is_the_servers(client: redis.Redis) -> None:
    """A record is written at the server's time, which no argument tells it, and is read at a later one."""
    before = _now(client)
    _lease(client, {"k": Want(high=10.0)})
    after = _now(client)
    stamp, seen = unpack("<11d", _get(client, "k")[:88])[3:11:7]
    assert before <= stamp == seen <= after
    for name in ("lease", "seats"):
        assert load_script(name).source.count(CLOCK) == 1
    deadline = time.monotonic() + 30
    while _lease(client, {"k": Want()})[0].left_high < 0.5:
        assert time.monotonic() < deadline


def test_a_record_lives_until_its_bucket_is_full(client: redis.Redis) -> None:
    """Its expiry is set with it each time: until full and two seconds; for a quota of nothing an hour."""
    _lease(client, {"full": Want(), "half": Want(high=5.0), "empty": Want(high=10.0)})
    left = {key: client.pttl(key) for key in ("full", "half", "empty")}
    for key, expected in (("full", 2000), ("half", 2500), ("empty", 3000)):
        assert expected - 1000 < left[key] <= expected
    assert _lease(client, {"never": ONE}, rate_us=0.0)[0].high_wait_us == NEVER
    assert 3_500_000 < client.pttl("never") <= 3_600_000


def test_case_033_every_record_has_an_expiry(client: redis.Redis) -> None:
    """After any calls about any buckets and limits: the scan finds no record without one."""
    random = Random(5)
    for number in range(60):
        wants = {f"k{random.randrange(20)}": Want(high=random.random() * 9, back=random.random()) for _ in range(5)}
        _lease(client, wants, random.choice((0.0, 1e-11, 1e-5, 1.0)), process=number % 3 + 1)
        claims = [Claim(b"s%d" % random.randrange(5), 0, random.randrange(4), 3)]
        _seats(client, *claims, process=number % 3 + 1)
    keys: Any = client.keys("*")
    assert len(keys) > 20
    assert all(client.pttl(key) > 0 for key in keys)


def test_answers_come_in_the_order_of_the_names(client: redis.Redis) -> None:
    """Three hundred buckets in one call, each with its own answer, fractions exact."""
    wants = {f"k{number}": Want(high=number / 64 + 0.1, high_cost=0.1) for number in range(300)}
    assert [grant.high for grant in _lease(client, wants)] == [min(number / 64 + 0.1, 10.0) for number in range(300)]


@pytest.mark.parametrize("planted", STRANGE)
def test_planted_seats_heal(client: redis.Redis, lua_server: RedisServer, planted: str) -> None:
    """What is no table of entries is an empty one, and gets an expiry."""
    lua_server.ask(*STRANGE[planted])
    assert _seats(client, Claim(b"k", 0, 2, 3)) == [(2, False)]
    assert 0 < client.pttl("k") <= 3000


@pytest.mark.parametrize("entry", [(7.0, 1e12, 0.0, inf), (7.0, -5.0, 0.0, 9e15), (7.0, 1e12, 1e12, 9e15)])
def test_seats_held_by_nobody_come_free_within_a_lease(client: redis.Redis, entry: tuple[float, ...]) -> None:
    """An entry that no process renews is gone when a lease is over, whatever it says."""
    client.set("k", pack("<4d", *entry))
    deadline = time.monotonic() + 30
    while _seats(client, Claim(b"k", 0, 2, 3), ttl_us=30_000)[0].allowance < 2:
        assert time.monotonic() < deadline


def test_case_081_seats_of_a_killed_process_come_free(client: redis.Redis) -> None:
    """On the server's clock the allowances of a process that renews no more end with their lease; nothing is left."""
    assert _seats(client, Claim(b"k", 0, 3, 3), process=1, ttl_us=80_000) == [(3, False)]
    assert _seats(client, Claim(b"k", 0, 1, 3), process=2, ttl_us=80_000) == [(0, False)]
    deadline = time.monotonic() + 30
    while _seats(client, Claim(b"k", 0, 1, 3), process=2, ttl_us=80_000)[0].allowance < 1:
        assert time.monotonic() < deadline
    assert _seats(client, Claim(b"k", 0, 0, 3), process=2) == [(0, False)]
    assert client.exists("k") == 0


@pytest.mark.parametrize("reply", [None, 1, [], b"", b"\0" * 47, b"\0" * 96])
def test_what_is_no_reply_of_the_script_is_none(reply: object) -> None:
    """A reply of another size, or of another type, is not taken for grants or seats."""
    with pytest.raises(ValueError, match="not a reply"):
        read_grants(reply, 1)
    with pytest.raises(ValueError, match="not a reply"):
        read_rooms(reply, 1)
