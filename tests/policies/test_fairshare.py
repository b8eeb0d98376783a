"""The fair backstop, one sentence at a time. Rates are units a second, bursts units, instants microseconds."""

from __future__ import annotations

from dataclasses import replace
from math import inf

import pytest

from policies.kernels.share import ShareRefusal
from policies.units import NEVER, SECOND, Micros
from tests.clock import EPOCH
from tests.policies.shares import Ask, drain, press, service, share_of

__all__: list[str] = []


def test_lone_tenant_has_all_of_the_service_and_its_stored_burst() -> None:
    """Alone, what is over the share passes while tokens are there, and what is within it may go into debt."""
    shares = service(100.0)
    # 95 down to what is left alone, 20 of the share bucket, and no debt that only a share may make.
    assert drain(shares, Ask("a"), EPOCH) == pytest.approx(95, abs=1)
    taken = press(shares, (Ask("a"),), 0.0, 10.0, 300.0)
    assert sum(taken.values()) == pytest.approx(1_000, rel=0.03)


def test_refused_take_costs_nothing() -> None:
    """A refusal leaves tokens and share bucket as they were."""
    shares = service(100.0)
    drain(shares, Ask("a"), EPOCH)
    before, share = shares.view(EPOCH), share_of(shares, "a")
    for _ in range(100):
        assert shares.take(Ask("a"), EPOCH) is not None
    assert shares.view(EPOCH) == before
    after = share_of(shares, "a")
    assert (after.tokens, after.share) == (share.tokens, share.share)


def test_over_the_share_is_refused_by_share_and_told_a_wait() -> None:
    """Over the share with no tokens to spare: `share`, at least half a second from now, and later for each one more."""
    shares = service(100.0)
    press(shares, (Ask("a"), Ask("b")), 0.0, 3.0, 500.0)
    now = EPOCH + 3 * SECOND
    waits = [refusal.wait_us for refusal in (shares.take(Ask("a"), now) for _ in range(3)) if refusal]
    assert len(waits) == 3
    assert waits[0] > SECOND // 2
    assert waits[1] - waits[0] == waits[2] - waits[1] == pytest.approx(SECOND / 50, rel=0.2)
    refusal = shares.take(Ask("a"), now)
    assert refusal is not None
    assert refusal.limit == "share"
    assert share_of(shares, "a", now).over
    assert shares.view(now).contended


def test_waits_end_at_a_minute() -> None:
    """Nobody is booked further ahead than 60 s, and the queue stops there."""
    shares = service(10.0)
    press(shares, (Ask("a"), Ask("b")), 0.0, 3.0, 500.0)
    now = EPOCH + 3 * SECOND
    waits = [refusal.wait_us for refusal in (shares.take(Ask("a"), now) for _ in range(2_000)) if refusal]
    assert max(waits) == 60 * SECOND
    assert waits[-1] == waits[-2] == 60 * SECOND


def test_newcomer_takes_the_level_at_once() -> None:
    """Beside others that take everything, a tenant seen for the first time gets its twenty units at once."""
    shares = service(1_000.0, 100.0)
    heavy = tuple(Ask(f"heavy-{index}") for index in range(4))
    press(shares, heavy, 0.0, 3.0, 1_000.0)
    assert drain(shares, Ask("new"), EPOCH + 3 * SECOND) >= 20


def test_idle_hour_saves_up_one_burst() -> None:
    """After an hour without a call, a tenant beside busy ones has what one burst holds, and no more."""
    shares = service(1_000.0, 100.0)
    heavy = tuple(Ask(f"heavy-{index}") for index in range(4))
    assert shares.take(Ask("a"), EPOCH) is None
    press(shares, heavy, 3_600.0, 3_603.0, 1_000.0)
    burst = shares.level / 4
    assert 20 <= drain(shares, Ask("a"), EPOCH + 3_603 * SECOND) <= burst + 1


def test_time_that_steps_back_mints_nothing() -> None:
    """Takes at an older instant find no more than those at a newer one; afterwards all is as before."""
    shares = service(100.0)
    now = EPOCH + 10 * SECOND
    assert drain(shares, Ask("a"), now) > 0
    assert drain(shares, Ask("a"), now - 5 * SECOND) == 0
    assert drain(shares, Ask("a"), now) == 0


def test_shares_follow_weights() -> None:
    """Three tenants that all want more get 1 : 2 : 5."""
    shares = service(800.0, 100.0)
    asks = tuple(Ask(f"w{weight}", weight=float(weight)) for weight in (1, 2, 5))
    press(shares, asks, 0.0, 3.0, 1_000.0)
    taken = press(shares, asks, 3.0, 13.0, 1_000.0)
    assert [count / 10 for count in taken.values()] == pytest.approx([100, 200, 500], rel=0.03)


