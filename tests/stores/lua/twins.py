"""Running the functions of a script over many steps in one call, with the time told instead of read.

Rules
1. What runs is the script itself up to the line that reads the clock; only what follows it is replaced, here. The
   script knows no way to be told the time.
2. A run lasts one call, in which the server lets nothing expire: a record that is dropped is dropped by the test.
3. Numbers go both ways as packed doubles, and what comes back is compared as bytes.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from struct import pack
from typing import Any, TypeAlias

import redis

from gateway.stores.link import load_script
from policies.kernels.gcra import Bucket
from policies.kernels.lease import Record
from policies.kernels.seats import Table

__all__ = ["CLOCK", "Row", "as_read", "drive", "packed_record", "packed_table"]

CLOCK = b"\nlocal now = clock()\n"

_DRIVERS = {
    # One row: now, process, dearest, rate_us, burst, and the nine numbers of a want.
    "lease": """
        for row = 1, #ARGV do
          local now, process, dearest = struct.unpack("<ddd", ARGV[row])
          local answer = step(KEYS[1], process, dearest, ARGV[row]:sub(25), 1, now)
          answers[row] = answer .. fetch(KEYS[1])
        end
    """,
    # One row: now, process, ttl, held, want, limit.
    "seats": """
        for row = 1, #ARGV do
          local now, process, ttl = struct.unpack("<ddd", ARGV[row])
          local answer = step(KEYS[1], process, ttl, ARGV[row]:sub(25), 1, now)
          answers[row] = answer .. (fetch(KEYS[1]) or "")
        end
    """,
    # One row: now, act (0 ask, 1 give back, 2 resize), rate_us, burst, cost, low, reserve, floor.
    "gcra": """
        local bucket
        for row = 1, #ARGV do
          local now, act, rate_us, burst, cost, low, reserve, floor = struct.unpack("<dddddddd", ARGV[row])
          local ask = { cost = cost, low = low == 1, reserve = reserve, floor = floor }
          bucket = bucket or new_bucket(rate_us, burst, now)
          local told = 0
          if act == 1 then
            give_back(bucket, ask, now)
          elseif act == 2 then
            resize(bucket, rate_us, burst, now)
          else
            demand(bucket, ask, now)
            if admits(bucket, ask, now) then
              take(bucket, ask, now)
            else
              told = refuse(bucket, ask, now)
            end
          end
          answers[row] = struct.pack(
            "<ddddddddddd", told, bucket.rate_us, bucket.burst, bucket.level, bucket.stamp, bucket.high_at,
            bucket.low_until, bucket.want, bucket.want_until, bucket.credit, bucket.credit_at
          )
        end
    """,
}

Row: TypeAlias = Sequence[float]


@cache
def _source(name: str) -> str:
    if name == "gcra":
        functions = load_script("record").source + load_script("gcra").source
    else:
        functions, found, _ = load_script(name).source.partition(CLOCK)
        assert found
    return f"{functions.decode()}\nlocal answers = {{}}\n{_DRIVERS[name]}\nreturn answers\n"


def drive(client: redis.Redis, name: str, rows: Sequence[Row], key: str = "driven") -> list[bytes]:
    """Run the steps one after the other on a new record; return the answer of each, with the record after it."""
    client.delete(key)
    packed = [pack(f"<{len(row)}d", *row) for row in rows]
    answers: Any = client.eval(_source(name), 1, key, *packed)
    return [bytes(answer) for answer in answers]


def as_read(bucket: Bucket) -> tuple[float, ...]:
    """Return the numbers of a bucket in the order in which they are kept."""
    return (
        bucket.rate_us, bucket.burst, bucket.level, bucket.stamp, bucket.high_at, bucket.low_until, bucket.want,
        bucket.want_until, bucket.credit, bucket.credit_at,
    )  # fmt: skip


def packed_record(record: Record) -> bytes:
    """Return a record as `lease.lua` keeps it."""
    numbers = [*as_read(record.bucket), record.seen]
    if record.bucket.rate_us <= 0.0:
        numbers[2] = 0.0
    for asker in record.askers:
        numbers += [asker.process, asker.want, asker.lacks, asker.due, asker.at]
    return pack(f"<{len(numbers)}d", *numbers)


def packed_table(table: Table) -> bytes:
    """Return the entries of a limit as `seats.lua` keeps them."""
    return b"".join(pack("<4d", each.process, each.held, each.want, each.until) for each in table)
