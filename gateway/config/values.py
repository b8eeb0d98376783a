"""What one value of gateway.toml may be, and what it means.

Rules
1. A parser takes whatever TOML holds and returns the value the program works with, or raises ValueError with one
   sentence: what was expected, what was found.
2. A boolean is not a number, a number is not a string, and nothing is trimmed or guessed: a typing error must stop the
   start, never loosen a limit.
3. What an environment variable brought is never quoted; the reference to it is.
"""

from __future__ import annotations

import ipaddress
import json
import re
from collections.abc import Callable
from dataclasses import dataclass
from datetime import date, datetime, time
from fractions import Fraction
from pathlib import Path
from typing import TypeAlias

from policies.policy import Quota
from policies.units import Micros, Rate, RequestUnits

__all__ = [
    "RESERVED",
    "Expanded",
    "Network",
    "QuotaText",
    "number",
    "number_of",
    "one_of",
    "parse_duration",
    "parse_flag",
    "parse_id",
    "parse_instant",
    "parse_method",
    "parse_network",
    "parse_note",
    "parse_output",
    "parse_own_id",
    "parse_path",
    "parse_posture",
    "parse_quota",
    "parse_tenant_quota",
    "parse_text",
    "parse_wait",
    "quoted",
    "shown",
    "size",
    "whole",
]

Network: TypeAlias = ipaddress.IPv4Network | ipaddress.IPv6Network

#: Ids that mean something of their own in figures, and the built-in limit names (contract, sections 3 and 6).
RESERVED = frozenset({
    "anonymous", "rejected", "other",
    "key", "tenant", "concurrency", "paused", "class", "share", "backstop", "posture", "connections",
})  # fmt: skip

_TICKS = {"ms": 1_000, "s": 1_000_000, "m": 60_000_000, "h": 3_600_000_000, "d": 86_400_000_000}
_OCTETS = {"B": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30}
_UNITS = {"s": 1, "min": 60, "h": 3_600, "d": 86_400}

# Nine decimals name every rate from 1/d to within 0.01 %; what a structured field cannot hold of one
# is rounded where it is told (`policies/problem.py`).
_NUMBER = r"\d{1,15}(?:\.\d{1,9})?"
_DURATION = re.compile(rf"({_NUMBER})(ms|s|m|h|d)", re.ASCII)
_SIZE = re.compile(r"(\d{1,15})(B|KiB|MiB|GiB)", re.ASCII)
_QUOTA = re.compile(rf"({_NUMBER})/(s|min|h|d)(?: +burst +({_NUMBER}))?", re.ASCII)
_POSTURE = re.compile(r"open|closed|safe-capacity|deny:(?:100|\d{1,2})", re.ASCII)
_METHOD = re.compile(r"[A-Z][A-Z0-9!#$%&'*+.^_`|~-]{0,31}", re.ASCII)
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f]")

_SLOWEST = Fraction(1, 86_400)
_FASTEST = Fraction(1_000_000)
_LARGEST = 1 << 50
_MOST_BURST = Fraction(1_000_000_000)
#: Beyond a century a deadline is a mistake; it also keeps every sum of instants far below 2**63 microseconds.
_LONGEST: Micros = 36_525 * _TICKS["d"]


class Expanded(str):
    """A string that an environment variable took part in; `source` is what the file says. Never quote its text."""

    __slots__ = ("source",)
    source: str

    @classmethod
    def of(cls, text: str, source: str) -> Expanded:
        """Return `text`, remembering that the file says `source`."""
        made = cls(text)
        made.source = source
        return made


def shown(value: object) -> str:
    """Quote `value` for a message, as TOML would write it, shortened, and without what an environment variable held."""
    match value:
        case Expanded():
            return f"what {quoted(value.source)} expands to"
        case str():
            return quoted(value)
        case bool():
            return "true" if value else "false"
        case int() | float():
            return _shortened(repr(value)) if abs(value) < 10**20 or isinstance(value, float) else "a huge number"
        case datetime() | date() | time():
            return value.isoformat()
        case list():
            return "an array"
        case dict():
            return "a table"
        case _:
            return "nothing"


def quoted(text: str) -> str:
    """Quote a string as TOML would, shortened; nothing in it can move a terminal's cursor or reorder its text."""
    written = json.dumps(_shortened(text), ensure_ascii=False)
    return "".join(sign if sign.isprintable() else f"\\u{ord(sign):04x}" for sign in written)


