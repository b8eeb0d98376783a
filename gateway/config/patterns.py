"""What requests are matched by: paths and methods of routes, prefixes to strip, tenants an issuer may speak for."""

from __future__ import annotations

import re
from collections.abc import Callable

from gateway.config.values import one_of, parse_method, parse_own_id, shown

__all__ = [
    "CHARACTERISTICS",
    "parse_characteristics",
    "parse_classes",
    "parse_methods",
    "parse_pattern",
    "parse_prefix",
    "parse_tenant_pattern",
]

# What the canonical path can hold: no query, no fragment, no backslash, no controls, no blank.
_SEGMENT = re.compile(r"[^\x00-\x20\x7f?#\\/*]+")

_parse_class = one_of("interactive", "batch")
CHARACTERISTICS = ("address", "tenant", "credential", "project", "route", "class")
_parse_characteristic = one_of(*CHARACTERISTICS)


def parse_pattern(value: object) -> str:
    """Parse a path pattern: literal segments, `*` for one segment, and at its end `**` for the rest."""
    if not isinstance(value, str) or not value.startswith("/"):
        raise ValueError(f'expected a path such as "/v1/exports/**", found {shown(value)}')
    *inner, last = value[1:].split("/")
    if not all(part == "*" or _literal(part) for part in inner) or not (last in {"", "*", "**"} or _literal(last)):
        raise ValueError(
            f'expected a path of whole segments, "*" for any one and "**" only at the end, found {shown(value)}'
        )
    return str(value)


def parse_prefix(value: object) -> str:
    """Parse a prefix of literal segments such as `/v1`, "" being none."""
    parts = value.split("/") if isinstance(value, str) else []
    if value != "" and not (len(parts) > 1 and not parts[0] and all(map(_literal, parts[1:]))):
        raise ValueError(f'expected whole segments such as "/v1", found {shown(value)}')
    return str(value)


def _literal(segment: str) -> bool:
    return segment not in {".", ".."} and bool(_SEGMENT.fullmatch(segment))


def parse_tenant_pattern(value: object) -> str:
    """Parse the id of a tenant, in which `*` stands for any characters."""
    return parse_own_id(value)


def _distinct(parse: Callable[[object], str], value: object, example: str) -> tuple[str, ...]:
    if not isinstance(value, list) or not value:
        raise ValueError(
            f"expected an array such as {example}, found {shown(value) if value != [] else 'an empty one'}"
        )
    found = tuple(map(parse, value))
    if len(set(found)) < len(found):
        raise ValueError(f"expected an array such as {example} without repetitions, found some")
    return found


def parse_methods(value: object) -> tuple[str, ...]:
    """Parse a list of methods."""
    return _distinct(parse_method, value, '["GET", "POST"]')


def parse_classes(value: object) -> tuple[str, ...]:
    """Parse a list of classes."""
    return _distinct(_parse_class, value, '["interactive", "batch"]')


def parse_characteristics(value: object) -> tuple[str, ...]:
    """Parse what buckets are kept by; an empty list would be one bucket for all, drained by whoever asks most."""
    return _distinct(_parse_characteristic, value, '["tenant", "route"]')
