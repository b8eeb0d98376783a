"""What the compiled form asks of the sources: seen without a compiler, so that it does not break unseen."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import hatch_build

__all__: list[str] = []

ROOT = Path(__file__).resolve().parent.parent


def trees(compiled: bool) -> Iterator[tuple[str, ast.Module]]:
    """Yield all compiled modules, or all others, with their names."""
    for path in sorted((*ROOT.glob("gateway/**/*.py"), *ROOT.glob("policies/**/*.py"))):
        name = str(path.relative_to(ROOT))
        if (name in hatch_build.MODULES) is compiled:
            yield name, ast.parse(path.read_text(encoding="utf-8"))


def classes(tree: ast.Module) -> Iterator[ast.ClassDef]:
    """Yield the classes of a module."""
    return (node for node in ast.walk(tree) if isinstance(node, ast.ClassDef))


def imported(tree: ast.Module) -> dict[str, str]:
    """Return where the names of a module come from."""
    return {
        alias.asname or alias.name: f"{node.module}.{alias.name}"
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }


def test_every_compiled_module_is_there() -> None:
    """Each once, and in a tree that has it."""
    assert len(set(hatch_build.MODULES)) == len(hatch_build.MODULES)
    assert [name for name in hatch_build.MODULES if not (ROOT / name).is_file()] == []


def test_no_interpreted_class_derives_from_a_compiled_one() -> None:
    """The compiled form could not make one: whoever derives is compiled too, or the base says that it may be."""
    bases = {
        f"{name.removesuffix('.py').replace('/', '.')}.{node.name}"
        for name, tree in trees(compiled=True)
        for node in classes(tree)
        if not any("Protocol" in ast.unparse(base) for base in node.bases)
        and not any("allow_interpreted_subclasses=True" in ast.unparse(one) for one in node.decorator_list)
    }
    derived = [
        f"{name}: {node.name}({ast.unparse(base)})"
        for name, tree in trees(compiled=False)
        for node in classes(tree)
        for base in node.bases
        if imported(tree).get(ast.unparse(base)) in bases
    ]
    assert derived == []


#: What a compiled class does not have, or not as an interpreted one has it.
UNKNOWN = {"__slots__", "__dict__", "__weakref__", "__annotations__", "__mro__", "__bases__"}
UNKNOWN_CALLS = {"vars", "copy.copy", "copy.deepcopy", "inspect.signature", "pickle.dumps"}


def test_no_compiled_module_asks_what_a_class_consists_of() -> None:
    """A compiled one cannot say, and the tests of the interpreted form would not notice."""
    asked = [
        f"{name}:{node.lineno}: {ast.unparse(node)}"
        for name in hatch_build.MODULES
        for node in ast.walk(ast.parse((ROOT / name).read_text(encoding="utf-8")))
        if (isinstance(node, ast.Attribute) and node.attr in UNKNOWN)
        or (isinstance(node, ast.Call) and ast.unparse(node.func) in UNKNOWN_CALLS)
    ]
    assert asked == []