def test_weight_that_changes_keeps_what_the_bucket_holds() -> None:
    """An ask with another weight moves the share, not the tokens."""
    shares = service(1_000.0)
    for _ in range(15):
        shares.take(Ask("a"), EPOCH)
    shares.take(Ask("a", weight=4.0, cost=0.0), EPOCH)
    share = share_of(shares, "a", EPOCH)
    assert share.tokens == pytest.approx(5.0, abs=0.01)
    shares.take(Ask("a", weight=4.0, cls=1), EPOCH)
    shares.take(Ask("a", weight=2.0, cls=1), EPOCH)
    assert shares.take(Ask("a", weight=2.0), EPOCH) is None


def test_cost_above_the_bucket_needs_a_full_one() -> None:
    """A full share bucket admits any cost and goes into debt; after that the tenant waits."""
    shares = service(100.0, 10.0)
    press(shares, (Ask("b"), Ask("c")), 0.0, 3.0, 300.0)
    now = EPOCH + 3 * SECOND
    assert shares.take(Ask("a", cost=30.0), now) is None
    share = share_of(shares, "a", now)
    assert share.tokens == pytest.approx(-10.0, abs=0.01)
    assert shares.take(Ask("a", cost=30.0), now) is not None


def test_debt_is_bounded_and_fuller_buckets_go_first() -> None:
    """With more full share buckets than the debt can hold, asks within the share are refused by `backstop`."""
    shares = service(100.0, 10.0)
    refusals = [shares.take(Ask(f"t{index % 50}"), EPOCH) for index in range(500)]
    view = shares.view(EPOCH)
    assert view.debt_bound == 50.0
    assert 25.0 <= view.debt <= 51.0
    limits = {refusal.limit for refusal in refusals if refusal}
    assert limits == {"backstop"}
    share = share_of(shares, "t0", EPOCH)
    assert share.within_refused > 0
    assert not share.over
    # A tenant with a full bucket may go deeper than one that has spent half of it.
    shares = service(100.0, 10.0)
    spent = tuple(Ask(f"spent-{index}") for index in range(4))
    for ask in spent:
        drain(shares, ask, EPOCH, 18)
    assert shares.view(EPOCH).debt > 25.0
    assert shares.take(spent[0], EPOCH) is not None
    assert shares.take(Ask("fresh"), EPOCH) is None


def test_refused_within_is_what_fitted_the_share() -> None:
    """Fuller buckets than the debt can hold: who asks for ten shares is over its share, who asks for half is within.

    The first burst of the avid ones fits; what comes after it does not, though their buckets stay nearly full.
    """
    shares = service(100.0, 10.0)
    avid = [Ask(f"avid-{index}", weight=0.5) for index in range(500)]
    counted = {False: 0, True: 0}
    for step in range(60_000):
        refusal = shares.take(avid[step % 500], EPOCH + step * 1_000)
        if refusal is not None:
            assert refusal.limit == "backstop"
            if step > 25_000:
                counted[refusal.over] += 1
    assert counted[True] > 30_000
    assert counted[False] == 0
    now = EPOCH + 60 * SECOND
    before = share_of(shares, "avid-0", now).within_refused
    assert 0 < before <= 20
    modest = [shares.take(Ask("modest"), now) for _ in range(10)]
    refused = [refusal for refusal in modest if refusal is not None and refusal.limit == "backstop"]
    assert [refusal.over for refusal in refused] == [False] * len(refused)


def test_refused_demand_is_forgotten_at_the_rate_of_the_share() -> None:
    """Whoever asked for far more than its share is within it again once its share has made up for two bursts."""
    shares = service(100.0, 10.0)
    crowd = [Ask(f"t{index}") for index in range(50)]

    def ask_all(times: int, now: Micros) -> list[bool]:
        """Let everybody ask so often; return which of the refused of the last round were over their share."""
        rounds = [[shares.take(ask, now) for ask in crowd] for _ in range(times)]
        return [refusal.over for refusal in rounds[-1] if refusal is not None]

    assert ask_all(40, EPOCH) == [True] * 50
    assert ask_all(15, EPOCH + 30 * SECOND) == [False] * 50


def test_small_service_may_owe_five_units() -> None:
    """500 ms of 1/s would be half a unit: the debt bound is five units, or half a smaller burst."""
    assert service(1.0, 10.0).view(EPOCH).debt_bound == pytest.approx(5.0)
    assert service(1.0, 4.0).view(EPOCH).debt_bound == pytest.approx(2.0)


def test_no_capacity_refuses_everything_for_ever() -> None:
    """A quota of 0/s admits nothing and promises nothing."""
    shares = service(0.0, 1.0)
    for cls in (0, 1):
        assert shares.take(Ask("a", cls=cls), EPOCH) == ShareRefusal("backstop", NEVER)
    shares.tick(EPOCH + SECOND)
    assert shares.view(EPOCH).used_ratio == 0.0


