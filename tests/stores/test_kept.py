"""What a plan keeps of the store that it asked: used while it holds, and not a moment longer."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from gateway.stores.memory import MemoryStore
from policies.charge import Charge, Plan, SeatCharge, ShareCharge
from policies.kernels.cells import Cells
from policies.kernels.fairshare import Shares
from policies.request import Class
from policies.units import SECOND
from tests.policies.documents import policy_set, quota
from tests.stores.contract import EPOCH, as_batch, charge, plan

__all__: list[str] = []


def share(tenant: str, weight: float = 1.0, *, listed: bool = True) -> ShareCharge:
    """Return a step on the backstop."""
    return ShareCharge(tenant, weight, listed, 1.0, Class.INTERACTIVE, 10 / SECOND, 10.0)


def steps(
    *own: Charge, seats: tuple[SeatCharge, ...] = (), of: ShareCharge | None = None, shadow: tuple[Charge, ...] = ()
) -> Plan:
    """Return a plan of these steps."""
    return Plan("acme", "ci", Class.INTERACTIVE, 1.0, own, shadow, seats, of)


def anew(known: Plan) -> Plan:
    """Return the same plan as one that no store has seen."""
    return replace(
        known,
        own=tuple(replace(step) for step in known.own),
        seats=tuple(replace(seat) for seat in known.seats),
        share=None if known.share is None else replace(known.share),
    )


def opened(max_keys: int = 10) -> MemoryStore:
    """Return a store that shares a roomy backstop."""
    return MemoryStore(policy_set(backstop=quota(1000, 1000)), max_keys, EPOCH)


def test_two_quotas_of_one_bucket_take_turns() -> None:
    """Each ask finds the bucket as large as its own plan says, whoever gave it another size in between."""
    store, before, after = opened(), plan(charge(burst=20)), plan(charge(burst=40))
    taken = [store.take(each, EPOCH).tokens for each in (before, after, before, after, after)]
    assert taken == [(19.0,), (37.0,), (17.5,), (34.0,), (33.0,)]


def test_bucket_out_of_the_shared_one() -> None:
    """Who had to share an overflow bucket has its own once there is room."""
    store, full, other = opened(1), plan(charge(bucket="a", burst=2)), plan(charge(bucket="b", burst=2))
    last = replace(other, own=(charge(bucket="c", burst=2),))
    assert [store.take(each, EPOCH).tokens for each in (full, other, other)] == [(1.0,), (1.0,), (0.0,)]
    later = EPOCH + 5 * SECOND
    store.tick(later)
    assert [store.take(each, later).tokens for each in (other, other, last)] == [(1.0,), (0.0,), (1.0,)]
    assert (store.keys, store.overflow_requests) == (2, 3)


def test_seats_with_another_limit() -> None:
    """A limit that changes holds at once, for the seats that are taken already."""
    store, few, many = opened(), steps(seats=(SeatCharge("ci", 1),)), steps(seats=(SeatCharge("ci", 2),))
    assert [bool(store.take(each, EPOCH).refused) for each in (few, few, many, many, few)] == [
        False, True, False, True, True,
    ]  # fmt: skip
    store.release(few)
    store.release(many)
    assert store.seats_taken == 0


def test_seats_that_were_forgotten() -> None:
    """A holder without a seat may be forgotten: its next seat is counted, and so is what is taken under other plans."""
    store = opened()
    store._seats = Cells(idle=1)
    known, twin = steps(seats=(SeatCharge("ci", 1),)), steps(seats=(SeatCharge("ci", 1),))
    store.take(known, EPOCH)
    store.release(known)
    for number in range(5):
        store.take(steps(seats=(SeatCharge(f"other-{number}", 1),)), EPOCH)
    assert (len(store._seats), store.seats_taken) == (5, 5)
    assert store.take(twin, EPOCH).refused == ()
    assert store.take(known, EPOCH).refused != ()
    store.release(twin)
    assert store.take(known, EPOCH).refused == ()
    assert store.seats_taken == 6


def test_two_stores_under_one_plan() -> None:
    """Buckets, seats and shares of two stores are apart, though both were asked with the very same plan."""
    known = steps(charge(burst=2), seats=(SeatCharge("ci", 1),), of=share("acme"))
    one, other = opened(), opened()
    assert [store.take(known, EPOCH).refused for store in (one, other)] == [(), ()]
    assert (one.seats_taken, other.seats_taken) == (1, 1)
    one.release(known)
    assert (one.seats_taken, other.seats_taken) == (0, 1)
    for store in (one, other):
        assert isinstance(store.backstop, Shares)
        held = store.backstop.share_of("acme", EPOCH)
        assert held is not None
        assert held.tokens < held.burst - 0.9


def test_tenant_that_was_forgotten() -> None:
    """A tenant that the shares had let go of is counted among them again."""
    store, known = opened(), steps(of=share("acme"))
    store.take(known, EPOCH)
    for step in range(100):
        store.tick(EPOCH + step * SECOND)
        store.tick(EPOCH + step * SECOND)
    assert isinstance(store.backstop, Shares)
    later = EPOCH + 100 * SECOND
    assert store.backstop.share_of("acme", later) is None
    store.take(known, later)
    assert store.backstop.share_of("acme", later) is not None


def test_tenant_with_another_weight() -> None:
    """A weight that changes holds at once, for plans that were asked before and after."""
    store = opened()
    light, heavy, rest = steps(of=share("acme")), steps(of=share("acme", 3.0)), steps(of=share("rest"))
    assert isinstance(store.backstop, Shares)
    for asked, weight in ((light, 1.0), (heavy, 3.0), (rest, 3.0), (light, 1.0)):
        store.take(asked, EPOCH)
        found = store.backstop.share_of("acme", EPOCH)
        assert found is not None
        assert found.share / store.backstop.level == weight


QUOTAS = (10.0, 4.0), (10.0, 2.0), (3.0, 4.0)


def _every() -> list[Plan]:
    """Return plans that share buckets, seats and tenants, and do not agree on how large they are."""
    made: list[Plan] = []
    for number in range(4):
        for rate, burst in QUOTAS:
            key = charge("key", rate, burst, bucket=f"key-{number}")
            tenant = replace(charge("tenant", 3 * rate, 3 * burst, bucket=f"tenant-{number % 2}"), pinned=True)
            seats = SeatCharge(f"key-{number}", int(burst) - 1), SeatCharge(f"tenant-{number % 2}", int(rate))
            of = share(f"tenant-{number}", rate, listed=number < 2)
            made.append(steps(key, tenant, seats=seats, of=of))
            made.append(steps(as_batch(key), tenant, seats=seats[:1], of=of))
            made.append(steps(replace(key, cost=3.0), shadow=(tenant,), seats=seats[1:]))
    return made


EVERY = _every()
ACTS = st.sampled_from(["take"] * 8 + ["release", "release", "give back", "tick", "rebuild"])
PAUSES = st.sampled_from([0, 0, 0, 1_000, 50_000, 400_000, 3_000_000, 70_000_000])


@given(st.lists(st.tuples(PAUSES, ACTS, st.integers(0, 1), st.integers(0, len(EVERY) - 1)), max_size=80))
def test_plan_that_keeps_answers_as_one_that_looks(trace: list[tuple[int, str, int, int]]) -> None:
    """Whatever comes between, a plan used over and over, in two stores, is answered as one made anew for each ask."""
    policies, now = policy_set(backstop=quota(20, 20), max_unlisted_tenants=1), EPOCH
    keeps, looks = ([MemoryStore(policies, 3, now) for _ in range(2)] for _ in range(2))
    for store in (*keeps, *looks):
        store._seats = Cells(idle=1)
    known = [anew(each) for each in EVERY]
    held: tuple[list[Plan], list[Plan]] = ([], [])
    for pause, act, at, which in trace:
        now += pause
        store, twin, asked = keeps[at], looks[at], known[which]
        if act == "take":
            reading = store.take(asked, now)
            assert reading == twin.take(anew(asked), now)
            if not reading.refused:
                held[at].append(asked)
        elif act == "tick":
            store.tick(now)
            twin.tick(now)
        elif act == "rebuild":
            store.rebuild(policies, now)
            twin.rebuild(policies, now)
        elif held[at]:
            ended = held[at].pop(which % len(held[at]))
            if act == "give back":
                store.give_back(ended, now)
                twin.give_back(anew(ended), now)
            store.release(ended)
            twin.release(anew(ended))
        assert (store.seats_taken, store.keys, store.overflow_requests) == (
            twin.seats_taken, twin.keys, twin.overflow_requests,
        )  # fmt: skip
