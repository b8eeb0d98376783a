"""What README.md tells an operator to paste is obeyed, put together in the order in which it stands there."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Any

import pytest

from gateway.cli import run
from tests.wire.toml import merged, written

__all__: list[str] = []

README = Path(__file__).parents[3] / "README.md"
BLOCK = re.compile(r"^```toml\n(.*?)^```", re.MULTILINE | re.DOTALL)
BLOCKS = [tomllib.loads(block) for block in BLOCK.findall(README.read_text("utf-8"))]


def first(count: int) -> dict[str, Any]:
    """Return the first `count` blocks as one document: a section that stands again says more of the same one."""
    document: dict[str, Any] = {}
    for block in BLOCKS[:count]:
        document = merged(document, block)
    return document


@pytest.mark.parametrize("count", range(1, len(BLOCKS) + 1))
def test_all_that_was_pasted_so_far_is_right(count: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """`evenhand check` finds no fault in it, in a folder where nothing else is."""
    path = tmp_path / "gateway.toml"
    path.write_text(written(first(count)), encoding="utf-8")
    code = run(["check", "-c", str(path)])
    assert code == 0, capsys.readouterr().err


def test_nothing_that_is_shown_is_left_out() -> None:
    """Each block is in it, and none takes back a list that another began."""
    assert len(BLOCKS) >= 7
    whole = first(len(BLOCKS))
    lists = [(key, value) for block in BLOCKS for key, value in block.items() if isinstance(value, list)]
    assert all(whole[key] == value for key, value in lists)
    assert {route["name"] for route in whole["routes"]} >= {policy["match"]["route"] for policy in whole["policies"]}
