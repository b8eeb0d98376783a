"""The harness writes the document that the gateway reads."""

from __future__ import annotations

import tomllib
from datetime import UTC, datetime

from tests.wire.gateway import tenant, tenants
from tests.wire.toml import merged, written

__all__: list[str] = []


def test_written_document_reads_back_the_same() -> None:
    """Tables, lists of tables, nested ones, quotes, unicode, numbers, booleans and dates survive."""
    document = {
        "top": 1,
        "server": {"listen": "127.0.0.1:1", "inner": {"x y": True, "empty": []}},
        "tenants": [{"id": 'a"\\é😀', "weight": 1.5, "credentials": [{"id": "c", "classes": ["batch"]}]}, {"id": "b"}],
        "auth": {"jwt": [{"issuer": "x", "until": datetime(2035, 1, 1, tzinfo=UTC)}]},
    }
    assert tomllib.loads(written(document)) == document


def test_merge_goes_table_by_table() -> None:
    """A case changes one key and keeps the rest; a list is replaced."""
    base = {"server": {"a": 1, "b": 2}, "list": [1]}
    assert merged(base, {"server": {"b": 3}, "list": []}) == {"server": {"a": 1, "b": 3}, "list": []}
    assert base["server"] == {"a": 1, "b": 2}


def test_tenant_entry_has_the_quota_of_the_cases() -> None:
    """Without more, a tenant has one credential with 10/s and burst 20."""
    entry = tenant("a")
    assert [rule["quota"] for rule in entry["credentials"]] == ["10/s burst 20"]
    other = tenant("b", credentials=("x", "y"), quota="1/s", entry={"weight": 2.0})
    assert (other["weight"], [rule["id"] for rule in other["credentials"]]) == (2.0, ["x", "y"])
    assert len({rule["pat"] for one in tenants("a", "b") for rule in one["credentials"]}) == 2
