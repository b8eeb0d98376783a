"""Several histories on one real store: sums, one leader at a time, and the same numbers as a file would come to."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path

import pytest

from gateway.errors import GatewayError
from gateway.history.explain import explain
from gateway.history.identity import Identity, tenant_identity
from gateway.history.kept import archive_of, open_history
from gateway.history.shared import keeper
from gateway.history.shared.lead import FencedError
from policies.policy import Mode
from policies.request import Kind, Principal
from policies.units import SECOND
from tests.gateway.history.kept import BEGIN, DAY, POLICIES, Kept
from tests.gateway.history.together import KEY, LEASE_MS, TENANT, WHO, Together, leader, rates
from tests.wire.redis import RedisCluster, RedisServer

__all__: list[str] = []


def test_the_sum_is_what_one_would_have_come_to(both: Together, redis_server: RedisServer) -> None:
    """Peaks, numbers and provenance are those of a file that saw all of it; both have them, and so has a third."""
    alone = Kept(None)
    alone.days(3, 400)
    both.days(3, 400)
    here = both.processes[0].history.sized
    assert rates(here) == rates(alone.history.sized)
    assert here[KEY].peak == 40.0
    assert rates(both.processes[1].history.sized) == rates(here) == rates(both.processes[1].applied[-1])
    assert rates(both.join().opened) == rates(here)
    archive = archive_of(both.calls)
    today = both.at // DAY
    assert archive.number(Identity.of(WHO), None) == here[KEY]
    before = archive.number(Identity.of(WHO), today - 1)
    assert before is not None
    assert before.day == today - 1
    assert archive.number(Identity.of(WHO), BEGIN // DAY - 1) is None
    assert archive.number(tenant_identity("nobody"), None) is None
    assert "sustained" in explain(POLICIES, archive, "acme", "ci")
    with archive.pasts() as pasts:
        (whole, whole_identity), (number, _) = pasts.of_tenant("acme")
        days, steps = pasts.past(number)
    assert (whole, whole_identity.name) == (0, TENANT)
    assert [day.number for day in days] == [BEGIN // DAY + n for n in range(3)]
    assert [step.day for step in steps] == [BEGIN // DAY + n for n in range(1, 4)]
    alone.stop()
    names = redis_server.ask("KEYS", "*")
    assert len(names) > 20
    assert all(redis_server.ask("PTTL", name) != -1 for name in names)


def test_who_was_shed_is_answered_by_any_process(both: Together) -> None:
    """Slot by slot, five minutes and days, of all processes together; what was not added up yet too."""
    both.use(6)
    both.use(4, limit="key")
    one, other = both.processes
    one.tenants, other.tenants = {(0, ""): 5, (4, "key"): 2}, {(0, ""): 1, (6, "share"): 3}
    both.processes[0].history.meter.note(WHO, 1.0, "", both.at * SECOND)
    both.to(both.at + 5)
    late = archive_of(both.calls).series
    for series in (other.history.archive.series, late):
        _, found = series.tenants(BEGIN, both.at + 10, both.at)
        assert found == {"acme": {(0, ""): 6, (4, "key"): 2, (6, "share"): 3}}
        _, step, lines = series.tenant("acme", BEGIN, both.at + 10, both.at)
        assert step == 10
        key = [(point.at - BEGIN, point.counts) for point in lines["user", "ci"]]
        assert key == [(0, {(0, ""): 6}), (10, {(4, "key"): 4}), (20, {(0, ""): 1})]
    both.to(both.at + 5)
    one.tenants, other.tenants = {}, {}
    both.to(both.at + 600)
    for at in (both.at + 10, both.at + 3 * 3600, both.at + 10 * DAY):
        _, _, lines = late.tenant("acme", BEGIN - DAY, at, both.at)
        assert sum(point.counts[0, ""] for point in lines["user", "ci"]) == 7
        assert sum(point.counts[4, "key"] for point in lines["user", "ci"]) == 4


def test_a_leader_that_dies_is_followed(redis_server: RedisServer, monkeypatch: pytest.MonkeyPatch) -> None:
    """Within its lease; what it had written counts, what it writes when it wakes does not, nothing is sized twice."""
    both = Together(redis_server, lease_ms=1500)
    both.use(8)
    dead = leader(both)
    books, heir = dead.history._books, next(one for one in both.processes if one is not dead)
    assert books is not None
    dead.history.meter.note(WHO, 1.0, "", both.at * SECOND)
    both.to(both.at + 5)
    sized = sum(len(one.applied) for one in both.processes)
    both.processes.remove(dead)
    monkeypatch.setattr(keeper, "_PATIENCE_SECONDS", 0.1)
    until = time.monotonic() + 60
    while not heir.history.leads and time.monotonic() < until:
        both.to(both.at)
        time.sleep(0.02)
    assert heir.history.leads
    heir.history._lead._lease_ms = LEASE_MS
    both.to(both.at + 5)
    time.sleep(0.15)
    for _ in range(3):
        both.use(2)
    series = archive_of(both.calls).series
    points = series.tenant("acme", BEGIN, both.at, both.at)[2]["user", "ci"]
    assert [point.counts[0, ""] for point in points] == [8, 1, 2, 2, 2]
    books.note("folded", 1)
    books.key(tenant_identity("forged"), 1, listed=True)
    with pytest.raises(FencedError):
        books.end()
    assert dead.history._lead.token == 0
    assert not archive_of(both.calls).seen(tenant_identity("forged"))
    dead.history.turn(both.at)
    assert not dead.history.leads
    assert sum(len(one.applied) for one in (dead, heir)) == sized
    assert both.calls.ask("HGET", both.processes[0].history._records.meta, "folded") == b"%d" % (
        (both.at - 4) // 10 - 1
    )
    for one in (dead, heir):
        one.history.stop()


def test_leading_in_turns_changes_nothing(both: Together) -> None:
    """However often the lead changes hands: what comes out is what one would have come to."""
    alone = Kept(None)
    for at in (36_000, 39_600, 41_500, DAY + 1810, DAY + 1820):
        both.restless = at < DAY
        alone.to(BEGIN + at)
        both.to(BEGIN + at)
        for units in (300, 400, 400, 400, 400, 400, 400, 100) if at == 36_000 else ():
            alone.use(units)
            both.use(units)
    assert rates(both.processes[0].history.sized) == rates(alone.history.sized)
    assert alone.history.sized[KEY].peak == 40.0
    assert max(one.history._token for one in both.processes) > 20
    alone.stop()


def test_what_is_old_goes(both: Together) -> None:
    """A key that nobody saw for 90 days and nobody listed; a listed one is kept on, and no number is given twice."""
    both.use(5, who=Principal(Kind.USER, "minted", "x", listed=False))
    both.use(5)
    both.to(both.at + 5)
    archive = archive_of(both.calls)
    assert archive.seen(tenant_identity("minted"))
    both.to(BEGIN + 100 * DAY + 1820)
    both.to(both.at + 10)
    both.use(5, who=Principal(Kind.USER, "fresh", "x", listed=False))
    both.to(both.at + 5)
    with archive_of(both.calls).pasts() as pasts:
        assert pasts.of_tenant("minted") == []
        assert [number for number, _ in pasts.of_tenant("fresh")] == [4, 5]
        assert [number for number, _ in pasts.of_tenant("acme")] == [2, 3]


def test_on_a_cluster(redis_cluster: RedisCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same, with records spread over its servers."""
    monkeypatch.setattr(keeper, "_BEYOND", 1)
    both = Together(redis_cluster)
    both.use(7)
    both.use(2, limit="share")
    both.to(both.at + 600)
    _, found = both.processes[0].history.archive.series.tenants(BEGIN, both.at, both.at)
    assert found == {}  # nobody told of tenants
    _, _, lines = both.processes[1].history.archive.series.tenant("acme", BEGIN, both.at, both.at)
    assert [point.counts for point in lines["user", "ci"]] == [{(0, ""): 7}, {(8, "share"): 2}]
    assert all(one.history.warnings() == [] for one in both.processes)
    assert sum(server.ask("DBSIZE") > 0 for server in redis_cluster.servers) > 1
    for one in both.processes:
        one.history.stop()


