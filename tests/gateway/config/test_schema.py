"""The schema that editors complete by: draft-04, complete, and in agreement with what is accepted."""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Iterator
from datetime import datetime
from typing import Any

import pytest

from gateway.config.schema import json_schema
from tests.gateway.config.test_shipped import SHIPPED, switched_on

__all__: list[str] = []

SCHEMA = json_schema()

#: All that draft-04 knows of what we use.
WORDS = {
    "$schema", "$ref", "additionalProperties", "allOf", "anyOf", "default", "definitions", "description", "enum",
    "exclusiveMinimum", "format", "items", "maxLength", "maximum", "minItems", "minLength", "minimum", "oneOf",
    "pattern", "properties", "required", "title", "type", "uniqueItems",
}  # fmt: skip
TYPES = {"string": str, "array": list, "object": dict, "boolean": bool}


def nodes(schema: Any) -> Iterator[dict[str, Any]]:
    """Yield every schema inside a schema."""
    if isinstance(schema, list):
        for part in schema:
            yield from nodes(part)
    if isinstance(schema, dict):
        yield schema
        for word, part in schema.items():
            if word in {"properties", "definitions"}:
                for inner in part.values():
                    yield from nodes(inner)
            elif word not in {"default", "enum"}:
                yield from nodes(part)


def errors(value: Any, schema: dict[str, Any], at: str = "") -> Iterator[str]:
    """Yield what a draft-04 validator would say of a value."""
    if "$ref" in schema:
        name = schema["$ref"].removeprefix("#/definitions/")
        yield from errors(value, SCHEMA["definitions"][name], at)
        return
    for part in schema.get("allOf", []):
        yield from errors(value, part, at)
    for word, enough in (("anyOf", range(1, 9)), ("oneOf", range(1, 2))):
        if word in schema and sum(not list(errors(value, part, at)) for part in schema[word]) not in enough:
            yield f"{at}: {word}"
    if not _typed(value, schema.get("type")):
        yield f"{at}: {schema['type']}"
    elif isinstance(value, dict) and ("properties" in schema or "additionalProperties" in schema):
        yield from _of_table(value, schema, at)
    elif isinstance(value, list):
        for index, entry in enumerate(value):
            yield from errors(entry, schema.get("items", {}), f"{at}[{index}]")
    elif not _fits(value, schema):
        yield f"{at}: {value}"


def _typed(value: Any, kind: str | None) -> bool:
    if kind in {"integer", "number"}:
        return isinstance(value, int if kind == "integer" else (int, float)) and not isinstance(value, bool)
    return kind is None or isinstance(value, (str, datetime) if kind == "string" else TYPES[kind])


def _of_table(value: dict[str, Any], schema: dict[str, Any], at: str) -> Iterator[str]:
    yield from (f"{at}: {key} required" for key in schema.get("required", []) if key not in value)
    for key, held in value.items():
        inner = schema.get("properties", {}).get(key, schema.get("additionalProperties", {}))
        if inner is False:
            yield f"{at}.{key}: unknown"
        else:
            yield from errors(held, inner, f"{at}.{key}")


def _fits(value: Any, schema: dict[str, Any]) -> bool:
    if "enum" in schema and value not in schema["enum"]:
        return False
    if isinstance(value, str):
        return re.search(schema.get("pattern", ""), value) is not None and len(value) >= schema.get("minLength", 0)
    if isinstance(value, (int, float)):
        low, high = schema.get("minimum", value), schema.get("maximum", value)
        return bool(low < value if schema.get("exclusiveMinimum") else low <= value) and bool(value <= high)
    return True


def test_it_is_draft_04() -> None:
    """No word of a later draft, nothing that TOML cannot say, nothing beside a reference."""
    assert SCHEMA["$schema"] == "http://json-schema.org/draft-04/schema#"
    for node in nodes(SCHEMA):
        assert set(node) <= WORDS
        assert node.get("type") != "null"
        assert "$ref" not in node or len(node) == 1
    assert "$defs" not in json.dumps(SCHEMA)


def test_every_reference_leads_somewhere() -> None:
    """To a table, once each."""
    used = {node["$ref"] for node in nodes(SCHEMA) if "$ref" in node}
    assert {f"#/definitions/{name}" for name in SCHEMA["definitions"]} == used


def test_every_key_is_described() -> None:
    """The descriptions are the documentation that an editor shows."""
    for name, table in SCHEMA["definitions"].items():
        assert table["description"], name
        assert table["additionalProperties"] is False, name
        for key, schema in table["properties"].items():
            target = SCHEMA["definitions"].get(schema.get("$ref", "").removeprefix("#/definitions/"), {})
            assert schema.get("description") or target.get("description"), f"{name}.{key}"


def test_defaults_are_written_as_in_toml() -> None:
    """A default in microseconds would be no help to anybody."""
    server = SCHEMA["definitions"]["ServerSection"]["properties"]
    assert [server[key]["default"] for key in ("listen", "header_timeout", "max_body_bytes", "workers")] == [
        "127.0.0.1:8080",
        "10s",
        "64MiB",
        1,
    ]


@pytest.mark.parametrize("text", (SHIPPED.read_text(encoding="utf-8"), switched_on()), ids=("shipped", "switched on"))
def test_it_accepts_what_is_accepted(text: str) -> None:
    """The shipped file, and all its examples."""
    assert list(errors(tomllib.loads(text), SCHEMA)) == []


@pytest.mark.parametrize(
    ("text", "told"),
    (
        ("x = 1", [": upstream required", ": backstop required", ".x: unknown"]),
        ('[upstream]\nurl = "x"\n[backstop]\nquota = "5"', [".upstream.url: x", ".backstop.quota: 5"]),
        ('[upstream]\n[backstop]\nquota = "${Q}"\nstatus = 500', [".backstop.status: 500"]),
        ('[upstream]\n[backstop]\nquota = "5/s"\n[server]\nworkers = true\nmode = "x"',
         [".server.workers: integer", ".server.mode: anyOf"]),
        ('[upstream]\n[backstop]\nquota = "5/s"\n[server]\nmode = "${MODE}"', []),
        ('[upstream]\n[backstop]\nquota = "5/s"\n[sizing]\nceiling = 0', [".sizing.ceiling: 0"]),
    ),
)  # fmt: skip
def test_it_refuses_what_is_refused(text: str, told: list[str]) -> None:
    """As far as one value goes; a reference to a variable may stand for any string."""
    assert list(errors(tomllib.loads(text), SCHEMA)) == told
