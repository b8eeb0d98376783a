"""Which policies nothing meets: known for 30 days, and applied to no request since."""

from __future__ import annotations

import sqlite3
from pathlib import Path

from gateway.config.sections import StoreSection
from gateway.stores.calls import Calls
from gateway.stores.usage import UNUSED_AFTER, PolicyUse
from policies.units import SECOND
from tests.wire.redis import RedisServer

__all__: list[str] = []

DAY = 86_400 * SECOND
NOW = 1_900_000_000 * SECOND


def test_a_policy_is_unused_after_thirty_days_without_a_request(tmp_path: Path) -> None:
    """From when it was first seen, or last met; a new one has its time, one taken out is forgotten by name."""
    use = PolicyUse(tmp_path / "e.sqlite3")
    use.note(["met", "dead"], ["met"], NOW)
    assert list(use.unused) == []
    use.note(["met", "dead", "new"], ["met"], NOW + 29 * DAY)
    assert list(use.unused) == []
    use.note(["met", "dead", "new"], [], NOW + UNUSED_AFTER)
    assert list(use.unused) == ["dead"]
    use.note(["met", "dead", "new"], [], NOW + 59 * DAY)
    assert list(use.unused) == ["met", "dead", "new"]
    use.note(["met", "dead", "new"], ["dead"], NOW + 59 * DAY + 1)
    assert list(use.unused) == ["met", "new"]
    assert use.read(["new"], NOW + 59 * DAY) == ("new",)


def test_processes_keep_it_together(redis_server: RedisServer) -> None:
    """In a shared store a use by any of them counts, and a store that is gone says nothing of anybody."""
    mine, theirs = (PolicyUse(Calls(StoreSection(url=redis_server.url))) for _ in range(2))
    mine.note(["a", "b", "c"], [], NOW)
    theirs.note(["a", "b"], ["b"], NOW + 20 * DAY)
    mine.note(["a", "b", "c"], [], NOW + 31 * DAY)
    assert mine.unused == ("a", "c")
    assert theirs.read(["b"], NOW + 60 * DAY) == ("b",)
    assert theirs.read([], NOW) == ()
    lost = PolicyUse(Calls(StoreSection(url="redis://127.0.0.1:1")))
    lost.note(["a"], [], NOW)
    assert "cannot be kept at the shared store" in lost.fault
    assert lost.read(["a"], NOW + 60 * DAY) == ()


def test_it_outlives_the_process(tmp_path: Path) -> None:
    """A restart neither starts the 30 days anew nor forgets a use; `evenhand inventory` reads the same."""
    PolicyUse(tmp_path / "e.sqlite3").note(["a", "b"], ["b"], NOW)
    PolicyUse(tmp_path / "e.sqlite3").note(["a", "b"], ["b"], NOW + 20 * DAY)
    assert PolicyUse(tmp_path / "e.sqlite3").read(["a", "b"], NOW + 31 * DAY) == ("a",)


def test_it_writes_once_a_day_unless_there_is_news(tmp_path: Path) -> None:
    """Nothing is written where nothing changed, and nothing at all where there is no policy."""
    use = PolicyUse(tmp_path / "e.sqlite3")
    use.note([], [], NOW)
    assert not (tmp_path / "e.sqlite3").exists()
    use.note(["a"], [], NOW)
    before = rows(tmp_path)
    use.note(["a"], [], NOW + 1)
    assert rows(tmp_path) == before
    use.note(["a"], ["a"], NOW + 2)
    assert rows(tmp_path) == [("a", NOW, NOW + 2)]


def rows(folder: Path) -> list[tuple[str, int, int]]:
    """Return what is on disk."""
    connection = sqlite3.connect(folder / "e.sqlite3")
    try:
        return connection.execute("SELECT * FROM policy_use").fetchall()
    finally:
        connection.close()


def test_a_file_that_cannot_be_used_stops_nothing(tmp_path: Path) -> None:
    """It is told; nothing is said to be unused."""
    (tmp_path / "e.sqlite3").write_text("no database" * 1000)
    use = PolicyUse(tmp_path / "e.sqlite3")
    use.note(["a"], [], NOW)
    assert use.read(["a"], NOW + 100 * DAY) == ()
    (warning,) = use.warnings()
    assert "cannot be kept" in warning
    assert PolicyUse(tmp_path / "nowhere").read(["a"], NOW) == ()
