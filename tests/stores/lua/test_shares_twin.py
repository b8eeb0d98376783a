"""`shares.lua` is `rates.py`, step for step; and what planted or broken records come to."""

from __future__ import annotations

from random import Random
from struct import pack
from typing import Any

import pytest
import redis

from gateway.stores.leased.reports import read_renewal, renew_call
from gateway.stores.link import load_script
from policies.kernels.rates import Claim, Renewal, Table, renew
from policies.units import SECOND
from tests.clock import EPOCH
from tests.stores.lua.twins import CLOCK

__all__: list[str] = []

#: One row: now, then the three arguments of a call.
DRIVER = """
    local answers = {}
    for row = 1, #ARGV, 4 do
      local now = struct.unpack("<d", ARGV[row])
      answers[#answers + 1] = step(KEYS[1], ARGV[row + 1], ARGV[row + 2], ARGV[row + 3], now)
    end
    return answers
"""
LEASE = 3 * SECOND // 2


def calls(random: Random, count: int) -> list[tuple[int, int, int, list[Claim], bytes]]:
    """Return random calls of five processes: (now, process, lease time, claims, report)."""
    now, made = EPOCH, []
    for _ in range(count):
        now += random.choice((0, 1, 20_000, 100_000, LEASE, LEASE + 1, 5 * SECOND, -SECOND))
        pools = random.choice(((), (0,), (0,), (0, 2), (0, 1, 2)))
        claims = [
            Claim(
                pool, random.choice((0.0, 100.0, 2_000.0)), random.uniform(0, 900), random.choice((0.0, 1 / 3, 700.0))
            )
            for pool in pools
        ]
        report = random.choice((b"", b"\0\r\n", random.randbytes(40)))
        made.append(
            (now, random.choice((1, 2, 3, 2**53 - 1, 9)), random.choice((LEASE, LEASE, LEASE, 0)), claims, report)
        )
    return made


def test_script_is_the_kernel(client: redis.Redis, soak: bool) -> None:
    """Renewals, leaves, lapses and clocks set back grant the same numbers and tell the same reports."""
    source = load_script("shares").source.partition(CLOCK)[0].decode() + DRIVER
    for seed in range(200 if soak else 10):
        table: Table = {}
        rows: list[bytes] = []
        expected: list[Renewal] = []
        for now, process, ttl_us, claims, report in calls(Random(seed), 200):
            expected.append(renew(table, process, ttl_us, claims, report, now))
            rows += [pack("<d", now), *renew_call(process, ttl_us, SECOND, claims, report)]
        client.flushall()
        answers: Any = client.eval(source, 1, "record", *rows)
        assert [read_renewal(answer, len(want.granted)) for answer, want in zip(answers, expected, strict=True)] == [
            want._replace(processes=max(1, want.processes)) for want in expected
        ]


@pytest.mark.parametrize(
    "planted", [b"", b"x" * 15, pack("<2d", 1e300, 1e9), pack("<5d", 2e15, 1.0, 0.0, 1.0, float("nan"))]
)
def test_a_broken_entry_is_none(client: redis.Redis, planted: bytes) -> None:
    """What cannot be an entry is dropped, and holds back nothing."""
    client.hset("record", "7", planted)
    reply = run(client, [Claim(0, 100.0, 0.0, 80.0)])
    assert (reply.granted, reply.processes, reply.reports) == ([80.0], 1, [])
    assert client.hkeys("record") == [b"1"]


def test_a_record_of_another_type_is_begun_anew(client: redis.Redis) -> None:
    """A string under the record's name is gone with the next call; the record then has an expiry."""
    client.set("record", "planted")
    assert run(client, [Claim(0, 100.0, 0.0, 80.0)]) == Renewal(True, 1, [80.0], [])
    assert 0 < client.pttl("record") <= 10_000


def run(client: redis.Redis, claims: list[Claim]) -> Renewal:
    """Renew process 1 on the server's clock; buckets take 10 s to be full."""
    args = renew_call(1, LEASE, 10 * SECOND, claims, b"told")
    return read_renewal(client.eval(load_script("shares").source.decode(), 1, "record", *args), len(claims))
