"""What a decision costs, and what a key: `python -m loadtest.bench.decision`.

A decision is plan look-up, take and judge, with the identity at hand: key, tenant, seats of both and a share of the
backstop, on the memory store, with one tenant and with many taking turns (10,000 is then mostly the processor fetching
memory). Prints the median over batches in nanoseconds, beside the same with one plain bucket for a backstop; then the
bytes a key takes at 100,000 keys, and what is left of a flood of new ones. Exit code 1 if the first row, the bytes or
the bound miss their targets.
"""

from __future__ import annotations

import gc
import statistics
import sys
import time
import tracemalloc
from collections.abc import Callable
from fractions import Fraction

from gateway.stores.memory import Backstop, MemoryStore
from policies.admit import Planner, judge
from policies.cost import UNMATCHED
from policies.kernels.plain import PlainBackstop
from policies.policy import ClassRule, CredentialRules, PolicySet, Quota, Sizing, TenantRules
from policies.request import ANONYMOUS, Class, Kind, Principal
from policies.units import SECOND, Micros, Rate

__all__ = ["main", "policies_of", "quota_of"]

TARGET_NS = 2_500
TARGET_BYTES = 1_536
TENANTS = (100, 1_000, 10_000)
KEYS = 100_000
FLOOD = 300_000
BATCH = 500
BATCHES = 200
START: Micros = 1_790_000_000 * SECOND

_MANY = 10**9


def quota_of(rate: float, burst: float) -> Quota:
    """Return a quota of `rate` units a second."""
    return Quota(Rate(Fraction(rate)), burst)


def policies_of(tenants: int, key: Quota) -> PolicySet:
    """Return policies with so many tenants, each with one credential of that quota and room for the rest."""
    roomy = quota_of(1_000_000, 1_000_000)
    rules = {
        f"tenant-{number}": TenantRules(
            f"tenant-{number}",
            quota=roomy,
            concurrency=_MANY,
            credentials={"ci": CredentialRules("ci", key, concurrency=_MANY)},
        )
        for number in range(tenants)
    }
    return PolicySet(
        classes=(ClassRule(0), ClassRule(1, reserve=0.25, floor=0.05)),
        default_class=Class.INTERACTIVE,
        backstop=roomy,
        anonymous=quota_of(5, 20),
        anonymous_weight=1.0,
        rejected=quota_of(1, 60),
        preflight=quota_of(10, 50),
        sizing=Sizing(quota_of(20, 20), quota_of(5, 5), 0, 0, 2.0, 0, 0.5, 1.25, 3.0, 0.9),
        unlisted_weight=max(1.0, float(tenants)),
        tenants=rules,
    )


def _plain(policies: PolicySet) -> Backstop:
    allowed = policies.backstop
    return PlainBackstop(allowed.rate.per_us, allowed.burst, policies.classes, policies.unlisted_weight, START)


def _median(policies: PolicySet, tenants: int, cls: Class, make: Callable[[PolicySet], Backstop] | None) -> float:
    """Return the median nanoseconds of a decision over batches, the tenants taking turns every 20 us."""
    store = MemoryStore(policies, KEYS, START, make(policies) if make else None)
    planner = Planner(policies, max_plans=2 * tenants)
    plan, take = planner.plan, store.take
    principals = [Principal(Kind.USER, f"tenant-{number}", "ci") for number in range(tenants)]
    now, turn, batches = START, 0, []
    for batch in range(BATCHES + tenants // BATCH):
        asked = [principals[(turn + number) % tenants] for number in range(BATCH)]
        turn += BATCH
        begun = time.perf_counter_ns()
        for principal in asked:
            now += 20
            found = plan(principal, cls, UNMATCHED, "192.0.2.1", "GET")
            judge(found, take(found, now), now, 0.5)
        took = (time.perf_counter_ns() - begun) / BATCH
        if batch * BATCH >= tenants:
            batches.append(took)
        store.tick(now)
    return statistics.median(batches)


def _bytes_per_key() -> float:
    """Return what the store retains for each of many keys, name included, with nothing else alive."""
    policies = policies_of(0, quota_of(10, 20))
    store, planner = MemoryStore(policies, KEYS, START), Planner(policies, max_plans=1)
    gc.collect()
    tracemalloc.start()
    before = tracemalloc.get_traced_memory()[0]
    for number in range(KEYS):
        principal = Principal(Kind.ANONYMOUS, ANONYMOUS, f"2001:db8:{number >> 16:x}:{number & 0xFFFF:x}::")
        store.take(planner.plan(principal, Class.INTERACTIVE, UNMATCHED, ""), START + number)
    planner.renew(START)
    gc.collect()
    retained = tracemalloc.get_traced_memory()[0] - before
    tracemalloc.stop()
    return retained / store.keys


def _flood() -> MemoryStore:
    """Return a store that met a new key with every request, 500,000 a second, so that there was no room for all."""
    policies = policies_of(0, quota_of(10, 20))
    store, planner = MemoryStore(policies, KEYS, START), Planner(policies)
    for number in range(FLOOD):
        principal = Principal(Kind.ANONYMOUS, ANONYMOUS, f"{number:x}")
        store.take(planner.plan(principal, Class.INTERACTIVE, UNMATCHED, ""), START + 2 * number)
    return store


def _rows() -> list[tuple[str, int, PolicySet, Class]]:
    """Return what is measured: a name, how many tenants take turns, their policies, and the class."""
    roomy, narrow = quota_of(900_000, 900_000), quota_of(1, 1)
    one = [
        (f"{name}, {cls.label}", 1, policies_of(1, key), cls)
        for name, key in (("admitted", roomy), ("refused", narrow))
        for cls in Class
    ]
    many = [
        (f"admitted, {cls.label}, {count:,} tenants", count, policies_of(count, roomy), cls)
        for cls in Class
        for count in TENANTS
    ]
    return one + many


def main() -> int:
    """Print the figures; return 1 if a target is missed."""
    print(f"{'decision, median ns':36}{'fair':>8}{'plain':>8}")
    hot = 0.0
    for label, tenants, policies, cls in _rows():
        fair, plain = (_median(policies, tenants, cls, make) for make in (None, _plain))
        hot = hot or fair
        print(f"{label:36}{fair:8.0f}{plain:8.0f}")
    size = _bytes_per_key()
    print(f"{f'bytes a key at {KEYS:,} keys':36}{size:8.0f}")
    flooded = _flood()
    print(f"{f'keys held after {FLOOD:,} new ones':36}{flooded.keys:8,}  ({flooded.overflow_requests:,} overflowed)")
    return int(hot > TARGET_NS or size > TARGET_BYTES or flooded.keys > KEYS + 1)


if __name__ == "__main__":
    sys.exit(main())
