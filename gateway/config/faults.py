"""From pydantic's errors to sentences: the one border at which they stop."""

from __future__ import annotations

from collections.abc import Iterator

from pydantic import ValidationError

from gateway.config.kinds import Kind
from gateway.config.places import Finding, Place, header
from gateway.config.suggest import nearest
from gateway.config.table import CONTRADICTION, Table, fields_of, follow, is_array, table_in
from gateway.config.values import shown

__all__ = ["findings"]


def findings(error: ValidationError, table: type[Table], at: Place) -> Iterator[Finding]:
    """Yield what `error` says of a `table` that stands at `at` in the tree."""
    for detail in error.errors(include_url=False):
        loc = tuple(step for step in detail["loc"] if step != "[key]")
        place = (*at, *loc)
        match detail["type"]:
            case "value_error":
                yield place, str(detail["ctx"]["error"])
            case kind if kind == CONTRADICTION:
                yield from (((*place, key), message) for key, message in detail["ctx"]["faults"])
            case "missing":
                yield place, _missing(table, at, loc)
            case "extra_forbidden":
                yield place, _unknown(table, loc)
            case "tuple_type":
                yield place, f"expected {_array(table, at, loc)}, found {shown(detail['input'])}"
            case _:
                yield place, f"expected a table, found {shown(detail['input'])}"


def _unknown(table: type[Table], loc: Place) -> str:
    known, _ = follow(table, loc[:-1])
    return f"unknown key{nearest(str(loc[-1]), fields_of(known))}"


def _missing(table: type[Table], at: Place, loc: Place) -> str:
    """Say what a key that is missing should have been, in its parser's own words."""
    _, field = follow(table, loc)
    kind = next((mark for mark in field.metadata if isinstance(mark, Kind)), None) if field else None
    try:
        if kind is not None:
            kind.parse(None)
    except ValueError as error:
        return str(error)
    array = field is not None and is_array(field.annotation)
    return f"expected {_array(table, at, loc) if array else 'a table'}, found nothing"


def _array(table: type[Table], at: Place, loc: Place) -> str:
    _, field = follow(table, loc)
    tables = field is not None and table_in(field.annotation) is not None
    return f"an array of tables, as {header((*at, *loc))} makes one" if tables else "an array"
