"""Whatever a file holds, `load` returns or raises ConfigError with one sentence for each fault."""

from __future__ import annotations

import json
from datetime import date, datetime, time
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gateway.config import Loaded, load
from gateway.config.settings import Settings
from gateway.config.table import fields_of, table_in
from gateway.errors import ConfigError

__all__: list[str] = []

#: Values that are right somewhere, so that a document gets past the first check now and then.
WORDS = (
    "", "a", "acme", "5/s", "0/s", "1/s burst 0.5", "10s", "0s", "64KiB", "enforce", "off", "sized", "interactive",
    "batch", "http://a", "https://a/b", "unix:/x", "127.0.0.1:8081", "0.0.0.0:0", "10.0.0.0/8", "memory:", "redis://a",
    "deny:20", "*", "/a/**", "/a", "RS256", "HS256", "s" * 64, "sha256:" + "0" * 64, "${A}", "${A:-}", "$", "key",
    "upstream", "user", "\x7f", "\u202e", "é" * 80,
)  # fmt: skip

KEYS = sorted({key for table in [Settings] for key in fields_of(table)} | {
    key
    for field in fields_of(Settings).values()
    if (table := table_in(field.annotation))
    for key in fields_of(table)
} | {"credentials", "pat", "route", "issuer", "audience", "secret", "x", "a.b"})  # fmt: skip

SCALARS: st.SearchStrategy[Any] = st.one_of(
    st.sampled_from(WORDS),
    st.text(st.characters(exclude_categories=["Cs"]), max_size=5),
    st.booleans(),
    st.integers(-2, 1000),
    st.sampled_from((2**63, -(2**63), 10**40, 0.0, -1.0, 0.5, float("nan"), float("inf"), 1e308)),
    st.datetimes().map(datetime.isoformat).map(datetime.fromisoformat),
    st.datetimes(timezones=st.timezones()),
    st.dates(),
    st.times(),
)
TREES = st.dictionaries(
    st.sampled_from(KEYS),
    st.recursive(
        SCALARS,
        lambda inner: st.one_of(
            st.lists(inner, max_size=3),
            st.dictionaries(st.sampled_from(KEYS), inner, max_size=4),
            st.lists(st.dictionaries(st.sampled_from(KEYS), inner, max_size=4), min_size=1, max_size=3),
        ),
        max_leaves=12,
    ),
    max_size=5,
)


def toml(value: Any) -> str:
    """Write any value as inline TOML."""
    match value:
        case dict():
            return "{" + ", ".join(f"{json.dumps(key)} = {toml(held)}" for key, held in value.items()) + "}"
        case list():
            return "[" + ", ".join(map(toml, value)) + "]"
        case bool():
            return "true" if value else "false"
        case str():
            return json.dumps(value).replace("\x7f", "\\u007f")
        case datetime() | date() | time():
            return value.isoformat()
        case _:
            return repr(value)


def judged(path: Path, octets: bytes, environ: dict[str, str]) -> Loaded | ConfigError:
    """Load, and check that what is said is sentences."""
    path.write_bytes(octets)
    try:
        return load(path, environ)
    except ConfigError as error:
        told = error
    assert told.faults
    for fault in told.faults:
        assert str(fault).isprintable()
        assert len(fault.message) < 1500
    return told


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(TREES)
def test_any_tree_is_judged(tmp_path: Path, tree: dict[str, Any]) -> None:
    """Whatever stands where, of whichever type."""
    lines = [f"{json.dumps(key)} = {toml(value)}" for key, value in tree.items()]
    judged(tmp_path / "gateway.toml", "\n".join(lines).encode(), {"A": "a"})


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.binary(max_size=200))
def test_any_octets_are_judged(tmp_path: Path, octets: bytes) -> None:
    """A file need not even be text."""
    judged(tmp_path / "gateway.toml", octets, {})


GOOD = """
[upstream]
url = "http://a"
[backstop]
quota = "5/s"
[[tenants]]
id = "acme"
[[tenants.credentials]]
id = "ci"
quota = "5/s"
[[routes]]
name = "r"
path = "/a/*"
cost = 2
[[policies]]
name = "p"
match = { route = "r" }
key = ["tenant"]
quota = "5/s"
"""


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.integers(0, len(GOOD) - 1), st.text(st.characters(exclude_categories=["Cs"]), max_size=3), st.integers(0, 5))
def test_a_slip_of_the_hand_is_judged(tmp_path: Path, at: int, text: str, cut: int) -> None:
    """A good document with a few characters gone, or too many."""
    changed = GOOD[:at] + text + GOOD[at + cut :]
    judged(tmp_path / "gateway.toml", changed.encode(), {})


def test_a_good_document_is_good(tmp_path: Path) -> None:
    """So the slips above start from something that loads."""
    assert isinstance(judged(tmp_path / "gateway.toml", GOOD.encode(), {}), Loaded)


@pytest.mark.parametrize("count", (2_000,))
def test_a_large_file_is_judged_in_time_in_proportion(tmp_path: Path, count: int) -> None:
    """Thousands of tenants, all with the same mistake and the same name: each is told once."""
    text = GOOD + '[[tenants]]\nid = "acme"\nweight = -1\n' * count
    error = judged(tmp_path / "gateway.toml", text.encode(), {})
    assert isinstance(error, ConfigError)
    assert len(error.faults) == 2 * count
