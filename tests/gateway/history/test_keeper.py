"""Days of a key in a moment: what is stored, sized, forgotten, and what survives."""

from __future__ import annotations

import sqlite3
import time
from dataclasses import replace
from pathlib import Path

import pytest

from gateway.history.archive import FileArchive
from gateway.history.keeper import History
from gateway.history.schema import VERSION, connect, migrate
from policies.policy import Mode
from policies.request import Kind, Principal
from policies.units import SECOND
from tests.gateway.history.kept import BEGIN, DAY, POLICIES, Kept
from tests.policies.documents import acme, credential, quota, tenants

__all__: list[str] = []

KEY, TENANT = "tenant=acme,credential=ci", "tenant=acme"


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """Return where a history is kept."""
    return tmp_path / "history.sqlite3"


def rate(kept: Kept, name: str = KEY) -> float:
    """Return the number that a name's past comes to."""
    return float(kept.history.sized[name].next_quota.rate.per_second)


def test_a_key_is_sized_from_its_past(file: Path) -> None:
    """40/s sustained is 80/s, enforced after a week, a step of 1.25 a day at most."""
    kept = Kept(file)
    kept.days(3, 400)
    assert [rate(kept, name) for name in (KEY, TENANT)] == [39.06, 39.06]
    assert kept.history.sized[KEY].mode is Mode.SHADOW
    kept.days(5, 400)
    sized = kept.history.sized[KEY]
    assert (sized.mode, sized.provenance, sized.peak) == (Mode.ENFORCE, "sized", 40.0)
    assert rate(kept) == 60.0  # three times the start, for a key as young as this
    assert kept.applied[-1] == kept.history.sized
    kept.stop()


def test_numbers_survive_a_restart(file: Path) -> None:
    """With all that they say of themselves."""
    kept = Kept(file)
    kept.days(8, 400)
    kept.stop()
    again = Kept(file, at=kept.at)
    for name, sized in kept.history.sized.items():
        found = again.opened[name]
        assert (found.quota, found.mode, found.provenance, found.terms) == (
            sized.quota, sized.mode, sized.provenance, sized.terms,
        )  # fmt: skip
    again.stop()


def test_an_hour_survives_a_crash(file: Path) -> None:
    """What was not sealed is read back, slot by slot, and seals as if nothing had been; what was lost is said."""
    plain, crashed = Kept(file.with_name("plain")), Kept(file)
    for kept in (plain, crashed):
        kept.to(BEGIN + 3600)
        for units in (100, 200, 300, 400):
            kept.use(units)
    lock = crashed.history._lock
    assert lock is not None
    lock.release()  # as the end of a process does
    after = Kept(file, at=crashed.at)
    assert after.history.lost == (crashed.at, crashed.at)
    for kept in (plain, after):
        for units in (500, 600, 700):
            kept.use(units)
        kept.to(BEGIN + 3 * 3600)
        kept.to(BEGIN + DAY + 1820)
        assert kept.history.sized[KEY].peak == 20.0  # the sixth of seven
        kept.stop()


def test_refused_hours_teach_nothing(file: Path) -> None:
    """However much was used beside the refusal, and a tenant is not held back by one key's own limit."""
    kept = Kept(file)
    kept.days(9, 400, refused="key")
    assert kept.history.sized[KEY].peak == 0.0
    assert kept.history.sized[TENANT].peak == 40.0
    assert kept.history.sized[KEY].starved
    assert kept.history.starved() == 1
    kept.stop()


def test_usage_near_an_enforced_quota_teaches_nothing(file: Path) -> None:
    """Above 90 % of it the key may want more, though nothing was refused; in shadow there is nothing to be near to."""
    fixed = replace(POLICIES, tenants=tenants(acme(credential("ci", quota(41)))))
    for policies, learnt in ((fixed, 0.0), (replace(fixed, mode=Mode.SHADOW), 40.0), (POLICIES, 40.0)):
        kept = Kept(None, policies)
        kept.days(1, 400)
        assert kept.history.sized[KEY].peak == learnt
        kept.stop()


def test_addresses_are_never_stored(file: Path) -> None:
    """Nor anybody else who proved nothing; projects are keys like any other."""
    kept = Kept(file)
    for kind in (Kind.ANONYMOUS, Kind.REJECTED, Kind.PREFLIGHT):
        kept.use(5, who=Principal(kind, "anonymous", "192.0.2.1"))
    kept.use(5, who=Principal(Kind.JOB, "acme", "site"))
    kept.stop()
    with sqlite3.connect(file) as connection:
        assert {name for (name,) in connection.execute("SELECT name FROM key")} == {TENANT, "tenant=acme,project=site"}


def test_keys_are_bounded(file: Path) -> None:
    """What has no room is not kept and is told; a listed key always has."""
    kept = Kept(file, max_keys=4)
    for number in range(10):
        kept.history.meter.note(Principal(Kind.USER, f"t{number}", "x", listed=False), 1, "", kept.at * SECOND)
    kept.use(5)
    kept.to(kept.at + 60)
    with sqlite3.connect(file) as connection:
        (count,) = connection.execute("SELECT count(*) FROM key").fetchone()
    assert count <= 4 + 2
    assert "were not counted" in kept.history.warnings()[0]
    kept.stop()


def test_what_was_given_back_is_no_usage(file: Path) -> None:
    """A request that never reached the upstream taught nothing, however often it was tried."""
    kept = Kept(file)
    who = Principal(Kind.USER, "acme", "ci")
    for _ in range(50):
        kept.history.meter.note(who, 1, "", kept.at * SECOND)
        kept.history.meter.take_back(who, 1, kept.at * SECOND)
    kept.history.meter.take_back(who, 1, (kept.at - 100) * SECOND)
    kept.to(kept.at + 10)
    _, found = FileArchive(file).series.tenants(BEGIN, kept.at, kept.at)
    assert found == {}
    kept.stop()


