"""JSON Schema of gateway.toml, in the subset of draft-04 that TOML editors complete by (Taplo, Even Better TOML).

Rules
1. Made from the models, so it cannot differ from what is accepted, except that it knows nothing of two keys together.
2. Draft-04 has no `const`, `$defs`, `examples` or `prefixItems`, and ignores what stands beside a `$ref`.
3. Any string may be a `${NAME}` reference instead.
"""

from __future__ import annotations

from typing import Any

from gateway.config.settings import Settings

__all__ = ["json_schema"]

#: `title` only repeats names; `propertyNames` is younger than draft-04.
_DROPPED = frozenset({"title", "propertyNames"})
_REFERENCE = r"\$\{"


def json_schema() -> dict[str, Any]:
    """Return the schema of the whole file."""
    raw = Settings.model_json_schema(by_alias=True)
    definitions = {name: _plain(table) for name, table in raw.pop("$defs").items()}
    head = {
        "$schema": "http://json-schema.org/draft-04/schema#",
        "title": "gateway.toml",
        "description": "Configuration of Evenhand, an API gateway with fairness between tenants.",
    }
    schema: dict[str, Any] = _plain(raw)
    return schema | head | {"definitions": definitions}


def _plain(node: Any) -> Any:
    """Return a part of the schema in draft-04."""
    if isinstance(node, list):
        return [_plain(part) for part in node]
    if not isinstance(node, dict):
        return node
    kept: dict[str, Any] = {}
    for word, part in node.items():
        if word == "properties":
            kept[word] = {name: _plain(schema) for name, schema in part.items()}
        elif word not in _DROPPED and not (word == "default" and part in (None, [])):
            kept[word] = _plain(part)
    return _reference(_with_variables(_optional(kept)))


def _optional(node: dict[str, Any]) -> dict[str, Any]:
    """Drop `null`, which TOML cannot say."""
    choices = [choice for choice in node.pop("anyOf", []) if choice != {"type": "null"}]
    return choices[0] | node if len(choices) == 1 else node


def _reference(node: dict[str, Any]) -> dict[str, Any]:
    target = node.pop("$ref", None)
    if target is None:
        return node
    link = {"$ref": target.replace("#/$defs/", "#/definitions/")}
    return {"allOf": [link], **node} if node else link


def _with_variables(node: dict[str, Any]) -> dict[str, Any]:
    if node.get("type") != "string":
        return node
    if "enum" in node:
        return {"anyOf": [{"enum": node.pop("enum")}, {"pattern": _REFERENCE}], **node}
    if "pattern" in node:
        node["pattern"] = f"{node['pattern']}|{_REFERENCE}"
    return node
