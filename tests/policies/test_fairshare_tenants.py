"""Who shares: tenants nobody listed, those that leave, and what a reload changes."""

from __future__ import annotations

from random import Random

import pytest

from policies.kernels.fairshare import Shares
from policies.policy import ClassRule
from policies.units import SECOND, Micros
from tests.clock import EPOCH
from tests.policies.shares import CLASSES, Ask, drain, press, service, share_of

__all__: list[str] = []

BUSY = tuple(Ask(f"busy-{index}") for index in range(4))


def pressed(shares: Shares, until: float = 3.0) -> Micros:
    """Let four listed tenants take everything there is; return when they stop."""
    press(shares, BUSY, 0.0, until, 500.0)
    return EPOCH + int(until * SECOND)


def test_fresh_unlisted_tenant_has_nothing_saved_up() -> None:
    """Whoever mints a tenant for each call finds an empty bucket each time."""
    shares = service(500.0, 10.0)
    now = pressed(shares)
    assert shares.take(Ask("minted", listed=False), now) is not None
    assert shares.take(Ask("listed"), now) is None


def test_unlisted_tenants_together_are_one() -> None:
    """However many they are, with the weight of one they get one share of five."""
    shares = service(500.0, 50.0)
    minted = tuple(Ask(f"minted-{index}", listed=False) for index in range(20))
    press(shares, (*BUSY, *minted), 0.0, 5.0, 125.0)
    taken = press(shares, (*BUSY, *minted), 5.0, 15.0, 125.0)
    together = sum(taken[ask] for ask in minted)
    assert together / 10 == pytest.approx(100, rel=0.05)
    assert max(taken[ask] for ask in minted) <= 1.6 * together / 20


def test_unlisted_tenants_share_among_themselves() -> None:
    """Of the group's part a modest tenant has what it asks for, beside another that asks for everything."""
    shares = service(500.0, 50.0)
    avid, modest = Ask("avid", listed=False), Ask("modest", listed=False)
    press(shares, (*BUSY, avid, modest), 0.0, 5.0, 300.0)
    served = 0
    for step in range(100):
        press(shares, (*BUSY, avid), 5.0 + step / 10, 5.1 + step / 10, 300.0)
        served += shares.take(modest, EPOCH + int((5.1 + step / 10) * SECOND)) is None
    assert served == 100
    view = shares.view(EPOCH + 15 * SECOND)
    assert view.unlisted_level == pytest.approx(90, rel=0.2)


def test_unlisted_give_back_returns_to_the_group() -> None:
    """What an unlisted tenant gives back is its own again, and the group's."""
    shares = service(500.0, 50.0)
    ask = Ask("minted", listed=False)
    press(shares, (*BUSY, ask), 0.0, 5.0, 40.0)
    now = EPOCH + 5 * SECOND
    assert shares.take(ask, now) is None
    held = share_of(shares, "minted", now).tokens
    shares.give_back(ask, now, over=shares.over)
    assert share_of(shares, "minted", now).tokens == pytest.approx(held + 1)


def test_too_many_unlisted_tenants_share_one_bucket() -> None:
    """Above `max_unlisted` no more is kept of new ones than one member, whoever they are."""
    shares = service(500.0, 50.0, most=100)
    for index in range(1_000):
        shares.take(Ask(f"minted-{index}", listed=False, weight=2.0), EPOCH + index * 1_000)
    assert shares.view(EPOCH + SECOND).tenants == 100
    assert shares.share_of("minted-500", EPOCH + SECOND) is None


def test_one_of_too_many_has_its_own_bucket_once_there_is_room() -> None:
    """Whoever shared the one of the rest is known by itself after another is forgotten, or a reload makes room."""
    shares = service(500.0, 50.0, most=1)
    first, second, third = (Ask(name, listed=False) for name in ("first", "second", "third"))
    for ask in (first, second, second):
        shares.take(ask, EPOCH)
    assert shares.share_of("second", EPOCH) is None
    now = EPOCH + 61 * SECOND
    for _ in range(2):
        shares.tick(now)
    shares.take(second, now)
    assert shares.share_of("second", now) is not None
    shares.take(third, now)
    shares.rebuild(500.0 / SECOND, 50.0, CLASSES, 1.0, now, 2)
    shares.take(third, now)
    assert shares.share_of("third", now) is not None


