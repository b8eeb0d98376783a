"""A draft: the tree checked table by table, so that one bad entry hides nothing that is wrong with the others."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from pydantic import TypeAdapter, ValidationError
from pydantic.fields import FieldInfo

from gateway.config.faults import findings
from gateway.config.places import Finding, Place, lone_arrays
from gateway.config.settings import Settings
from gateway.config.suggest import nearest
from gateway.config.table import Table, fields_of, is_array, table_in
from gateway.config.values import parse_id, shown

__all__ = ["Draft", "draft"]


@dataclass
class Draft:
    """What could be made of a tree.

    `parts` holds every section and entry that is good, at its place; `found` what is wrong with the others.
    """

    tree: Mapping[str, Any]
    parts: dict[Place, Any] = field(default_factory=dict)
    found: list[Finding] = field(default_factory=list)

    def entries(self, name: str) -> Iterator[tuple[Place, Any]]:
        """Yield (place, table) of all good entries of an array, or of a table of tables."""
        return ((place, part) for place, part in self.parts.items() if place[0] == name and len(place) == 2)

    def settings(self) -> Settings:
        """Return the whole. Only if nothing was found."""
        whole: dict[str, Any] = {}
        for (name, *rest), part in self.parts.items():
            match rest:
                case []:
                    whole[str(name)] = part
                case [int()]:
                    whole.setdefault(str(name), []).append(part)
                case [key]:
                    whole.setdefault(str(name), {})[key] = part
        return Settings(**whole)


def draft(tree: Mapping[str, Any]) -> Draft:
    """Check every section and entry of `tree` by itself."""
    made = Draft(tree)
    fields = fields_of(Settings)
    for key in tree:
        if key not in fields:
            made.found.append(((key,), f"unknown key{nearest(key, fields)}"))
    for name, info in fields.items():
        if name in tree or info.is_required():
            _check(made, name, info, tree.get(name, {}))
    return made


def _check(made: Draft, name: str, info: FieldInfo, value: Any) -> None:
    inner = table_in(info.annotation)
    if inner is None:
        _part(made, (name,), Settings, _plain(info), value)
    elif is_array(info.annotation):
        if not isinstance(value, list):
            message = f"expected an array of tables, as [[{name}]] makes one, found {shown(value)}"
            made.found.append(((name,), lone_arrays(value, (name,)) or message))
            return
        for index, entry in enumerate(value):
            _part(made, (name, index), inner, inner.model_validate, entry)
    elif name == "upstreams" and isinstance(value, dict):
        for key, entry in value.items():
            _named(made, (name, key), inner, entry)
    else:
        _part(made, (name,), inner, inner.model_validate, value)


def _plain(info: FieldInfo) -> Callable[[Any], Any]:
    annotation: Any = info.annotation
    return TypeAdapter(annotation).validate_python


def _named(made: Draft, place: Place, table: type[Table], value: Any) -> None:
    try:
        parse_id(place[-1])
    except ValueError as error:
        made.found.append((place, str(error)))
    _part(made, place, table, table.model_validate, value)


def _part(made: Draft, place: Place, table: type[Table], validate: Callable[[Any], Any], value: Any) -> None:
    try:
        made.parts[place] = validate(value)
    except ValidationError as error:
        made.found.extend(findings(error, table, place))
