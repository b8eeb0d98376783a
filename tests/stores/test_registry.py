"""Registries, in a file and in a real Redis: one contract; and what only a shared one can meet."""

from __future__ import annotations

import sqlite3
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from gateway.config.sections import StoreSection
from gateway.identity.jobs import JobRegistry
from gateway.stores.acts import Acts
from gateway.stores.calls import CallError, Calls
from gateway.stores.registry import Entry, Registry, RegistryError, open_registry
from policies.units import SECOND
from tests.clock import StandingClock
from tests.policies.documents import policy_set
from tests.wire.redis import RedisServer

__all__: list[str] = []

Opener = Callable[..., Registry]
POSTURE: dict[str, Any] = {"posture": "open", "reason": "outage", "owner": "sre", "for": "1h"}


def calls(server: RedisServer) -> Calls:
    """Return what threads ask a server with."""
    return Calls(StoreSection(url=server.url))


@pytest.fixture
def clock() -> StandingClock:
    """Return a clock that stands at the true time, since a store has its own."""
    return StandingClock(int(time.time()) * SECOND)


@pytest.fixture(params=["file", "redis"])
def opened(request: pytest.FixtureRequest, tmp_path: Path, clock: StandingClock) -> Iterator[Opener]:
    """Return what opens the same registry again, as another process does."""
    made: list[Registry] = []
    place = tmp_path / "e.sqlite3" if request.param == "file" else calls(request.getfixturevalue("redis_server"))

    def again(most: int = 10, kept_us: int = 0) -> Registry:
        made.append(open_registry(place, "things", most, clock, kept_us))
        made[-1].poll()
        return made[-1]

    yield again
    for one in made:
        one.close()


def entry(name: str, clock: StandingClock, seconds: int = 60) -> Entry:
    """Return something to keep for some seconds."""
    return Entry(name, {"said": f"{name}: \u00fc"}, clock.at + seconds * SECOND)


def test_what_is_kept_is_known_elsewhere(opened: Opener, clock: StandingClock) -> None:
    """What one adds or ends is so for another after a poll, and for one that starts later; each change is told once."""
    mine, theirs = opened(), opened()
    heard: list[tuple[str, str]] = []
    theirs.gained = lambda one: heard.append(("gained", one.id))
    theirs.lost = lambda one: heard.append(("lost", one.id))
    one, two = entry("one", clock), entry("two", clock)
    mine.add(one)
    mine.add(two)
    theirs.poll()
    theirs.poll()
    assert theirs.live == {"one": one, "two": two} == mine.live == opened().live
    assert mine.end("one")
    assert not mine.end("one")
    theirs.poll()
    assert theirs.live == {"two": two} == opened().live
    assert heard[2:] == [("lost", "one")]
    assert sorted(heard[:2]) == [("gained", "one"), ("gained", "two")]
    assert theirs.version == 3
    assert theirs.end("two")
    mine.poll()
    assert mine.live == {}


def test_what_has_ended_is_gone(opened: Opener, clock: StandingClock) -> None:
    """By the clock, for whoever holds it and for whoever reads it later; and then there is room again."""
    mine = opened(most=2)
    mine.add(entry("brief", clock, 1))
    mine.add(entry("long", clock))
    with pytest.raises(RegistryError, match="2 things already"):
        mine.add(entry("third", clock))
    clock.at += 2 * SECOND
    mine.poll()
    assert mine.live.keys() == {"long"} == opened().live.keys()


def test_one_that_is_full_for_others_is_full(opened: Opener, clock: StandingClock, redis_server: RedisServer) -> None:
    """A shared one counts them all, whoever has seen which."""
    mine, theirs = opened(most=1), opened(most=1)
    mine.add(entry("one", clock))
    theirs.poll()
    with pytest.raises(RegistryError, match="already"):
        theirs.add(entry("two", clock))
    assert redis_server.running


def test_it_follows_by_itself(opened: Opener, clock: StandingClock, monkeypatch: pytest.MonkeyPatch) -> None:
    """A thread polls, until it is closed."""
    monkeypatch.setattr("gateway.stores.registry.POLL_SECONDS", 0.01)
    mine, theirs = opened(), opened()
    seen = threading.Event()
    theirs.gained = lambda _: seen.set()
    theirs.start()
    mine.add(entry("one", clock))
    assert seen.wait(30)
    theirs.close()


PLANTED: dict[str, tuple[tuple[str, ...], ...]] = {
    "all of them": tuple(("RPUSH", part, "x") for part in ("rows", "ends", "state", "log")),
    "rows": (("SET", "rows", "x"),),
    "ends": (("SET", "ends", "x"),),
    "state": (("SADD", "state", "x"),),
    "log": (("SET", "log", "x"),),
    "a number that is none": (("HSET", "state", "epoch", "e", "n", "x"),),
    "a log far ahead": (("XADD", "log", "*", "x", "y"),),
    "a row": (("HSET", "rows", "one", "noise", "other", "[1, 2, 3]", "\udcff", "[]"),),
}