@pytest.mark.parametrize("listed", [False, True])
def test_tenant_that_is_forgotten_as_it_comes_back_is_met_again(listed: bool) -> None:
    """An ask that finds the periodic work due is not taken from a tenant that this lets go of."""
    shares, back = service(500.0, 50.0), Ask("back", listed=listed)
    shares.take(back, EPOCH)
    now = EPOCH + 100 * SECOND
    shares.tick(now)
    assert shares.take(back, now) is None or not listed
    assert share_of(shares, "back", now).tokens <= 19.1
    assert shares.view(now).tenants == 1


def test_unlisted_tenant_is_forgotten_after_a_minute() -> None:
    """Its place is free for another then, and not before."""
    shares = service(500.0, 50.0)
    shares.take(Ask("minted", listed=False, cls=1), EPOCH)
    for second in range(1, 59):
        shares.take(Ask("other", listed=False), EPOCH + second * SECOND)
        shares.tick(EPOCH + second * SECOND)
    assert shares.share_of("minted", EPOCH + 59 * SECOND) is not None
    for second in range(59, 70):
        shares.tick(EPOCH + second * SECOND)
        shares.tick(EPOCH + second * SECOND)
    assert shares.view(EPOCH + 70 * SECOND).tenants == 1


def test_idle_listed_tenant_is_dropped_once_nothing_is_lost() -> None:
    """A tenant whose buckets are full again takes no room; one with a slow quota does, until its meter is full, too."""
    shares = service(500.0, 50.0)
    slow = Ask("slow", own_rate_us=0.1 / SECOND, own_burst=10.0)
    drain(shares, Ask("quick"), EPOCH, 30)
    drain(shares, slow, EPOCH, 15)
    for tick in range(1, 500):
        shares.tick(EPOCH + tick * 20_000)
    known = {name for name in ("quick", "slow") if shares.share_of(name, EPOCH + 10 * SECOND) is not None}
    assert known == {"slow"}


def test_low_ask_that_waits_keeps_its_tenant() -> None:
    """A tenant with a batch call to come back is not dropped before that call has had its time."""
    shares = service(500.0, 10.0, (ClassRule(0), ClassRule(1, reserve=0.25, floor=0.001)))
    now = pressed(shares)
    for _ in range(2):
        shares.take(Ask("mixed"), now)
        drain(shares, Ask("mixed", cls=1), now)
    for tick in range(1, 400):
        shares.tick(now + tick * 20_000)
    assert shares.share_of("mixed", now + 8 * SECOND) is not None


def test_tenant_that_is_listed_moves_out_of_the_group() -> None:
    """Listed by a reload, a tenant has a share of its own at once, with a full bucket; and the other way round."""
    shares = service(500.0, 10.0)
    now = pressed(shares)
    assert shares.take(Ask("a", listed=False), now) is not None
    assert shares.take(Ask("a", listed=True), now) is None
    assert drain(shares, Ask("a", listed=True), now) >= 18
    assert shares.take(Ask("a", listed=False), now) is not None
    shares.tick(now)


def test_reload_refills_nothing_and_forgets_nothing() -> None:
    """Capacity and burst change; how full the backstop is stays, and so do the share buckets."""
    shares = service(100.0, 100.0)
    for _ in range(50):
        shares.take(Ask("a"), EPOCH)
    held = share_of(shares, "a").tokens
    shares.rebuild(400 / SECOND, 200.0, CLASSES, 3.0, EPOCH)
    assert shares.view(EPOCH).tokens == pytest.approx(100)
    assert share_of(shares, "a").tokens == pytest.approx(held)
    taken = press(shares, (Ask("a"), Ask("b")), 1.0, 11.0, 400.0)
    assert sum(taken.values()) / 10 == pytest.approx(400, rel=0.1)


def test_reload_keeps_a_debt() -> None:
    """A debt takes as long to repay as before."""
    shares = service(100.0, 10.0)
    for index in range(50):
        drain(shares, Ask(f"t{index}"), EPOCH, 2)
    debt = shares.view(EPOCH).debt
    assert debt > 10
    shares.rebuild(200 / SECOND, 10.0, CLASSES, 1.0, EPOCH)
    assert shares.view(EPOCH).debt == pytest.approx(2 * debt)


