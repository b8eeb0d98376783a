"""How rows are written: small, and the same whatever machine reads them.

Rules
1. Counts are LEB128 integers; rates are IEEE singles, and parts of one in 16 or 8 bits.
2. An hour takes 38 bytes, a slot's peak 13, whatever they hold.
3. What none of us wrote holds nothing (`readable`).
"""

from __future__ import annotations

import logging
import struct
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import NamedTuple, TypeVar

from policies.sizing_past import TOP, Day, Hour, Peak

__all__ = [
    "DAY_BYTES",
    "HOUR_BYTES",
    "Packed",
    "SlotPeak",
    "Taught",
    "flat",
    "pack_count",
    "pack_counts",
    "pack_day",
    "pack_hour",
    "pack_peak",
    "readable",
    "sum_counts",
    "unpack_counts",
    "unpack_day",
    "unpack_hours",
    "whole",
]  # fmt: skip


_LOG = logging.getLogger("evenhand.history")
#: What reading octets raises that none of us wrote.
_STRANGE = (ValueError, LookupError, TypeError, AttributeError, ArithmeticError, struct.error)
#: What was warned of.
_TOLD: set[str] = set()

_T = TypeVar("_T")
_R = TypeVar("_R")

_HOUR = struct.Struct("<BBHfff7H8B")
HOUR_BYTES = _HOUR.size
_PEAK = struct.Struct("<fffB")
_DAY = struct.Struct("<" + "fif" * 4 + "HBf")
DAY_BYTES = _DAY.size
_OWN = 0x80
_WORD, _BYTE = 0xFFFF, 0xFF

#: A key, and what was counted of it in a slot, or what that contributes to its peaks.
Packed = tuple[int, bytes]
#: A key, and both.
Taught = tuple[int, bytes, bytes]


class SlotPeak(NamedTuple):
    """What one slot of one key contributes to its peaks, in units; `limited` by anything, `own` by its own limit."""

    units: float
    second: float
    offered: float
    limited: bool
    own: bool

    @classmethod
    def unpack(cls, blob: bytes) -> SlotPeak:
        """Read what `pack_peak` wrote."""
        units, second, offered, flags = _PEAK.unpack(blob)
        return cls(units, second, offered, bool(flags & 1), bool(flags & 2))


def pack_peak(units: float, second: float, offered: float, *, limited: bool, own: bool) -> bytes:
    """Write a `SlotPeak`."""
    return _PEAK.pack(units, second, offered, limited | own << 1)


def flat(place: int, rows: Sequence[Packed] | Sequence[Taught]) -> list[object]:
    """Return rows of one slot or day, one value after another."""
    values: list[object] = []
    for row in rows:
        values.append(place)
        values.extend(row)
    return values


def pack_counts(counts: Mapping[int, int]) -> bytes:
    """Write positive counts by meaning."""
    return b"".join([pack_count(meaning, count) for meaning, count in counts.items()])


# Of ten thousand tenants in ten seconds most have one of a few hundred counts.
@lru_cache(maxsize=4096)
def pack_count(*values: int) -> bytes:
    """Write one of them: its meaning, and how often."""
    out = bytearray()
    for value in values:
        rest = value
        while rest > 0x7F:
            out.append(rest & 0x7F | 0x80)
            rest >>= 7
        out.append(rest)
    return bytes(out)


def unpack_counts(blob: bytes) -> Iterator[tuple[int, int]]:
    """Read what `pack_counts` wrote."""
    values = _integers(blob)
    return zip(values, values, strict=False)


def sum_counts(total: dict[int, int], blob: bytes) -> None:
    """Add what `pack_counts` wrote, once or one after another, to what there is by meaning."""
    value = shift = 0
    meaning = -1
    for byte in blob:
        value |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            if meaning < 0:
                meaning = value
            else:
                total[meaning] = total.get(meaning, 0) + value
                meaning = -1
            value = shift = 0


def _integers(blob: bytes) -> Iterator[int]:
    value = shift = 0
    for byte in blob:
        value |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            yield value
            value = shift = 0


def pack_hour(hour: Hour) -> bytes:
    """Write one hour."""
    slots = [*hour.slots, *((0.0, 0.0),) * (TOP - len(hour.slots))]
    top = slots[0][0]
    second = max(second for _, second in slots)
    return _HOUR.pack(
        hour.number % 24,
        len(hour.slots) | (_OWN if hour.own else 0),
        min(hour.censored, _WORD),
        hour.offered,
        top,
        second,
        *(round(rate / top * _WORD) if top else 0 for rate, _ in slots[1:]),
        *(round(best / second * _BYTE) if second else 0 for _, best in slots),
    )


def unpack_hours(day: int, blob: bytes) -> Iterable[Hour]:
    """Read the hours of a day, one after another."""
    for of_day, held, censored, offered, top, second, *parts in _HOUR.iter_unpack(blob):
        rates = (top, *(part / _WORD * top for part in parts[: TOP - 1]))
        seconds = (part / _BYTE * second for part in parts[TOP - 1 :])
        slots = tuple(zip(rates, seconds, strict=True))[: held & ~_OWN]
        yield Hour(day * 24 + of_day, slots, censored, offered, bool(held & _OWN))


def pack_day(day: Day) -> bytes:
    """Write what a day taught."""
    peaks = (day.sustained, day.reached, day.held, day.held_reached)
    return _DAY.pack(*(part for peak in peaks for part in peak), min(day.censored, _WORD), day.own, day.offered)


def unpack_day(number: int, blob: bytes) -> Day:
    """Read what `pack_day` wrote."""
    parts = _DAY.unpack(blob)
    peaks = [Peak(*parts[at : at + 3]) for at in range(0, 12, 3)]
    return Day(number, peaks[0], peaks[1], peaks[2], peaks[3], parts[12], bool(parts[13]), parts[14])


def readable(kind: str, found: Iterable[_T], read: Callable[[_T], _R]) -> Iterator[_R]:
    """Yield what is read of each; what makes no sense is passed over, and warned of once for a kind of record."""
    for one in found:
        try:
            told = read(one)
        except _STRANGE:
            if kind not in _TOLD:
                _TOLD.add(kind)
                _LOG.warning("history: records (%s) hold what makes no sense; passed over", kind)
        else:
            yield told


def whole(value: bytes | None) -> int:
    """Return a number that is kept, 0 for none and for what is no number."""
    return next(readable("numbers", (value or b"0",), int), 0)