def test_give_back_returns_share_and_backstop() -> None:
    """What never reached the upstream costs neither; what was over the share returns to the backstop alone."""
    shares = service(100.0)
    before = shares.view(EPOCH).tokens
    assert shares.take(Ask("a", cost=5.0), EPOCH) is None
    shares.give_back(Ask("a", cost=5.0), EPOCH, over=shares.over)
    share = share_of(shares, "a", EPOCH)
    assert share.tokens == pytest.approx(20.0, abs=0.01)
    assert shares.view(EPOCH).tokens == pytest.approx(before)
    for _ in range(60):
        shares.take(Ask("a"), EPOCH)
    last_was_over = shares.over
    assert last_was_over
    tokens = shares.view(EPOCH).tokens
    shares.give_back(Ask("a"), EPOCH, over=last_was_over)
    assert shares.view(EPOCH).tokens == pytest.approx(tokens + 1)
    share = share_of(shares, "a", EPOCH)
    assert share.tokens < 1.0


def test_demand_beyond_the_own_limits_is_the_callers_own() -> None:
    """A flood of 10,000/s on a quota of 100/s: what exceeds the quota is `beyond_own`, and no demand."""
    shares = service(100.0, 10.0)
    flood = Ask("flood", own_rate_us=100 / SECOND, own_burst=10.0)
    beside = Ask("beside")
    refused = beyond = 0
    for step in range(20_000):
        now = EPOCH + step * 100
        refusal = shares.take(flood, now)
        if refusal is not None:
            refused += 1
            beyond += refusal.beyond_own
        if step % 100 == 0:
            shares.take(beside, now)
    assert refused - beyond <= 2 * 100 + 10
    assert shares.view(EPOCH + 2 * SECOND).demand <= 250
    # With no quota left to speak of, the meter forgets nothing when the limits change.
    now = EPOCH + 2 * SECOND
    refusal = shares.take(replace(flood, own_burst=5.0), now)
    assert refusal is not None
    assert refusal.beyond_own
    refusal = shares.take(replace(flood, own_rate_us=inf, own_burst=inf), now)
    assert refusal is not None
    assert not refusal.beyond_own


def test_used_ratio_is_what_was_taken_of_the_capacity() -> None:
    """Half of the capacity taken for some seconds reads about a half, whatever was refused beside."""
    shares = service(100.0, 100.0)
    for tick in range(500):
        shares.take(Ask("a"), EPOCH + tick * 20_000)
        shares.tick(EPOCH + tick * 20_000 + 10_000)
    assert shares.view(EPOCH + 10 * SECOND).used_ratio == pytest.approx(0.5, abs=0.05)
    press(shares, (Ask("a"), Ask("b")), 10.0, 16.0, 300.0)
    assert shares.view(EPOCH + 16 * SECOND).used_ratio == pytest.approx(1.0, abs=0.1)


def test_obedient_tenant_keeps_its_share_in_lumps() -> None:
    """Callers told whole seconds come a second's worth at once; beside hammering ones they still get their share."""
    shares = service(400.0, 20.0)
    hammer = tuple(Ask(f"hammer-{index}") for index in range(7))
    press(shares, (*hammer, Ask("obeys")), 0.0, 3.0, 300.0)
    taken = 0
    for second in range(3, 23):
        press(shares, hammer, second, second + 1, 300.0)
        taken += drain(shares, Ask("obeys"), EPOCH + (second + 1) * SECOND, 60)
    assert taken >= 0.92 * 50 * 20


def test_saved_share_is_lost_once_nobody_is_booked() -> None:
    """What was saved for callers that were to return does not wait for others."""
    shares = service(100.0, 20.0)
    hammer = tuple(Ask(f"hammer-{index}") for index in range(3))
    press(shares, (*hammer, Ask("gone")), 0.0, 3.0, 300.0)
    press(shares, hammer, 3.0, 80.0, 150.0)
    assert drain(shares, Ask("gone"), EPOCH + 80 * SECOND) <= 21


def test_level_is_never_below_an_even_part() -> None:
    """However demand is estimated, what everybody could have at once is in force at least."""
    shares = service(100.0, 10.0)
    asks = tuple(Ask(f"t{index}") for index in range(10))
    press(shares, asks, 0.0, 2.0, 50.0)
    assert shares.level >= 100.0 / 2 / 10
    shares.tick(EPOCH + 30 * SECOND)
    assert shares.level > 0.0


def test_hundreds_that_are_over_their_share_in_one_instant() -> None:
    """More tenants than are folded in at once want more than they have, in one instant: nobody goes uncounted."""
    shares = service(1_000.0, 10_000.0)
    for index in range(600):
        drain(shares, Ask(f"t{index}"), EPOCH, 12)
    shares.tick(EPOCH + SECOND // 10)
    assert shares.view(EPOCH + SECOND // 10).demand == pytest.approx(600 * 12 * 2.5, rel=0.1)


def test_backstop_stores_its_burst_and_no_more() -> None:
    """Idle for a minute or for an instant, the backstop is full and no more, whoever takes from it next."""
    shares = service(100.0, 50.0)
    assert shares.take(Ask("a"), EPOCH + 60 * SECOND) is None
    assert shares.view(EPOCH + 60 * SECOND).tokens == pytest.approx(49.0)
    assert shares.take(Ask("a", cost=15.0), EPOCH + 60 * SECOND + 50_000) is None
    assert shares.view(EPOCH + 60 * SECOND + 50_000).tokens == pytest.approx(35.0)