def test_reload_moves_ceilings_and_the_weight_of_the_unlisted() -> None:
    """Ceilings come, change and go without forgetting; the unlisted group has its new weight at once."""
    shares = service(100.0, 10.0, (CLASSES[0], ClassRule(1, 0.25, 0.05, ceiling=0.5)))
    lows = (Ask("a", cls=1), Ask("b", cls=1))
    press(shares, lows, 0.0, 3.0, 100.0)
    shares.rebuild(100 / SECOND, 10.0, (CLASSES[0], ClassRule(1, 0.25, 0.05, ceiling=0.2)), 1.0, EPOCH + 3 * SECOND)
    taken = press(shares, lows, 3.0, 13.0, 100.0)
    assert sum(taken.values()) / 10 == pytest.approx(20, rel=0.15)
    shares.rebuild(100 / SECOND, 10.0, CLASSES, 1.0, EPOCH + 13 * SECOND)
    taken = press(shares, lows, 13.0, 23.0, 100.0)
    assert sum(taken.values()) / 10 == pytest.approx(100, rel=0.1)
    minted = Ask("minted", listed=False)
    press(shares, (*lows, minted), 23.0, 26.0, 200.0)
    shares.rebuild(100 / SECOND, 10.0, CLASSES, 8.0, EPOCH + 26 * SECOND)
    press(shares, (*lows, minted), 26.0, 29.0, 200.0)
    assert press(shares, (*lows, minted), 29.0, 39.0, 200.0)[minted] / 10 == pytest.approx(80, rel=0.1)


def test_closed_service_opens_empty() -> None:
    """A backstop of 0/s that gets a rate by a reload starts with no tokens: nothing is refilled."""
    shares = service(0.0, 1.0)
    shares.rebuild(100 / SECOND, 100.0, CLASSES, 1.0, EPOCH)
    assert shares.view(EPOCH).tokens == 0.0
    assert shares.take(Ask("a"), EPOCH + SECOND) is None


def test_virtual_time_is_set_back_before_it_is_too_large() -> None:
    """After billions of units per weight the share buckets go on as if nothing were: neither refilled nor emptied."""
    shares = service(1_000_000.0, 1.0)
    asks = (Ask("a", cls=1), Ask("a"), Ask("b"), Ask("c", listed=False))
    for second in range(4_000):
        for ask in asks:
            shares.take(ask, EPOCH + second * SECOND)
            shares.tick(EPOCH + second * SECOND)
    now = EPOCH + 4_000 * SECOND
    for name in ("a", "b"):
        held = share_of(shares, name, now)
        assert held.tokens == pytest.approx(held.burst)
        assert held.burst == pytest.approx(20, abs=0.01)


def test_flood_of_an_unlisted_tenant_is_its_own_doing() -> None:
    """What an unlisted tenant asks beyond its quota is no demand of the group either."""
    shares = service(500.0, 50.0)
    flood = Ask("flood", listed=False, own_rate_us=10 / SECOND, own_burst=10.0)
    press(shares, (*BUSY, flood), 0.0, 5.0, 300.0)
    refusals = [shares.take(flood, EPOCH + 5 * SECOND) for _ in range(200)]
    assert all(refusal.beyond_own for refusal in refusals[-100:] if refusal)
    assert refusals[-1] is not None


@pytest.mark.untraced
def test_hundreds_of_tenants_get_exact_shares() -> None:
    """Three hundred listed tenants and two hundred others, all asking for more: each gets its part of 10 s."""
    shares = service(5_000.0, 500.0)
    listed = [Ask(f"t{index}", weight=1.0 + index % 3, cost=5.0) for index in range(300)]
    asks = [*listed, *(Ask(f"m{index}", listed=False, cost=5.0) for index in range(200))]
    shares.rebuild(5_000 / SECOND, 500.0, CLASSES, 200.0, EPOCH)
    taken = dict.fromkeys(asks, 0)
    random = Random(1)
    for step in range(180):
        random.shuffle(asks)
        for place, ask in enumerate(asks):
            served = shares.take(ask, EPOCH + step * 100_000 + place * 200) is None
            taken[ask] += served and step >= 80
    part = 5_000 * 10 / (sum(ask.weight for ask in listed) + 200)
    for ask in asks:
        assert taken[ask] * 5.0 == pytest.approx(part * ask.weight, abs=0.05 * part * ask.weight + 20)
