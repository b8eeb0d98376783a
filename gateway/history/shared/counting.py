"""What one process counted in ten seconds, on its way to whoever adds it up."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import islice
from typing import Any, TypeVar

import orjson

from gateway.history.books import Counts
from gateway.history.identity import TENANT
from gateway.history.intake import counts_of
from gateway.history.meter import Cell, Slot
from gateway.history.packing import readable
from gateway.history.series import Counted, Who
from policies.request import Kind, Principal

__all__ = ["fields", "merged", "told"]

#: Keys, and tenants, in one field: a field is sent, kept and read as a whole.
_PIECE = 500

_R = TypeVar("_R")
Tenants = Iterable[tuple[str, Counts]]


def fields(process: str, cells: Iterable[Cell], tenants: Tenants) -> Iterator[tuple[str, bytes]]:
    """Yield the fields of a process in a slot's record: keys by `k`, tenants by `t`; written again, they replace."""
    for kind, rows in (("k", map(_cell, cells)), ("t", map(_tenant, tenants))):
        for number, piece in enumerate(_pieces(rows)):
            yield f"{kind}:{process}:{number}", orjson.dumps(piece)


def _pieces(rows: Iterable[list[object]]) -> Iterator[list[list[object]]]:
    left = iter(rows)
    while piece := list(islice(left, _PIECE)):
        yield piece


def _cell(cell: Cell) -> list[object]:
    one = cell.principal
    who = [one.kind.value, one.tenant, one.credential, one.listed]
    return [*who, cell.units(), cell.admitted, cell.refused_units, (cell.refused or {}).copy()]


def _tenant(row: tuple[str, Counts]) -> list[object]:
    tenant, counts = row
    return [tenant, [[*what, count] for what, count in counts.items()]]


def merged(number: int, record: Mapping[bytes, bytes]) -> tuple[Slot, dict[str, Counted]]:
    """Return the sum over all processes of a slot: by key as a meter has it, and by tenant."""
    slot, tenants = Slot(number), dict[str, Counted]()
    for field, blob in sorted(record.items()):
        if field.startswith(b"k"):
            for cell in _rows(blob, _read_cell):
                _add_cell(slot, cell)
        else:
            for tenant, counts in _rows(blob, _read_tenant):
                total = tenants.setdefault(tenant, {})
                for what, count in counts:
                    total[what] = total.get(what, 0) + count
    return slot, tenants


def _rows(blob: bytes, read: Callable[[list[Any]], _R]) -> Iterator[_R]:
    for rows in readable("counts", (blob,), _listed):
        yield from readable("counts", rows, read)


def _listed(blob: bytes) -> list[Any]:
    return list(orjson.loads(blob))


def _read_tenant(row: list[Any]) -> tuple[str, list[tuple[tuple[int, str], int]]]:
    tenant, counts = row
    return str(tenant), [((int(tally), str(limit)), int(count)) for tally, limit, count in counts]


def _read_cell(row: list[Any]) -> Cell:
    kind, tenant, credential, listed, seconds, admitted, refused_units, refused = row
    cell = Cell(Principal(Kind(kind), str(tenant), str(credential), listed=bool(listed)))
    cell.fold([float(one) for one in seconds])
    cell.admitted, cell.refused_units = int(admitted), float(refused_units)
    cell.refused = {str(limit): int(count) for limit, count in refused.items()}
    return cell


def _add_cell(slot: Slot, more: Cell) -> None:
    cell = slot.cells.get(more.principal.name)
    if cell is None:
        cell = slot.cells[more.principal.name] = Cell(more.principal)
    cell.fold(more.units())
    cell.admitted += more.admitted
    cell.refused_units += more.refused_units
    if more.refused:
        had = cell.refused or {}
        cell.refused = {limit: had.get(limit, 0) + more.refused.get(limit, 0) for limit in had | more.refused}


def told(number: int, record: Mapping[bytes, bytes]) -> dict[Who, Counted]:
    """Return what a slot's record says of everybody, as series have it."""
    slot, tenants = merged(number, record)
    found: dict[Who, Counted] = {(TENANT, tenant, ""): counts for tenant, counts in tenants.items()}
    for cell in slot.cells.values():
        one = cell.principal
        found[one.kind.value, one.tenant, one.credential] = dict(counts_of(cell))
    return found
