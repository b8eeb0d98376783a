"""No test of the proxy runs through one shell only because nobody thought of the others."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

from gateway.proxy.guard import Guard
from gateway.proxy.lane import Lane
from tests.gateway.proxy.shells import ALL, BELOW, ROWS

__all__: list[str] = []

HERE = Path(__file__).parent
#: What opens a gateway, and through which shells: those of the row, or these.
OPENS = {"behind": None, "both": None, "wired": ("lane",), "served": ("httptools", "h11")}


def asked(tree: ast.Module) -> Iterator[tuple[ast.AsyncFunctionDef | ast.FunctionDef, set[str], set[str]]]:
    """Yield each test with the names it is decorated with and those it uses."""
    for node in tree.body:
        if isinstance(node, (ast.AsyncFunctionDef, ast.FunctionDef)) and node.name.startswith("test_"):
            decorators = {one.id for one in node.decorator_list if isinstance(one, ast.Name)}
            yield node, decorators, {one.id for one in ast.walk(node) if isinstance(one, ast.Name)}


def imported(tree: ast.Module) -> set[str]:
    """Return the names that a module imports from this folder."""
    return {
        alias.name
        for node in tree.body
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("tests.gateway.proxy")
        for alias in node.names
    }


def test_every_module_has_a_row() -> None:
    """And every row a module; whoever leaves a shell out says why, and nobody says why it leaves none out."""
    assert set(ROWS) == {path.stem for path in HERE.glob("test_*.py")}
    assert [name for name, row in ROWS.items() if (row.shells == ALL) is bool(row.why)] == []


def test_guard_is_the_lanes() -> None:
    """A second shell over the guard would need its own row of shells."""
    assert Guard.__subclasses__() == [Lane]


@pytest.mark.parametrize("name", ROWS)
def test_module_runs_through_its_shells(name: str) -> None:
    """Who is seen by several asks for each, test by test; who is seen by one opens no other; the rest open none."""
    tree = ast.parse((HERE / f"{name}.py").read_text(encoding="utf-8"))
    shells, opens = ROWS[name].shells, imported(tree) & set(OPENS)
    if shells == BELOW:
        assert opens == set()
    elif "ROWS" in imported(tree):
        # It goes through them side by side.
        assert opens == {"behind"}
    elif "every_shell" in imported(tree):
        assert all(OPENS[one] is None for one in opens)
        assert [test.name for test, decorators, _ in asked(tree) if "every_shell" not in decorators] == []
    else:
        assert shells == ("lane",) or {OPENS[one] for one in opens} == {shells}
        assert all(OPENS[one] in {None, shells} for one in opens)
