"""What the compiled form asks of the sources: seen without a compiler, so that it does not break unseen."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import hatch_build

__all__: list[str] = []

ROOT = Path(__file__).resolve().parent.parent


def classes(compiled: bool) -> Iterator[tuple[str, ast.ClassDef]]:
    """Yield the classes of all compiled modules, or of all others, with where they stand."""
    for path in sorted((*ROOT.glob("gateway/**/*.py"), *ROOT.glob("policies/**/*.py"))):
        name = str(path.relative_to(ROOT))
        if (name in hatch_build.MODULES) is compiled:
            tree = ast.parse(path.read_text(encoding="utf-8"))
            yield from ((name, node) for node in ast.walk(tree) if isinstance(node, ast.ClassDef))


def test_every_compiled_module_is_there() -> None:
    """Each once, and in a tree that has it."""
    assert len(set(hatch_build.MODULES)) == len(hatch_build.MODULES)
    assert [name for name in hatch_build.MODULES if not (ROOT / name).is_file()] == []


def test_no_interpreted_class_derives_from_a_compiled_one() -> None:
    """The compiled form could not make one: whoever derives is compiled too, or the base says that it may be."""
    bases = {
        node.name
        for _, node in classes(compiled=True)
        if not any("Protocol" in ast.unparse(base) for base in node.bases)
        and not any("allow_interpreted_subclasses=True" in ast.unparse(one) for one in node.decorator_list)
    }
    derived = [
        f"{name}: {node.name}({ast.unparse(base)})"
        for name, node in classes(compiled=False)
        for base in node.bases
        if ast.unparse(base).rpartition(".")[2] in bases
    ]
    assert derived == []


#: What a compiled class does not have, or not as an interpreted one has it.
UNKNOWN = {"__slots__", "__dict__", "__weakref__", "__annotations__", "__mro__", "__bases__"}
UNKNOWN_CALLS = {"vars", "copy.copy", "copy.deepcopy", "inspect.signature", "pickle.dumps"}


def test_no_compiled_module_asks_what_a_class_consists_of() -> None:
    """A compiled one cannot say, and the tests of the interpreted form would not notice."""
    asked = []
    for name in hatch_build.MODULES:
        for node in ast.walk(ast.parse((ROOT / name).read_text(encoding="utf-8"))):
            reads = isinstance(node, ast.Attribute) and node.attr in UNKNOWN
            calls = isinstance(node, ast.Call) and ast.unparse(node.func) in UNKNOWN_CALLS
            if reads or calls:
                asked.append(f"{name}:{node.lineno}: {ast.unparse(node)}")
    assert asked == []
