"""Writes gateway.toml from plain values; only what such a file needs."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, TypeAlias

__all__ = ["Document", "merged", "written"]

Document: TypeAlias = Mapping[str, Any]


def merged(base: Document, over: Document) -> dict[str, Any]:
    """Return `base` with `over` laid upon it, table by table; lists are replaced."""
    found = dict(base)
    for key, value in over.items():
        below = found.get(key)
        found[key] = merged(below, value) if isinstance(below, Mapping) and isinstance(value, Mapping) else value
    return found


def written(document: Document) -> str:
    """Return `document` as TOML: tables as sections, lists of tables as `[[...]]`, anything deeper inline."""
    return "\n".join(_section((), document))


def _section(path: tuple[str, ...], table: Document) -> list[str]:
    below = {key: value for key, value in table.items() if isinstance(value, Mapping) or _is_tables(value)}
    lines = [f"[{'.'.join(map(_key, path))}]"] if path else []
    lines += [f"{_key(key)} = {_value(value)}" for key, value in table.items() if key not in below]
    for key, value in below.items():
        if isinstance(value, Mapping):
            lines += _section((*path, key), value)
            continue
        for entry in value:
            lines.append(f"[[{'.'.join(map(_key, (*path, key)))}]]")
            lines += [f"{_key(name)} = {_value(inner)}" for name, inner in entry.items()]
    return lines


def _is_tables(value: object) -> bool:
    return isinstance(value, Sequence) and bool(value) and isinstance(value[0], Mapping)


def _key(name: str) -> str:
    return json.dumps(name, ensure_ascii=False)


def _value(value: object) -> str:
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{_key(key)} = {_value(inner)}" for key, inner in value.items()) + "}"
    if isinstance(value, str):
        return json.dumps(value, ensure_ascii=False)
    if isinstance(value, Sequence):
        return "[" + ", ".join(map(_value, value)) + "]"
    if isinstance(value, bool):
        return "true" if value else "false"
    return value.isoformat() if isinstance(value, datetime) else str(value)