def _shortened(text: str) -> str:
    # A path in a deep folder is still told whole.
    return text if len(text) <= 160 else text[:157] + "..."


@dataclass(frozen=True, slots=True)
class QuotaText:
    """A quota as written: `burst` is None where it is left to the default, which depends on the routes."""

    text: str
    number: Fraction
    rate: Rate
    burst: Fraction | None

    def resolve(self, dearest: RequestUnits = 1.0) -> Quota:
        """Return the quota with its burst settled; `dearest` is the highest cost of any route, in request units."""
        if self.burst is not None:
            return Quota(self.rate, float(self.burst))
        return Quota(self.rate, max(float(self.rate.per_second), min(10.0, float(self.number)), 1.0, dearest))

    def __str__(self) -> str:
        return self.text


def parse_quota(value: object) -> QuotaText:
    """Parse `NUMBER/UNIT [burst NUMBER]`; a rate is 0, or from 1/d to 1,000,000/s."""
    found = _QUOTA.fullmatch(value) if isinstance(value, str) else None
    if found is None:
        raise ValueError(f'expected a quota such as "5/s" or "10/min burst 20", found {shown(value)}')
    number, unit, burst = Fraction(found[1]), found[2], found[3]
    per_second = number / _UNITS[unit]
    if per_second and not _SLOWEST <= per_second <= _FASTEST:
        raise ValueError(
            f"expected a rate from 1/d to 1000000/s (or 0/s, which refuses everything), found {shown(value)}"
        )
    if burst is not None and not 0 < Fraction(burst) <= _MOST_BURST:
        raise ValueError(f"expected a burst above 0 and up to {_MOST_BURST}, found {shown(value)}")
    return QuotaText(str(value), number, Rate(per_second), None if burst is None else Fraction(burst))


def parse_tenant_quota(value: object) -> QuotaText | str:
    """Parse a quota, or the word `sized`."""
    if value == "sized":
        return "sized"
    try:
        return parse_quota(value)
    except ValueError as error:
        raise ValueError(str(error).replace(", found", ' or "sized", found', 1)) from None


def parse_duration(value: object) -> Micros:
    """Parse a duration such as `250ms`, `10s`, `5m`, `2h` or `30d` to microseconds."""
    found = _DURATION.fullmatch(value) if isinstance(value, str) else None
    ticks = Fraction(found[1]) * _TICKS[found[2]] if found else None
    if ticks is None or ticks.denominator != 1:
        raise ValueError(f'expected a duration such as "250ms", "10s", "5m", "2h" or "30d", found {shown(value)}')
    if ticks > _LONGEST:
        raise ValueError(f"expected a duration of at most 100 years, found {shown(value)}")
    return int(ticks)


def parse_wait(value: object) -> Micros:
    """Parse a duration that is not 0."""
    ticks = parse_duration(value)
    if not ticks:
        raise ValueError(f"expected a duration above 0s, found {shown(value)}")
    return ticks


def size(low: int) -> Callable[[object], int]:
    """Return a parser of sizes such as `64KiB`, to bytes; at least `low` of them."""

    def parse(value: object) -> int:
        found = _SIZE.fullmatch(value) if isinstance(value, str) else None
        octets = int(found[1]) * _OCTETS[found[2]] if found else -1
        if not low <= octets <= _LARGEST:
            raise ValueError(f'expected a size such as "512B", "64KiB" or "1MiB", from {low}B on, found {shown(value)}')
        return octets

    return parse


def parse_flag(value: object) -> bool:
    """Parse a boolean, which only `true` and `false` are."""
    if not isinstance(value, bool):
        raise ValueError(f"expected true or false, found {shown(value)}")  # noqa: TRY004 - pydantic collects only these
    return value


def whole(low: int, high: int) -> Callable[[object], int]:
    """Return a parser of whole numbers from `low` to `high`."""

    def parse(value: object) -> int:
        if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
            raise ValueError(f"expected a whole number from {low} to {high}, found {shown(value)}")
        return value

    return parse


def number(low: float, high: float, *, above: bool = False) -> Callable[[object], float]:
    """Return a parser of numbers from `low` (from just above it, if `above`) to `high`; NaN is none."""
    barred = low if above else None

    def parse(value: object) -> float:
        # Python compares integers of any size with floats exactly, and NaN with nothing.
        if isinstance(value, bool) or not isinstance(value, int | float) or not low <= value <= high or value == barred:
            span = f"above {low:g} and up to {high:g}" if above else f"from {low:g} to {high:g}"
            raise ValueError(f"expected a number {span}, found {shown(value)}")
        return float(value)

    return parse


