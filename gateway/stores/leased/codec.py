"""What travels between a process and the scripts: arguments packed, replies unpacked.

Rules
1. All numbers are IEEE doubles, little-endian, in one string per call: exact both ways, where Lua's `tostring` prints
   14 digits and an integer reply cuts fractions off.
2. One call is about many records whose names share one hash tag; the answers come in the order of the names.
3. A reply that is not of the expected size is no reply: ValueError.
4. A process is named by an integer from 1 to 2^53 - 1, drawn at random when it starts.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from struct import Struct, iter_unpack, pack
from typing import NamedTuple, TypeAlias

from policies.kernels.lease import Grant, Want
from policies.kernels.seats import Room
from policies.units import Micros, RequestUnits, Seats

__all__ = ["Claim", "lease_call", "read_grants", "read_rooms", "seats_call"]

_WANT = Struct("<11d").pack
_CLAIM = Struct("<3d").pack
_GRANT = "<6d"
_ROOM = "<2d"

Asked: TypeAlias = tuple[bytes, float, RequestUnits, Want]
"""A record's name, the bucket's rate (units per microsecond) and burst as of today, and what is wanted of it."""


class Claim(NamedTuple):
    """What a process says of one concurrency limit: see `policies.kernels.seats.allowance`."""

    key: bytes
    held: Seats
    want: Seats
    limit: Seats


def lease_call(asked: Iterable[Asked], process: int, dearest: RequestUnits) -> tuple[list[bytes], list[bytes]]:
    """Return keys and arguments of one call of `lease.lua`; `dearest` is the highest cost that any ask can have."""
    keys: list[bytes] = []
    wants: list[bytes] = []
    for key, rate_us, burst, want in asked:
        keys.append(key)
        wants.append(_WANT(rate_us, burst, *want))
    return keys, [pack("<2d", process, dearest), b"".join(wants)]


def read_grants(reply: object, count: int) -> list[Grant]:
    """Return what a call about `count` buckets answered."""
    return [
        Grant(high, low, int(high_wait), int(low_wait), left_high, left_low)
        for high, low, high_wait, low_wait, left_high, left_low in iter_unpack(_GRANT, _whole(reply, count * 48))
    ]


def seats_call(claims: Sequence[Claim], process: int, ttl_us: Micros) -> tuple[list[bytes], list[bytes]]:
    """Return keys and arguments of one call of `seats.lua`; `ttl_us` is how long an entry lives unrenewed."""
    packed = [_CLAIM(held, want, limit) for _, held, want, limit in claims]
    return [claim.key for claim in claims], [pack("<2d", process, ttl_us), b"".join(packed)]


def read_rooms(reply: object, count: int) -> list[Room]:
    """Return what a call about `count` limits answered."""
    return [Room(int(allowed), wanted > 0) for allowed, wanted in iter_unpack(_ROOM, _whole(reply, count * 16))]


def _whole(reply: object, size: int) -> bytes:
    """Return the reply if it is as long as it must be."""
    if not isinstance(reply, bytes) or len(reply) != size:
        raise ValueError("not a reply of this script")
    return reply