@pytest.mark.parametrize("planted", PLANTED.values(), ids=PLANTED)
def test_what_is_not_ours_is_replaced(
    redis_server: RedisServer,
    clock: StandingClock,
    planted: tuple[tuple[str, ...], ...],
    caplog: pytest.LogCaptureFixture,
) -> None:
    """By whoever comes by; what processes know is put back, and all of it goes on; the log warns once for each."""
    mine, theirs, late = (open_registry(calls(redis_server), "things", 10, clock) for _ in range(3))
    one, two = entry("one", clock), entry("two", clock)
    mine.add(one)
    theirs.poll()
    for command, part, *words in planted:
        key = f"evenhand:1:{{registry.things}}:{part}"
        if command not in {"HSET", "XADD"}:
            redis_server.ask("DEL", key)
        redis_server.ask(command, key, *(word.encode("utf-8", "surrogateescape") for word in words))
    late.poll()
    mine.add(two)
    for _ in range(2):
        for registry in (mine, theirs, late):
            registry.poll()
            assert registry.fault == ""
    later = open_registry(calls(redis_server), "things", 10, clock)
    later.poll()
    assert mine.live == theirs.live == late.live == later.live == {"one": one, "two": two}
    assert mine.end("one")
    later.poll()
    assert later.live == {"two": two}
    assert all(redis_server.ask("TTL", name) > 0 for name in redis_server.ask("KEYS", "*"))
    assert len([line for line in caplog.messages if "somebody else" in line]) <= 3


def test_entry_that_is_no_act_or_job_is_passed_over(redis_server: RedisServer, clock: StandingClock) -> None:
    """Whoever wrote it: the others hold, and nothing that asks for them fails."""
    acts, jobs = Acts(calls(redis_server), clock), JobRegistry(calls(redis_server), clock)
    act = acts.add("posture", POSTURE, policy_set())
    jobs.register("acme", "p", "1", 60 * SECOND)
    bodies: tuple[dict[str, Any], ...] = (
        {},
        {"kind": 1, "members": [], "made_us": 1},
        {"kind": "pause", "members": {"name": "x"}, "made_us": ""},
    )
    for name in ("acts", "jobs"):
        for number, body in enumerate(bodies):
            open_registry(calls(redis_server), name, 99, clock).add(Entry(str(number), body, clock.at + 60 * SECOND))
    later, others = Acts(calls(redis_server), clock), JobRegistry(calls(redis_server), clock)
    for one in (acts, jobs, later, others):
        one.poll()
    assert [one.id for one in later.current] == [act.id] == [one.id for one in acts.current]
    assert later.ids() == acts.ids()
    assert others.live == jobs.live != {}


