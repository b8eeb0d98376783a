"""What processes tell each other of the backstop, and the call of `shares.lua` that carries it.

A report holds, for each pool: its number; how many rows, rows of the group, noticed and other tenants follow; tokens,
light demand, what is used, and tokens of the group; the rows (demand per weight, weight); the tenants (mark, demand).
Little-endian, floats of four octets: a part in ten million is nothing to an estimate.

Rules
1. A report is bounded: `ROWS` rows, and as many tenants as `parts` follows; marks are no names.
2. What claims is exact: doubles, as in `codec`.
3. What cannot be read is ValueError, and its process is not heard this time.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence
from math import isfinite
from struct import Struct
from typing import NamedTuple

from policies.kernels.division import Outlook, coarse
from policies.kernels.parts import Heard
from policies.kernels.rates import Claim, Renewal
from policies.units import Micros

__all__ = ["ROWS", "Told", "pack_report", "read_renewal", "read_report", "renew_call"]

ROWS = 64

_HEAD = Struct("<5H4f")
_ROW = Struct("<2f")
_TENANT = Struct("<8sf")
_CALL = Struct("<4d")
_CLAIM = Struct("<4d")


class Told(NamedTuple):
    """What a process tells of one pool."""

    outlook: Outlook
    group: Outlook
    heard: Heard


def pack_report(pools: Iterable[tuple[int, Told]], processes: int) -> bytes:
    """Return a report: levels of one of `processes` become those of all."""
    parts: list[bytes] = []
    for pool, (outlook, group, heard) in pools:
        rows, inner = coarse(outlook.rows, ROWS), coarse(group.rows, ROWS)
        counts = (pool, len(rows), len(inner), len(heard.noticed), len(heard.others))
        parts.append(_HEAD.pack(*counts, outlook.tokens, outlook.light, outlook.used, group.tokens))
        parts += [_ROW.pack(ratio * processes, weight / processes) for ratio, weight in (*rows, *inner)]
        parts += [_TENANT.pack(*item) for told in heard for item in told.items()]
    return b"".join(parts)


def read_report(report: bytes) -> dict[int, Told]:
    """Return what another process tells, by pool."""
    told, at = {}, 0
    try:
        while at < len(report):
            pool, rows, inner, noticed, others, tokens, light, used, held = _HEAD.unpack_from(report, at)
            at += _HEAD.size
            curve = list(_ROW.iter_unpack(_part(report, at, (rows + inner) * _ROW.size)))
            at += (rows + inner) * _ROW.size
            middle, end = at + noticed * _TENANT.size, at + (noticed + others) * _TENANT.size
            first = dict(_TENANT.iter_unpack(_part(report, at, middle - at)))
            second = dict(_TENANT.iter_unpack(_part(report, middle, end - middle)))
            at = end
            if not isfinite(tokens + light + used + held + sum(map(sum, curve)) + sum((first | second).values())):
                raise ValueError("not a number")
            group = Outlook(held, 0.0, 0.0, curve[rows:])
            told[pool] = Told(Outlook(tokens, light, used, curve[:rows]), group, Heard(first, second))
    except struct.error as error:
        raise ValueError("not a report") from error
    return told


def _part(report: bytes, at: int, size: int) -> bytes:
    if at + size > len(report):
        raise ValueError("a report cut short")
    return report[at : at + size]


def renew_call(
    process: int, ttl_us: Micros, full_us: Micros, claims: Sequence[Claim], report: bytes
) -> list[bytes]:  # fmt: skip
    """Return the arguments of one call; `full_us` is how long the emptiest bucket takes to be full."""
    head = _CALL.pack(process, ttl_us, full_us, len(claims))
    return [head, b"".join(_CLAIM.pack(*claim) for claim in claims), report]


def read_renewal(reply: object, count: int) -> Renewal:
    """Return what a call about `count` pools answered."""
    if not isinstance(reply, list) or not reply or not all(isinstance(part, bytes) for part in reply):
        raise ValueError("not a reply of this script")
    try:
        fresh, processes, *granted = struct.unpack(f"<{2 + count}d", reply[0])
    except struct.error as error:
        raise ValueError("not a reply of this script") from error
    return Renewal(fresh > 0.0, max(1, int(processes)), granted, reply[1:])
