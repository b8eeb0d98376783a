"""What holds for the whole tree, whoever writes the next file.

The checkers (`make check`) hold format, lint, types and layers. Here stands what they cannot express: what the core may
import, that modules open with their rules, how long things get, and what is shipped.
"""

from __future__ import annotations

import ast
import re
import subprocess
import sys
import tomllib
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest

__all__: list[str] = []

ROOT = Path(__file__).resolve().parent.parent
CODE = ("policies", "gateway", "loadtest", "tests")

#: All that the core may import besides itself: values, types and arithmetic.
CORE_IMPORTS = {
    "__future__", "array", "bisect", "collections", "dataclasses", "decimal", "enum", "fractions", "functools",
    "hashlib", "heapq", "itertools", "json", "math", "mypy_extensions", "operator", "re", "string", "types", "typing",
}  # fmt: skip
#: Of packages that also touch the world, the modules that do not.
CORE_SUBMODULES = {"collections.abc", "urllib.parse"}

MAKE_TARGETS = ("demo", "test", "test-compiled", "check", "bench", "bench-check", "soak", "fuzz")


def modules(*packages: str) -> list[Path]:
    """Return every Python file of `packages`, as paths from the root of the tree."""
    return sorted(path.relative_to(ROOT) for package in packages for path in (ROOT / package).rglob("*.py"))


def source(path: Path) -> str:
    """Return the text of a file of the tree."""
    return (ROOT / path).read_text(encoding="utf-8")