def test_a_new_key_inherits(file: Path) -> None:
    """Of a tenant that is learnt: its number, enforced, from the first day."""
    kept = Kept(file)
    kept.days(9, 400)
    new = Principal(Kind.USER, "acme", "new")
    kept.days(2, 50, who=new)
    sized = kept.history.sized[new.name]
    assert (sized.provenance, sized.mode) == ("inherited", Mode.ENFORCE)
    assert float(sized.quota.rate.per_second) == 60.0
    kept.stop()


def test_what_is_old_goes(file: Path) -> None:
    """Slots after a day, hours after 30 days, sums after 90, keys and numbers when nothing refers to them."""
    kept = Kept(file)
    kept.days(2, 400)
    minted = Principal(Kind.USER, "minted", "x", listed=False)
    kept.use(10, who=minted)
    kept.to(kept.at + 600)
    counts = []
    for days in (0, 2, 40, 70, 100, 450):
        kept.to(BEGIN + (3 + days) * DAY + 1820)
        kept.to(BEGIN + (3 + days) * DAY + 1840)
        with sqlite3.connect(file) as connection:
            tables = ("slot", "five", "total", "hours", "day", "key")
            counts.append([connection.execute(f"SELECT count(*) FROM {table}").fetchone()[0] for table in tables])
    assert [min(row[0], 1) for row in counts] == [1, 0, 0, 0, 0, 0]
    assert [min(row[1], 1) for row in counts] == [1, 1, 1, 1, 0, 0]
    assert [min(row[2], 1) for row in counts] == [1, 1, 1, 1, 0, 0]
    assert [min(row[3], 1) for row in counts] == [1, 1, 0, 0, 0, 0]
    assert [min(row[4], 1) for row in counts] == [1, 1, 1, 0, 0, 0]
    assert [row[5] for row in counts] == [4, 4, 4, 4, 2, 0]
    kept.stop()


def test_a_file_of_an_older_version_is_migrated(file: Path) -> None:
    """Its rows stay."""
    connection = sqlite3.connect(file, isolation_level=None)
    from gateway.history import schema

    connection.executescript(f"{schema._MIGRATIONS[0]} PRAGMA user_version = 1;")
    connection.execute("INSERT INTO key VALUES (1, 'tenant=a', 'tenant', 'a', '', 1, 2)")
    connection.close()
    opened = connect(file)
    migrate(opened)
    assert opened.execute("PRAGMA user_version").fetchone() == (VERSION,)
    assert opened.execute("SELECT name FROM key").fetchall() == [("tenant=a",)]
    opened.close()


def test_a_disk_that_is_full_is_told_and_survived(file: Path) -> None:
    """What is counted meanwhile is lost, and the sentence goes when it can be written again."""
    kept = Kept(file)
    kept.history._books.connection.execute("PRAGMA query_only = ON")
    kept.use(5)
    assert "cannot write" in kept.history.warnings()[0]
    kept.history._books.connection.execute("PRAGMA query_only = OFF")
    kept.use(5)
    assert kept.history.warnings() == []
    kept.stop()


def test_damage_that_shows_late_is_set_aside_too(file: Path) -> None:
    """A new file is begun under way, with the numbers in force kept."""
    kept = Kept(file)
    kept.days(1, 400)
    had = dict(kept.history.sized)
    kept.history._guarded(lambda: (_ for _ in ()).throw(sqlite3.DatabaseError("database disk image is malformed")))
    assert "set aside" in kept.history.warnings()[0]
    assert kept.history.sized == had
    kept.use(5)
    assert len(list(file.parent.glob("history.sqlite3.damaged-*"))) >= 1
    kept.stop()


def test_where_no_file_can_be_kept_it_is_in_memory(tmp_path: Path) -> None:
    """And sized all the same."""
    kept = Kept(tmp_path / "nowhere" / "file")
    assert "memory only" in kept.history.warnings()[0]
    kept.days(2, 400)
    assert rate(kept) == 31.25
    kept.stop()


def test_it_writes_by_itself(file: Path) -> None:
    """The thread takes its turns, and ends when told."""
    kept = Kept(file)
    history = kept.history
    kept.history.meter.note(Principal(Kind.USER, "acme", "ci"), 1, "", kept.at * SECOND)
    history.start()
    history.recompute()
    history.offer((kept.at // 10, [("acme", {(0, ""): 3})]))
    history.stop()
    _, found = FileArchive(file).series.tenants(BEGIN - 60, kept.at + 60, kept.at + 60)
    assert found == {"acme": {(0, ""): 3}}
    assert isinstance(history, History)


def test_a_round_that_fails_is_not_the_last(
    file: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever goes wrong is logged and told, and the thread goes on."""
    kept = Kept(file)
    rounds: list[int] = []

    def turn(now: int) -> None:
        rounds.append(now)
        if len(rounds) == 1:
            raise RuntimeError("a bug")

    monkeypatch.setattr(kept.history, "turn", turn)
    kept.history.start()
    deadline = time.monotonic() + 60
    while len(rounds) < 2 and time.monotonic() < deadline:
        time.sleep(0.01)
    assert len(rounds) > 1
    assert "a round failed" in caplog.text
    assert any("a round of the writer failed" in warning for warning in kept.history.warnings())
    kept.stop()
