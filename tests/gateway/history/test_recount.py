"""Sizing in a process beside: the same numbers, and what becomes of them when it is killed."""

from __future__ import annotations

import io
import os
import pickle
import struct
import time
from functools import partial
from pathlib import Path

import pytest

from gateway.history import numbers, recount
from gateway.history.books import Books
from gateway.history.numbers import Numbers
from gateway.history.pasts import opened
from gateway.history.recount import Recount, RecountError
from gateway.history.schema import connect
from gateway.history.sizer import Basis, Row, resize
from loadtest.bench.history import fill_days
from tests.gateway.history.kept import Kept
from tests.policies.documents import policy_set

__all__: list[str] = []

TODAY = 20_000
POLICIES = policy_set()


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """Return a history of 30 days of 60 keys and their tenants."""
    fill_days(tmp_path / "h", 60, TODAY)
    return tmp_path / "h"


def drained(job: Recount) -> list[Row]:
    """Return all that another process says."""
    found: list[Row] = []
    until = time.monotonic() + 120
    while (rows := job.rows(1.0)) is not None and time.monotonic() < until:
        found += rows
    job.close()
    return found


def test_another_process_says_the_same(file: Path) -> None:
    """Row for row what this one would, whichever way it is run."""
    with opened(file) as pasts:
        here = list(resize(pasts, Basis.of(POLICIES), TODAY))
    assert drained(Recount(partial(opened, file), Basis.of(POLICIES), TODAY)) == here
    sink = io.BytesIO()
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(recount, "_yield_to_others", lambda: None)
        request = io.BytesIO(pickle.dumps((partial(opened, file), Basis.of(POLICIES), TODAY)))
        recount.main(request, sink)
    octets, found = sink.getvalue(), []
    while octets:
        (length,) = struct.unpack_from("<I", octets)
        found += pickle.loads(octets[4 : 4 + length])
        octets = octets[4 + length :]
    assert found == here


def test_many_keys_are_sized_elsewhere(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever holds more than a few leaves the work to a process of its own, and the numbers arrive all the same."""
    monkeypatch.setattr(numbers, "_FEW", 10)
    monkeypatch.setattr(numbers, "resize", None)  # which sizes here
    kept = Kept(file, POLICIES, at=TODAY * 86_400 + 3600)
    until = time.monotonic() + 120
    while not kept.applied and time.monotonic() < until:
        kept.to(kept.at + 1)
    assert len(kept.applied[-1]) == 120
    assert {one.peak for one in kept.applied[-1].values()} == {10.0 + number for number in range(60)}
    kept.stop()
    again = Kept(file, POLICIES, at=kept.at)
    assert again.opened.keys() == kept.applied[-1].keys()
    again.stop()


def test_a_killed_one_changes_nothing_and_is_replaced(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The numbers of before hold, a warning says so, it is tried again, and the second time in this process."""
    monkeypatch.setattr(numbers, "_FEW", 10)
    monkeypatch.setattr(numbers, "_RETRY_SECONDS", 0.0)
    for name in ("COVERAGE_PROCESS_CONFIG", "COVERAGE_PROCESS_START"):
        monkeypatch.delenv(name, raising=False)  # killed, it would leave half a file
    books = Books(connect(file), 1000)
    applied: list[object] = []
    ones = Numbers(lambda: POLICIES, applied.append)
    for _ in range(2):
        ones.begin(books, books.held, partial(opened, file), TODAY)
        assert isinstance(ones._job, Recount)
        ones._job._process.kill()
        ones._job._process.wait()
        while ones.running:
            assert not ones.step(lambda _: None)
        assert "ended before its work did" in ones.fault
        assert not applied
    ones.begin(books, books.held, partial(opened, file), TODAY)
    assert not isinstance(ones._job, Recount)
    while not ones.step(lambda _: None):
        pass
    assert ones.fault == ""
    assert len(ones.sized) == 120
    books.connection.close()


def test_one_that_cannot_start_is_told(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An interpreter that is not there is an error of sizing, of nothing else; it is put off for a while."""
    monkeypatch.setattr("sys.executable", os.fspath(file.parent / "nowhere"))
    with pytest.raises(RecountError, match="cannot be started"):
        Recount(partial(opened, file), Basis.of(POLICIES), TODAY)
    monkeypatch.setattr(numbers, "_FEW", 10)
    kept = Kept(file, POLICIES, at=TODAY * 86_400 + 3600)
    kept.to(kept.at + 1)
    assert "cannot be started" in kept.history.warnings()[0]
    assert not kept.applied
    assert not kept.history._numbers.ready
    kept.stop()


def test_numbers_are_let_go_of_slowly(file: Path) -> None:
    """However many there are, in the end none is held."""
    with opened(file) as pasts:
        gone = list(pasts.numbers().values())
    assert len(gone) == 120
    numbers.release(gone)
    assert gone == []