def imports(tree: ast.Module) -> Iterator[str]:
    """Yield the full name of every module that `tree` imports, wherever it does."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "imports are absolute"
            yield node.module or ""


def assigns_all(tree: ast.Module) -> bool:
    """Return whether `__all__` is bound at the top of the module."""
    targets = [
        target
        for node in tree.body
        if isinstance(node, (ast.Assign, ast.AnnAssign))
        for target in (node.targets if isinstance(node, ast.Assign) else [node.target])
    ]
    return any(isinstance(target, ast.Name) and target.id == "__all__" for target in targets)


@pytest.mark.parametrize("path", modules("policies"), ids=str)
def test_core_imports_values_types_and_arithmetic_only(path: Path) -> None:
    """The core touches nothing: what is not on the short list is not imported."""
    for name in imports(ast.parse(source(path))):
        top = name.split(".")[0]
        assert top == "policies" or name in CORE_IMPORTS | CORE_SUBMODULES, f"{path} imports {name}"


@pytest.mark.parametrize("path", modules("policies", "gateway"), ids=str)
def test_module_opens_with_its_rules(path: Path) -> None:
    """A module has a docstring, postponed annotations and `__all__`; one without code needs none of it."""
    tree = ast.parse(source(path))
    if not tree.body:
        assert path.name == "__init__.py"
        return
    assert ast.get_docstring(tree), f"{path} has no docstring"
    if len(tree.body) == 1:
        return
    assert isinstance(tree.body[1], ast.ImportFrom), path
    assert tree.body[1].module == "__future__", path
    assert assigns_all(tree), f"{path} has no __all__"


@pytest.mark.parametrize("path", modules(*CODE), ids=str)
def test_size_is_bounded(path: Path) -> None:
    """A file has at most 400 lines, a function at most 60."""
    text = source(path)
    assert text.count("\n") <= 400, path
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)) and path.parts[0] != "tests":
            lines = (node.end_lineno or 0) - node.lineno + 1
            assert lines <= 60, f"{path}: {node.name} has {lines} lines"


@pytest.mark.parametrize("path", modules(*CODE), ids=str)
def test_no_name_says_nothing(path: Path) -> None:
    """No module is called after a drawer."""
    assert path.stem not in {"utils", "util", "helpers", "helper", "manager", "handler", "common", "misc"}


@pytest.mark.parametrize("path", modules(*CODE), ids=str)
def test_silenced_checks_say_why(path: Path) -> None:
    """A silenced rule, type error or uncovered line gives its reason beside it."""
    silenced = r"# noqa(?:: [A-Z0-9, ]+)?|# type: ignore(?:\[[\w, -]+\])?|# pragma: no (?:cover|branch)"
    for number, line in enumerate(source(path).splitlines(), 1):
        for match in re.finditer(silenced, line):
            if path == Path("tests/test_house.py"):
                continue
            rest = re.sub(silenced, "", line[match.end() :])
            assert re.search(r"\w{2,}", rest), f"{path}:{number} silences a check without a reason"


def test_ignored_lint_rules_say_why() -> None:
    """Every exclusion of the linter is justified on its line."""
    text = source(Path("pyproject.toml"))
    lint = text[text.index("[tool.ruff.lint]") : text.index("[tool.ruff.lint.flake8-builtins]")]
    for line in lint.splitlines():
        if re.match(r'\s+"[A-Z]+\d*",', line):
            assert re.search(r",\s*# \S", line), line


@pytest.mark.parametrize("target", MAKE_TARGETS)
def test_make_target_exists(target: str) -> None:
    """The commands that the documents name can be made, and `make` lists them."""
    assert re.search(rf"^{target}: .*  ## \w", source(Path("Makefile")), re.MULTILINE)


def test_dependency_groups_are_installed_by_make() -> None:
    """`make` installs every dependency group, or a test would miss something on a fresh machine only."""
    groups = tomllib.loads(source(Path("pyproject.toml")))["dependency-groups"]
    line = re.search(r"^GROUPS := (.*)$", source(Path("Makefile")), re.MULTILINE)
    assert line is not None
    assert set(line[1].split()) == set(groups)


def test_image_runs_as_nobody_special() -> None:
    """The image is not root, listens on all addresses, asks its own health, and is built of what reaches it."""
    text = source(Path("Dockerfile"))
    final = text[text.rindex("FROM ") :]
    assert re.search(r"^USER (?!root|0)\w+", final, re.MULTILINE)
    assert "EVENHAND_LISTEN=0.0.0.0:8080" in final
    assert "ENABLE_CUSTOM=1" in text
    kept = {line[1:] for line in source(Path(".dockerignore")).splitlines() if line.startswith("!")}
    copied = re.findall(r"^COPY (?!--)(.*) \S+$", text, re.MULTILINE)
    assert {name for names in copied for name in names.split()} <= kept
    assert re.search(r"^HEALTHCHECK .*\n.*/livez", final, re.MULTILINE)


def test_license_is_the_whole_text() -> None:
    """The licence is the full Apache-2.0, not a mention of it."""
    text = source(Path("LICENSE"))
    assert "Version 2.0, January 2004" in text
    assert "9. Accepting Warranty or Additional Liability." in text
    assert "END OF TERMS AND CONDITIONS" in text


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> zipfile.ZipFile:
    """Build the wheel with the backend itself: no network, no isolation."""
    out = tmp_path_factory.mktemp("wheel")
    command = [sys.executable, "-m", "hatchling", "build", "--target", "wheel", "--directory", str(out)]
    built = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert built.returncode == 0, built.stderr
    (path,) = out.glob("evenhand-*.whl")
    return zipfile.ZipFile(path)


def test_wheel_holds_both_packages_and_nothing_else(wheel: zipfile.ZipFile) -> None:
    """The wheel ships `gateway` and `policies` with all their files, typed; the load tests stay in the checkout."""
    names = set(wheel.namelist())
    tops = {name.split("/")[0] for name in names if ".dist-info" not in name}
    assert tops == {"gateway", "policies"}
    assert {"gateway/py.typed", "policies/py.typed"} <= names
    tracked = subprocess.run(
        ["git", "ls-files", "gateway", "policies"], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout.split()
    assert {name for name in tracked if (ROOT / name).is_file()} <= names


def test_wheel_says_what_it_is(wheel: zipfile.ZipFile) -> None:
    """The wheel carries its command, its licence and the Python it needs."""
    info = {name.split("/", 1)[1]: name for name in wheel.namelist() if ".dist-info/" in name}
    assert "evenhand = gateway.__main__:main" in wheel.read(info["entry_points.txt"]).decode()
    assert "licenses/LICENSE" in info
    metadata = wheel.read(info["METADATA"]).decode()
    assert "Requires-Python: >=3.11" in metadata
    assert "License-Expression: Apache-2.0" in metadata
