"""What must not multiply with the number of workers."""

from __future__ import annotations

from pathlib import Path

import pytest

from gateway.workers.parts import part_of, parted
from tests.gateway.telemetry.made import configured

__all__: list[str] = []

MORE = """
[upstreams.reports]
url = "http://127.0.0.1:9"
max_connections = 7
concurrency = 5
[server]
max_connections_per_address = 10
"""


@pytest.mark.parametrize(("total", "count"), [(512, 4), (7, 3), (1, 1), (64, 64)])
def test_parts_are_the_whole(total: int, count: int) -> None:
    """As even as it goes."""
    parts = [part_of(total, number, count) for number in range(count)]
    assert sum(parts) == total
    assert max(parts) - min(parts) <= 1


def test_nobody_has_nothing() -> None:
    """A worker that may not connect could serve nobody."""
    assert [part_of(2, number, 4) for number in range(4)] == [1, 1, 1, 1]


def test_what_protects_an_upstream_is_divided(tmp_path: Path) -> None:
    """Connections and requests in flight there; what guards a process is each worker's own."""
    loaded = configured(tmp_path, MORE)
    parts = [parted(loaded, number, 3).settings for number in range(3)]
    assert [one.upstream.max_connections for one in parts] == [171, 171, 170]
    assert [one.upstream.concurrency for one in parts] == [0, 0, 0]
    assert [one.upstreams["reports"].max_connections for one in parts] == [3, 2, 2]
    assert [one.upstreams["reports"].concurrency for one in parts] == [2, 2, 1]
    assert {one.server.max_connections_per_address for one in parts} == {10}
