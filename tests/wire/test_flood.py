"""One tenant floods at ten times the backstop: everybody else is served as before, through a real gateway."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from loadtest.flood.__main__ import HEAD, MOST, table
from loadtest.flood.rounds import COMPILED, FAST, FULL, PURE, SLOW, Size, measure

__all__: list[str] = []

#: So far below their shares that a machine that stops for seconds makes nobody exceed one.
SMALL = Size(backstop=100, light=8, rate=1.0, lines=32, seconds=3.0, rounds=1)


@pytest.mark.soak
def test_a_flood_is_its_own_problem(tmp_path: Path, soak: bool, capsys: pytest.CaptureFixture[str]) -> None:
    """The others' success is 100 %; at full size their p99 rises by at most 30 %, in the median of five rounds."""
    tree = COMPILED if soak and COMPILED.exists() else PURE
    found = measure(tmp_path, FULL if soak else SMALL, tree, [FAST, SLOW] if soak else [FAST])
    if soak:
        with capsys.disabled():
            sys.stdout.write(f"\n{HEAD}\n{table('compiled' if tree is COMPILED else 'pure Python', found)}\n")
    for one in found.values():
        assert one.failed == 0
        assert one.sent
        for flooded in one.flooded:
            assert flooded.flood is not None
            statuses = flooded.flood.statuses
            assert sum(statuses.values()) - statuses.get("200", 0) > statuses.get("200", 0)
        if soak:
            assert one.rise <= MOST
