"""The base of every table of gateway.toml, and a way around in its models.

Rules
1. A table is frozen, closed (an unknown key is a fault), and its defaults are written as they would be in TOML.
2. What one value may be is the business of its kind; what two keys of one table may not say together is a
   contradiction, found here; what two tables may not, in `rules.py`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Self, get_args, get_origin

from pydantic import BaseModel, ConfigDict, Field, model_validator
from pydantic.fields import FieldInfo
from pydantic_core import PydanticCustomError

__all__ = ["CONTRADICTION", "Table", "fields_of", "follow", "is_array", "option", "required", "table_in"]

#: The error type under which contradictions travel through pydantic; `faults` in its context holds (key, message).
CONTRADICTION = "contradiction"


def option(default: Any, doc: str, **rest: Any) -> Any:
    """Return a field with its default as TOML has it; `doc` is what the shipped file and the schema say of it."""
    return Field(default, description=doc, **rest)


def required(doc: str, **rest: Any) -> Any:
    """Return a field that has no default."""
    return Field(description=doc, **rest)


class Table(BaseModel):
    """A table of gateway.toml; attributes are named as the keys are (`class` is `cls`)."""

    model_config = ConfigDict(frozen=True, extra="forbid", validate_default=True, hide_input_in_errors=True)

    def contradictions(self) -> Iterator[tuple[str, str]]:
        """Yield (key, message) for all that the keys of this table contradict each other in."""
        yield from ()

    @model_validator(mode="after")
    def _agrees(self) -> Self:
        faults = tuple(self.contradictions())
        if faults:
            raise PydanticCustomError(CONTRADICTION, "keys contradict each other", {"faults": faults})
        return self


def fields_of(table: type[Table]) -> dict[str, FieldInfo]:
    """Return the fields of a table by their keys in TOML."""
    return {field.alias or name: field for name, field in table.model_fields.items()}


def table_in(annotation: Any) -> type[Table] | None:
    """Return the table type in an annotation such as `tuple[Route, ...]`, or None if its values are no tables."""
    if isinstance(annotation, type) and issubclass(annotation, Table):
        return annotation
    return next((found for part in get_args(annotation) if (found := table_in(part))), None)


def is_array(annotation: Any) -> bool:
    """Return whether an annotation is an array's, of values or of tables."""
    return get_origin(annotation) is tuple or any(get_origin(part) is tuple for part in get_args(annotation))


def follow(table: type[Table], steps: tuple[str | int, ...]) -> tuple[type[Table], FieldInfo | None]:
    """Return the innermost table type on the way of `steps`, and the field that the last key names, if it is known.

    Indices, and names of tables that the operator chose, lead to the same field as what holds them.
    """
    field: FieldInfo | None = None
    for step in steps:
        if isinstance(step, int):
            continue
        found = fields_of(table).get(step)
        if found is not None:
            field, table = found, table_in(found.annotation) or table
    return table, field