def test_a_round_that_fails_ends_nothing(
    redis_server: RedisServer, clock: StandingClock, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """It is logged and told, and what comes later is followed all the same."""
    monkeypatch.setattr("gateway.stores.registry.POLL_SECONDS", 0.01)
    mine, theirs = (open_registry(calls(redis_server), "things", 10, clock) for _ in range(2))
    mine.add(entry("one", clock))
    faults = iter([RuntimeError("a bug")])

    def gained(_: Entry) -> None:
        for fault in faults:
            raise fault

    theirs.gained = gained
    theirs.start()
    until = time.monotonic() + 30
    while theirs.fault and time.monotonic() < until:
        time.sleep(0.01)
    theirs.close()
    assert (theirs.fault, theirs.live) == ("", mine.live)
    assert "failed" in caplog.text


def test_tables_of_before_are_taken_over(tmp_path: Path) -> None:
    """What an older version kept is there, tokens and acts; its tables are not."""
    path, clock = tmp_path / "e.sqlite3", StandingClock()
    ends = clock.at + 60 * SECOND
    with sqlite3.connect(path) as connection:
        connection.executescript(
            "CREATE TABLE jobs (id, digest BLOB, tenant, project, job, expires_us) ;"
            "CREATE TABLE acts (id, kind, members, made_us, expires_us, ended_us);"
            f"INSERT INTO jobs VALUES ('job-1', x'{bytes(32).hex()}', 'acme', 'web', '7', {ends});"
            f"INSERT INTO acts VALUES ('pause-1', 'pause', '{{\"name\": \"p\"}}', 1, {ends}, NULL);"
        )
    connection.close()
    jobs, acts = JobRegistry(path, clock), Acts(path, clock)
    jobs.poll()
    acts.poll()
    assert [(job.id, job.tenant) for job in jobs.live.values()] == [("job-1", "acme")]
    assert jobs.live.keys() == {bytes(32)}
    assert acts.ids() == {"p": "pause-1"}
    jobs.stop()
    acts.close()


def test_many_changes_are_read_as_a_whole(redis_server: RedisServer, clock: StandingClock) -> None:
    """Whoever slept longer than the log reaches reads everything; records all have an end."""
    mine, theirs = (open_registry(calls(redis_server), "things", 9999, clock) for _ in range(2))
    for number in range(5):
        mine.add(entry(str(number), clock))
    theirs.poll()
    redis_server.ask("XTRIM", *(name for name in redis_server.ask("KEYS", "*log")), "MAXLEN", 2)
    for number in range(5, 10):
        mine.add(entry(str(number), clock))
    redis_server.ask("XTRIM", *(name for name in redis_server.ask("KEYS", "*log")), "MAXLEN", 2)
    mine.end("3")
    theirs.poll()
    assert theirs.live == mine.live
    assert len(theirs.live) == 9
    assert all(redis_server.ask("TTL", name) > 0 for name in redis_server.ask("KEYS", "*"))


def test_a_store_that_is_down_changes_nothing(
    tmp_path: Path, clock: StandingClock, caplog: pytest.LogCaptureFixture
) -> None:
    """The copy holds on, adding fails in a sentence, a posture holds here; and what the store lost is put back."""
    with RedisServer(tmp_path) as server:
        mine, theirs = (Acts(calls(server), clock) for _ in range(2))
        jobs = JobRegistry(calls(server), clock)
        act = mine.add("posture", POSTURE, policy_set())
        ended = mine.add("posture", POSTURE, policy_set())
        job, _ = jobs.register("acme", "p", "1", 60 * SECOND)
        theirs.poll()
        mine.end("posture", ended.id)
        server.kill()
        for one in (mine, theirs):
            one.poll()
        assert [one.id for one in mine.current] == [act.id]
        assert len(theirs.current) == 2
        assert "cannot be read: the shared store" in mine.warnings()[0]
        with pytest.raises(RegistryError, match="jobs cannot be kept: the shared store"):
            jobs.register("acme", "p", "2", 60 * SECOND)
        with pytest.raises(RegistryError):
            jobs.end(job.id)
        held = mine.add("posture", POSTURE, policy_set())
        assert {one.id for one in mine.current} == {act.id, held.id}
        assert any(held.id in warning and "this process only" in warning for warning in mine.warnings())
        brief = mine.add("posture", POSTURE, policy_set())
        assert mine.end("posture", brief.id) == brief
        server.start()
        jobs.poll()
        assert jobs.warning() is None
        for acts in (mine, theirs, mine, theirs):
            acts.poll()
        assert {one.id for one in mine.current} == {act.id, held.id} == {one.id for one in theirs.current}
        assert mine.warnings() == []
        later = JobRegistry(calls(server), clock)
        later.poll()
        assert [one.id for one in later.live.values()] == [job.id]
    assert "lost the jobs; 1 of them" in caplog.text


def test_a_record_of_another_type_is_written_anew(redis_server: RedisServer, caplog: pytest.LogCaptureFixture) -> None:
    """By who writes, alone or among many, and with its expiry; whoever reads finds nothing; the log warns once."""
    asked = calls(redis_server)
    key = asked.names.key("policy-use", "first")
    for _ in range(2):
        redis_server.ask("SET", key, "planted")
        assert list(asked.ask_all([("EXPIRE", key, 9), ("HSET", key, "a", "b"), ("EXPIRE", key, 9)]))[1] == 1
        assert redis_server.ask("TTL", key) > 0
        redis_server.ask("DEL", key)
        redis_server.ask("RPUSH", key, "planted")
        assert asked.ask("HGETALL", key) == {}
        assert list(asked.ask_all([("HMGET", key, "a", "b"), ("HGET", key, "a")])) == [[None, None], None]
        assert asked.ask("HSET", key, "a", "b") == 1
    assert len(caplog.messages) == 1
    assert "of another type" in caplog.text


def test_what_goes_wrong_is_one_sentence(tmp_path: Path) -> None:
    """Refused, a password that is wrong, an error of the server, silence."""
    with RedisServer(tmp_path, "--requirepass", "right") as server:
        with pytest.raises(CallError, match="the shared store"):
            calls(server).ask("GET", "x")
        wrong = Calls(StoreSection(url=f"redis://:wrong@127.0.0.1:{server.port}"))
        with pytest.raises(CallError) as told:
            wrong.ask("GET", "x")
        assert "wrong" not in str(told.value)
        right = Calls(StoreSection(url=f"redis://:right@127.0.0.1:{server.port}"))
        assert list(right.ask_all([("SET", "a", number) for number in range(450)])) == [True] * 450
        with pytest.raises(CallError, match="wrongtype"):
            right.ask("LPUSH", "a", "b")
        right.ask("CONFIG", "SET", "maxmemory", 1)
        with pytest.raises(CallError) as told:
            list(right.ask_all([("HSET", "secret-name", "a", "b")]))
        assert str(told.value) == "the shared store cannot be used (oom: the server's memory is full)"
        right.ask("CONFIG", "SET", "maxmemory", 0)
        right.ask("CLIENT", "PAUSE", 1500)
        with pytest.raises(CallError, match="in time"):
            right.ask("GET", "a")
