"""The shipped gateway.toml is the first page an operator reads: complete, true, and quiet."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from gateway.config import Loaded, load
from gateway.config.kinds import Kind
from gateway.config.places import Place, dotted, walk
from gateway.config.settings import Settings
from gateway.config.table import Table, fields_of, is_array, table_in
from tests.gateway.config.documents import NOW

__all__: list[str] = []

SHIPPED = Path(__file__).parents[3] / "gateway.toml"
FIXTURES = Path(__file__).parents[2] / "fixtures" / "config"

#: Keys of sections that have no default to show.
EXAMPLES = {"auth.unlisted_weight", "upstream.url", "backstop.quota", "auth.unknown", "include"}


def switched_on() -> str:
    """Return the shipped file with every commented entry switched on: "#" directly before a key or a header."""
    return re.sub(r"^#(?=[^ #\n])", "", SHIPPED.read_text(encoding="utf-8"), flags=re.MULTILINE)


@pytest.fixture
def everything(tmp_path: Path) -> Loaded:
    """Load the file with everything switched on, beside the files that its entries name."""
    for source in (*FIXTURES.glob("*.json"), *FIXTURES.glob("tenants.d/*.toml")):
        target = tmp_path / source.relative_to(FIXTURES)
        target.parent.mkdir(exist_ok=True)
        target.write_bytes(source.read_bytes())
    path = tmp_path / "gateway.toml"
    path.write_text(switched_on(), encoding="utf-8")
    return load(path, {"JWT_SECRET": "s" * 32, "INTROSPECTION_SECRET": "s"}, NOW)


def test_it_loads_on_a_bare_machine_without_a_warning() -> None:
    """No file beside it, no variable set."""
    loaded = load(SHIPPED, {}, NOW)
    assert loaded.warnings == ()
    assert (loaded.settings.tenants, loaded.settings.routes, loaded.settings.policies) == ((), (), ())


def test_it_loads_with_everything_switched_on(everything: Loaded) -> None:
    """What is shown as an example works as it stands."""
    settings = everything.settings
    assert [tenant.id for tenant in settings.tenants] == ["acme", "from-a-file"]
    assert [route.name for route in settings.routes] == ["exports", "login"]
    assert [policy.name for policy in settings.policies] == ["login-per-address", "acme-batch"]
    assert [len(settings.auth.jwt), len(settings.auth.job), len(settings.exemptions)] == [3, 1, 2]
    assert settings.auth.introspection is not None
    assert settings.upstreams["reports"].urls[1].unix == "/run/app.sock"


def test_what_is_switched_on_and_not_there_yet_is_told(everything: Loaded) -> None:
    """And nothing else: a default that is spelt out is no warning."""
    assert all(warning.message == "is accepted, and has no effect yet" for warning in everything.warnings)


def keys(table: type[Table], at: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """Yield the place of every key of the models, `*` standing for entries."""
    for name, field in fields_of(table).items():
        inner = table_in(field.annotation)
        if inner is None:
            yield (*at, name)
        elif is_array(field.annotation) or name == "upstreams":
            yield from keys(inner, (*at, name, "*"))
        else:
            yield from keys(inner, (*at, name))


@pytest.mark.parametrize("pattern", sorted(keys(Settings)), ids=dotted)
def test_every_key_is_in_it(pattern: Place) -> None:
    """Somewhere, whatever its section."""
    pattern = ("upstream", *pattern[2:]) if pattern[0] == "upstreams" and pattern[-1] != "urls" else pattern
    pattern = ("upstreams", "*", "urls") if pattern == ("upstream", "urls") else pattern
    pattern = ("auth", "jwt", *pattern[2:]) if pattern[:2] == ("auth", "job") else pattern
    if pattern[:2] == ("auth", "jwt") and pattern[-1] in {"project_claim", "job_claim"}:
        pattern = ("auth", "job", *pattern[2:])
    tree = tomllib.loads(switched_on())
    found = list(walk(tree, pattern))
    if not found and pattern[0] == "exemptions":
        found = list(walk(tree, ("policies", *pattern[1:])))  # `match` is the same table in both
    assert found


def plain(tree: dict[str, Any], table: type[Table], at: tuple[str, ...] = ()) -> Iterator[tuple[str, Any, Any]]:
    """Yield (key, what the file shows, default) of every key of a section."""
    for name, value in tree.items():
        field = fields_of(table)[name]
        inner = table_in(field.annotation)
        if ".".join((*at, name)) in EXAMPLES:
            continue
        if inner is None:
            (kind,) = [mark for mark in field.metadata if isinstance(mark, Kind)] or [Kind(lambda held: held)]
            default = field.get_default()
            shown = tuple(value) if isinstance(value, list) else kind.parse(value)
            yield ".".join((*at, name)), shown, default if isinstance(value, list) else kind.parse(default)
        elif not is_array(field.annotation) and name not in {"upstreams", "introspection"}:
            yield from plain(value, inner, (*at, name))


def test_sections_show_the_defaults() -> None:
    """Removing a "#" there changes nothing, so what is shown is what is in force."""
    tree = tomllib.loads(switched_on())
    rows = list(plain(tree, Settings))
    assert len(rows) > 70
    assert {key: shown for key, shown, _ in rows} == {key: default for key, _, default in rows}


def test_every_line_is_prose_or_a_key() -> None:
    """`# prose` explains, `#key` switches: a line that is neither would be switched on by mistake."""
    for line in SHIPPED.read_text(encoding="utf-8").splitlines():
        assert re.fullmatch(r"|# .*|#|#?\[.*\]|#?[a-z_0-9]+ = .*", line), line
        assert len(line) <= 120
