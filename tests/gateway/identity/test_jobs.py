"""Opaque job tokens: good while the job lives, in every process that shares the file, and after a restart."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from gateway.identity import jobs as registry_module
from gateway.identity.answer import Answer
from gateway.identity.job import OpaqueJobs
from gateway.identity.jobs import MAX_TTL, JobRegistry, RegistryError
from gateway.identity.pat import mint
from gateway.identity.roster import Roster
from gateway.ports import Resolution
from policies.request import Class, Kind
from policies.units import SECOND
from tests.gateway.identity.tokens import NOW, ManualClock

__all__: list[str] = []

WALL = NOW * SECOND


def opened(folder: Path, clock: ManualClock | None = None) -> tuple[JobRegistry, OpaqueJobs]:
    """Return the registry of a file as a process that starts now sees it, and its checker."""
    clock = clock or ManualClock()
    registry = JobRegistry(folder / "evenhand.sqlite3", clock)
    registry.poll()
    return registry, OpaqueJobs(registry, Roster({"acme": {}}, 10, clock))


def proves(jobs: OpaqueJobs, token: str, wall: int = WALL) -> Resolution | Answer:
    """Return what a token proves."""
    return jobs.check(token.encode(), wall)


def test_a_token_proves_its_job(tmp_path: Path) -> None:
    """Bucket of the project, parent tenant, class batch; the same resolution each time."""
    registry, jobs = opened(tmp_path)
    job, token = registry.register("acme", "acme/web", "7", 60 * SECOND)
    found = proves(jobs, token)
    assert isinstance(found, Resolution)
    one = found.principal
    assert (one.kind, one.tenant, one.credential, one.job, one.highest) == (
        Kind.JOB,
        "acme",
        "acme/web",
        "7",
        Class.BATCH,
    )
    assert one.name == "tenant=acme,project=acme%2Fweb"
    assert (one.expires_us, job.expires_us) == (WALL + 60 * SECOND,) * 2
    assert found.consumed
    assert one.listed
    assert proves(jobs, token) is found
    assert token.startswith("evh_job_")
    assert len(token) == 44


def test_a_token_lives_as_long_as_its_job(tmp_path: Path) -> None:
    """To its end by the clock or by DELETE, at once; others stay."""
    registry, jobs = opened(tmp_path)
    job, token = registry.register("acme", "p", "1", 60 * SECOND)
    _, other = registry.register("acme", "p", "2", 60 * SECOND)
    assert proves(jobs, token, WALL + 60 * SECOND - 1) is not Answer.INVALID
    assert proves(jobs, token, WALL + 60 * SECOND) is Answer.INVALID
    assert registry.end(job.id)
    assert proves(jobs, token) is Answer.INVALID
    assert proves(jobs, other) is not Answer.INVALID
    assert not registry.end(job.id)
    assert not registry.end("job-never")


def test_what_was_never_registered_proves_nothing(tmp_path: Path) -> None:
    """Well formed or not, with a registry or without."""
    _, jobs = opened(tmp_path)
    for token in (mint(prefix="evh_job_"), "evh_job_", "evh_job_x", mint(prefix="evh_job_")[:-1] + "!"):
        assert proves(jobs, token) is Answer.INVALID
        assert proves(OpaqueJobs(), token) is Answer.INVALID


def test_an_unlisted_tenant_can_have_jobs_and_a_reserved_one_cannot(tmp_path: Path) -> None:
    """The roster says who may be spoken for, as for every other kind."""
    registry, jobs = opened(tmp_path)
    found = proves(jobs, registry.register("minted", "p", "1", SECOND)[1])
    assert isinstance(found, Resolution)
    assert not found.principal.listed
    assert proves(jobs, registry.register("other", "p", "1", SECOND)[1]) is Answer.INVALID


def test_jobs_survive_a_restart_and_the_ended_do_not(tmp_path: Path) -> None:
    """Nothing is forgotten and nothing revived."""
    registry, _ = opened(tmp_path)
    kept, ended, brief = (registry.register("acme", "p", str(n), (60 if n < 2 else 1) * SECOND) for n in range(3))
    registry.end(ended[0].id)
    clock = ManualClock(WALL + 2 * SECOND)
    again, jobs = opened(tmp_path, clock)
    assert [job.id for job in again.live.values()] == [kept[0].id]
    assert proves(jobs, kept[1], clock.us) is not Answer.INVALID
    assert proves(jobs, ended[1], clock.us) is Answer.INVALID
    assert proves(jobs, brief[1], clock.us) is Answer.INVALID
    assert again.end(kept[0].id), "a job of before the restart can be ended"


def test_no_token_is_on_disk(tmp_path: Path) -> None:
    """Only its digest."""
    registry, _ = opened(tmp_path)
    _, token = registry.register("acme", "p", "1", SECOND)
    for file in tmp_path.iterdir():
        assert token.encode() not in file.read_bytes()
        assert token[8:].encode() not in file.read_bytes()


def test_another_process_sees_a_change(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A job registered or ended by one is so for the other after a poll."""
    monkeypatch.setattr("gateway.stores.registry.POLL_SECONDS", 0.02)
    (mine, _), (theirs, jobs) = opened(tmp_path), opened(tmp_path)
    theirs.start()
    job, token = mine.register("acme", "p", "1", 60 * SECOND)
    patiently(lambda: proves(jobs, token) is not Answer.INVALID)
    mine.end(job.id)
    patiently(lambda: proves(jobs, token) is Answer.INVALID)
    theirs.stop()


def patiently(holds: Callable[[], bool]) -> None:
    """Wait until something holds."""
    until = time.monotonic() + 30
    while not holds():
        assert time.monotonic() < until
        time.sleep(0.01)


def test_the_registry_is_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In number, those that have ended left out, and each in time."""
    monkeypatch.setattr(registry_module, "MAX_JOBS", 2)
    clock = ManualClock()
    registry, _ = opened(tmp_path, clock)
    job, _ = registry.register("acme", "p", "1", 10 * MAX_TTL)
    assert job.expires_us == WALL + MAX_TTL
    registry.register("acme", "p", "2", SECOND)
    with pytest.raises(RegistryError, match="2 jobs already"):
        registry.register("acme", "p", "3", SECOND)
    clock.us += SECOND
    registry.register("acme", "p", "3", SECOND)
    rows = sqlite3.connect(tmp_path / "evenhand.sqlite3").execute("SELECT count(*) FROM registry").fetchone()
    assert rows == (2,)


def test_a_file_that_cannot_be_used_changes_nothing(tmp_path: Path) -> None:
    """A job that would not survive a restart is not registered; a file that is no database is told."""
    (tmp_path / "evenhand.sqlite3").write_text("this is no database, and nobody overwrites it" * 100)
    registry, _ = opened(tmp_path)
    assert "cannot be read" in (registry.warning() or "")
    with pytest.raises(RegistryError):
        registry.register("acme", "p", "1", SECOND)
    assert registry.live == {}
    with pytest.raises(RegistryError):
        registry.end("job-x")
    nowhere = JobRegistry(tmp_path / "missing" / "x.sqlite3", ManualClock())
    with pytest.raises(RegistryError):
        nowhere.register("acme", "p", "1", SECOND)
    assert nowhere.warning() is None