def test_one_that_is_slow_is_waited_for(both: Together) -> None:
    """A slot is added up once everybody has written it: nobody's part of a peak is missed."""
    slow = next(one for one in both.processes if not one.history.leads)
    first = leader(both)
    slow.history.meter.note(WHO, 5.0, "", both.at * SECOND)
    both.processes.remove(slow)
    both.to(both.at + 30)
    books = first.history._books
    assert books is not None
    assert books.meta("folded") < both.at // 10 - 3
    both.processes.append(slow)
    both.to(both.at + 10)
    both.to(both.at + 5)
    points = archive_of(both.calls).series.tenant("acme", BEGIN, both.at, both.at)[2]["user", "ci"]
    assert [(point.at, point.counts[0, ""]) for point in points] == [(BEGIN, 1)]
    assert books.meta("folded") == both.at // 10 - 1
    assert first.history.warnings() == slow.history.warnings() == []


def test_a_reload_anywhere_sizes_anew(both: Together) -> None:
    """Whoever does not lead asks whoever does."""
    both.use(3)
    led = leader(both)
    applied = len(led.applied)
    for one in both.processes:
        one.history.recompute()
    both.to(both.at + 5)
    both.to(both.at + 6)
    assert len(led.applied) > applied


def test_a_store_that_is_gone_is_waited_for(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """It is told, what was counted waits, one leads again; an empty one is begun anew, with the numbers known here."""
    with RedisServer(tmp_path) as server:
        quick = replace(POLICIES, sizing=replace(POLICIES.sizing, learn_us=DAY * SECOND))
        alone = Together(server, 2, quick)
        project = Principal(Kind.JOB, "acme", "group/site")
        alone.use(1, who=project)
        alone.to(alone.at + 5)
        alone.days(2, 400)
        for each in alone.processes:
            each.applied.clear()
        server.kill()
        caplog.clear()
        alone.use(4)
        alone.to(alone.at + 1)
        one, other = alone.processes
        assert one.history.warnings()[0].startswith("history: the shared store cannot be used (refused: no connection")
        assert [line for line in caplog.messages if "history" in line] == 2 * [one.history.warnings()[0]]
        assert "what is counted waits" in one.history.warnings()[0]
        with pytest.raises(GatewayError):
            one.history.archive.series.tenants(BEGIN, alone.at, alone.at)
        server.start()
        alone.to(alone.at + 5)
        alone.to(alone.at + 10)
        assert one.history.leads
        assert one.history.warnings() == other.history.warnings() == []
        assert "the numbers of 3 keys that are known here were put back" in caplog.text
        assert caplog.text.count("the shared store answers again; what waited is written") == 2
        sized = one.history.sized[KEY]
        assert (sized.mode, sized.provenance) == (Mode.ENFORCE, "sized")
        assert float(sized.quota.rate.per_second) in {28.13, 25.32}  # a tenth less than the 31.25 of before, or two
        assert other.history.sized.keys() == {KEY, TENANT, project.name}
        assert all(held.quota == one.history.sized[name].quota for name, held in other.history.sized.items())
        assert all(KEY in numbers for each in (one, other) for numbers in each.applied)
        points = one.history.archive.series.tenant("acme", alone.at - 600, alone.at, alone.at)[2]["user", "ci"]
        assert [point.counts[0, ""] for point in points] == [2, 2]
        for each in (one, other):
            each.history.stop()
        later = open_history(alone.calls, 10, alone.clock, lambda: POLICIES, lambda _: None)
        assert later.open().keys() == {KEY, TENANT, project.name}
        server.kill()
        later.stop()
        assert "counted last is lost" in later.warnings()[0]