def number_of(*numbers: int) -> Callable[[object], int]:
    """Return a parser of a closed list of whole numbers."""
    expected = " or ".join(map(str, numbers))

    def parse(value: object) -> int:
        if isinstance(value, bool) or not isinstance(value, int) or value not in numbers:
            raise ValueError(f"expected {expected}, found {shown(value)}")
        return value

    return parse


def one_of(*words: str) -> Callable[[object], str]:
    """Return a parser of a closed list of words."""
    *rest, last = (f'"{word}"' for word in words)
    expected = f"{', '.join(rest)} or {last}"

    def parse(value: object) -> str:
        if not isinstance(value, str) or value not in words:
            raise ValueError(f"expected {expected}, found {shown(value)}")
        return str(value)

    return parse


def parse_text(value: object) -> str:
    """Parse a string of one line that says something."""
    if not isinstance(value, str) or not value.strip() or _CONTROL.search(value):
        raise ValueError(f"expected a string of one line that is not empty, found {shown(value)}")
    return str(value)


def parse_note(value: object) -> str:
    """Parse a string of one line, which may be empty."""
    return "" if value == "" else parse_text(value)


def parse_id(value: object) -> str:
    """Parse an id: 1 to 128 bytes of UTF-8 without control characters."""
    if not isinstance(value, str) or _CONTROL.search(value) or not 1 <= _octets(value) <= 128:
        raise ValueError(f"expected an id of 1 to 128 bytes of UTF-8 without controls, found {shown(value)}")
    return str(value)


def _octets(text: str) -> int:
    """Return the length of `text` in UTF-8, 0 if it has none (an argument of a command can be any octets)."""
    try:
        return len(text.encode())
    except UnicodeEncodeError:
        return 0


def parse_own_id(value: object) -> str:
    """Parse an id that shows up in figures, where the reserved words mean something else."""
    name = parse_id(value)
    if name in RESERVED:
        raise ValueError(f"expected an id of your own, found {shown(value)}, which is reserved")
    return name


def parse_posture(value: object) -> str:
    """Parse a posture: open, closed, safe-capacity, or `deny:N` for N per cent."""
    if not isinstance(value, str) or not _POSTURE.fullmatch(value):
        raise ValueError(f'expected "open", "closed", "safe-capacity" or "deny:N" (per cent), found {shown(value)}')
    return str(value)


def parse_method(value: object) -> str:
    """Parse a request method as it stands on the wire (RFC 9110 section 9.1: case-sensitive)."""
    if not isinstance(value, str) or not _METHOD.fullmatch(value):
        raise ValueError(f'expected a method in capitals such as "GET", found {shown(value)}')
    return str(value)


def parse_network(value: object) -> Network | str:
    """Parse a CIDR such as `10.0.0.0/8`, one address, or the word `unix`."""
    if value == "unix":
        return "unix"
    text = value if isinstance(value, str) else ""
    try:
        return ipaddress.ip_network(text)
    except ValueError:
        pass
    try:
        meant = f"; its network is {ipaddress.ip_network(text, strict=False)}" if text else ""
    except ValueError:
        meant = ""
    raise ValueError(f'expected a CIDR such as "10.0.0.0/8", an address, or "unix", found {shown(value)}{meant}')


def parse_instant(value: object) -> Micros:
    """Parse a TOML date-time with an offset to Unix microseconds."""
    if not isinstance(value, datetime) or value.tzinfo is None:
        raise ValueError(f"expected a date and time with its offset such as 2035-01-01T00:00:00Z, found {shown(value)}")
    since = value - datetime.fromisoformat("1970-01-01T00:00:00+00:00")
    return (since.days * 86_400 + since.seconds) * 1_000_000 + since.microseconds


def parse_path(value: object) -> Path:
    """Parse the path of a file that will be written; its folder must be there. Relative to the working directory."""
    text = parse_text(value)
    path = Path(text).absolute()
    if not path.parent.is_dir():
        raise ValueError(f"expected a path in a folder that exists, found {shown(value)}")
    if path.is_dir():
        raise ValueError(f"expected the path of a file, found {shown(value)}, which is a folder")
    return path


def parse_output(value: object) -> Path | str:
    """Parse where lines go: `stderr`, `off`, or the path of a file."""
    return str(value) if value in ("stderr", "off") else parse_path(value)
